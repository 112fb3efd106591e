package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// TestTrimmedHeadDoesNotHideTheRest: a pending entry without a body is not taken for "nothing is pending", or what comes after what is pending would be read
// first. What is gone is asked for in the store, which has it here.
func TestTrimmedHeadDoesNotHideTheRest(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	made := w.publish(orders, 6, "shipping")
	h := w.acquire(a, shipping)
	w.fetch(a, h, 4, place(orders, 0))
	w.do("xdel", w.stream(orders), "1-0", "2-0")
	b := w.node()
	w.pass(w.traits().TTL)
	h = w.acquire(b, shipping)
	if got := w.fetch(b, h, 10, place(orders, 0)); !got.Gap || got.Lane != orders || len(got.Entries) > 0 {
		t.Errorf("nobody has what comes first: %+v", got)
	}
	b.Bind(storeOf(t, made...), eventstore.Identity{StoreID: "store-1"}, event.KeyRules{})
	got := w.advance(b, h, 10, place(orders, 0))
	if !strings.HasPrefix(sequences(got.Entries), run(orders, 1, 2)) {
		t.Errorf("the store has it: %+v", got)
	}
	got = w.advance(b, h, 10, place(orders, 2))
	if sequences(got.Entries) != run(orders, 3, 6) {
		t.Errorf("then comes %s", sequences(got.Entries))
	}
	if got = w.advance(b, h, 10, place(orders, 6)); !got.Drained || len(w.pending(orders, "shipping")) > 0 {
		t.Errorf("%+v, pending %v", got, w.pending(orders, "shipping"))
	}
}

// A store that went back in time has another history below what the stream still has. The two are not mixed.
func TestAStoreThatWentBackIsNotReadBelowTheStream(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]int{"it drew the numbers again": 6, "it ends below": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a := setup(t)
			other := slices.Clone(w.publish(orders, 6, "shipping")[:keep])
			w.do("xdel", w.stream(orders), "1-0", "2-0", "3-0")
			for i := range other {
				other[i].ID += "-again"
			}
			a.Bind(storeOf(t, other...), eventstore.Identity{StoreID: "store-1"}, event.KeyRules{})
			h := w.acquire(a, shipping)
			for range 2 {
				got, err := a.Port().Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 10)
				if err == nil || !strings.Contains(err.Error(), "lanes adopt") || len(got.Entries) > 0 {
					t.Errorf("read %s, %v", sequences(got.Entries), err)
				}
			}
		})
	}
}

// TestReadMakesNoStream: a group made with its stream would bring back a stream that was retired, in no index.
func TestReadMakesNoStream(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	h := w.acquire(node, shipping)
	w.fetch(node, h, 10, place(orders, 0), place(late, 0))
	w.advance(node, h, 10, place(orders, 3), place(late, 7))
	w.release(node, h, true)
	for _, key := range w.keys() {
		if kind := w.do("type", key); kind == "stream" {
			t.Errorf("%s was made", key)
		}
	}
}

// TestLaneThatAppearsLaterIsReadWithWhatADeadOwnerLeft: a stream that comes to an owned unit later may have something pending that a dead owner had.
func TestLaneThatAppearsLaterIsReadWithWhatADeadOwnerLeft(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	w.publish(payments, 3, "shipping")
	h := w.acquire(a, shipping)
	w.fetch(a, h, 2, place(payments, 0))
	b := w.node()
	w.pass(w.traits().TTL)
	h = w.acquire(b, shipping)
	w.advance(b, h, 10, place(orders, 0), place(late, 0))
	if got := w.advance(b, h, 10, place(orders, 0), place(payments, 0)); sequences(got.Entries) != run(payments, 1, 3) {
		t.Errorf("got %s", sequences(got.Entries))
	}
}

// TestEntryTrimmedWhilePendingIsNotLost: what was delivered and not acknowledged may be trimmed, which is noticed.
func TestEntryTrimmedWhilePendingIsNotLost(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	made := w.publish(orders, 5, "shipping")
	node.Bind(storeOf(t, made...), eventstore.Identity{StoreID: "store-1"}, event.KeyRules{})
	h := w.acquire(node, shipping)
	w.fetch(node, h, 3, place(orders, 0))
	w.do("xtrim", w.stream(orders), "minid", "4-0")
	var got []event.Envelope
	for at := event.Sequence(0); ; at = got[len(got)-1].Sequence {
		next := w.advance(node, h, 2, place(orders, at))
		if len(next.Entries) == 0 {
			break
		}
		got = append(got, next.Entries...)
	}
	for i := range made { // the store of the test is another one than they say
		made[i].StoreID = ""
	}
	for i := range got {
		got[i].StoreID = ""
	}
	if diff := cmp.Diff(made, got); diff != "" {
		t.Error(diff)
	}
	if p := w.pending(orders, "shipping"); len(p) > 0 {
		t.Errorf("pending: %v", p)
	}
}

// TestConsumersOfFormerOwnersGo: but not while they own something.
func TestConsumersOfFormerOwnersGo(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	w.publish(orders, 4, "shipping")
	first := w.acquire(a, shipping)
	w.fetch(a, first, 3, place(orders, 0))
	b := w.node()
	w.pass(w.traits().TTL)
	h := w.acquire(b, shipping)
	w.advance(b, h, 1, place(orders, 0))
	dead, mine := a.OwnerID()+":1", b.OwnerID()+":2"
	if diff := cmp.Diff(map[string]bool{dead: true, mine: true}, setOf(w.consumers(orders, "shipping"))); diff != "" {
		t.Errorf("it owns 2 and 3 still: %s", diff)
	}
	for at := event.Sequence(1); at <= 4; at++ {
		w.advance(b, h, 1, place(orders, at))
	}
	if diff := cmp.Diff([]string{mine}, w.consumers(orders, "shipping")); diff != "" {
		t.Errorf("drained: %s", diff)
	}
	w.release(b, h, true)
	if left := w.consumers(orders, "shipping"); len(left) > 0 {
		t.Errorf("released: %v", left)
	}
}

func setOf(names []string) map[string]bool {
	all := make(map[string]bool)
	for _, n := range names {
		all[n] = true
	}
	return all
}

// TestWhatADeadOwnerCommittedIsAcknowledged: it died between its commit and the acknowledgement, also of very much.
func TestWhatADeadOwnerCommittedIsAcknowledged(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	const n = 700 // more than one call acknowledges
	w.publish(orders, n, "shipping")
	w.fetch(a, w.acquire(a, shipping), n, place(orders, 0))
	b := w.node()
	w.pass(w.traits().TTL)
	h := w.acquire(b, shipping)
	if got := w.advance(b, h, 10, place(orders, n)); !got.Drained {
		t.Errorf("got %+v", got)
	}
	if p := w.pending(orders, "shipping"); len(p) > 0 {
		t.Errorf("%d are pending", len(p))
	}
	if w.isBusy(shipping) {
		t.Error("it is busy still")
	}
}

// TestAcknowledgesNothingAboveTheCheckpoint: nor what was passed on to the caller.
func TestAcknowledgesNothingAboveTheCheckpoint(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.publish(orders, 9, "shipping")
	h := w.acquire(node, shipping)
	w.advance(node, h, 5, place(orders, 0))
	w.fetch(node, h, 5, place(orders, 5))
	if p := w.pending(orders, "shipping"); len(p) != 9 {
		t.Errorf("read ahead: pending %v", p)
	}
	w.advance(node, h, 2, place(orders, 3))
	if diff := cmp.Diff([]string{"4", "5", "6", "7", "8", "9"}, w.pending(orders, "shipping")); diff != "" {
		t.Error(diff)
	}
}

// TestCheckpointThatWentBack: the store was restored from a backup; what was acknowledged since is read again.
func TestCheckpointThatWentBack(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	w.publish(orders, 5, "shipping")
	h := w.acquire(a, shipping)
	w.advance(a, h, 10, place(orders, 5))
	w.release(a, h, true)
	b := w.node()
	h = w.acquire(b, shipping)
	if got := w.advance(b, h, 10, place(orders, 2)); sequences(got.Entries) != run(orders, 3, 5) {
		t.Errorf("got %s", sequences(got.Entries))
	}
}

// TestStreamBehindItsReader: a replica that was promoted lacks the tail. What comes back is not read again.
func TestStreamBehindItsReader(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	made := w.publish(orders, 5)
	w.do("del", w.stream(orders))
	w.add(orders, made[:3])
	node.Bind(storeOf(t, made...), eventstore.Identity{StoreID: "store-1"}, event.KeyRules{})
	h := w.acquire(node, shipping)
	if got := w.advance(node, h, 10, place(orders, 5)); !got.Drained {
		t.Errorf("got %+v", got)
	}
	w.add(orders, made[3:])
	if got := w.advance(node, h, 10, place(orders, 5)); !got.Drained {
		t.Errorf("the relay published 4 and 5 again: %+v", got)
	}
	w.publish(orders, 1)
	if got := w.advance(node, h, 10, place(orders, 5)); sequences(got.Entries) != run(orders, 6, 6) {
		t.Errorf("got %+v", got)
	}
}

// TestStoreAheadOfTheStreamIsNotAsked: nothing to read costs no query, and what is not published yet is the relay's business.
func TestStoreAheadOfTheStreamIsNotAsked(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	ahead := make([]event.Envelope, 9)
	for i := range ahead { // of which three will be published
		ahead[i] = event.Envelope{ID: fmt.Sprintf("%s#%d", orders, i+1), Type: "order.placed", Category: orders.Category, Key: orders.Key}
	}
	store := &counting{Store: storeOf(t, ahead...)}
	node.Bind(store, eventstore.Identity{StoreID: "store-1"}, event.KeyRules{})
	h := w.acquire(node, shipping)
	if got := w.advance(node, h, 10, place(orders, 0)); !got.Drained {
		t.Errorf("no stream: %+v", got)
	}
	w.publish(orders, 3)
	w.advance(node, h, 10, place(orders, 0))
	if got := w.advance(node, h, 10, place(orders, 3)); !got.Drained {
		t.Errorf("at the end of the stream: %+v", got)
	}
	if n := store.reads(); n > 0 {
		t.Errorf("the store was read %d times", n)
	}
	w.do("xtrim", w.stream(orders), "minid", "3-0")
	if got := w.fetch(node, h, 10, place(orders, 0)); len(got.Entries) == 0 || store.reads() != 2 { // whether they tell one history, and what is missing
		t.Errorf("trimmed: %+v after %d reads", got, store.reads())
	}
}

func TestTroubleOfTheStoreIsNoGap(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.publish(orders, 3)
	w.do("xdel", w.stream(orders), "1-0")
	trouble := errors.New("disk full")
	node.Bind(&counting{err: trouble}, eventstore.Identity{}, event.KeyRules{})
	h := w.acquire(node, shipping)
	if got, err := node.Port().Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 5); !errors.Is(err, trouble) || got.Gap {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestForeignEntryIsNamed: an id that is no sequence has no place in the lane.
func TestForeignEntryIsNamed(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.do("xadd", w.stream(orders), "1-1", "a", "b")
	h := w.acquire(node, shipping)
	_, err := node.Port().Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 5)
	if err == nil || !strings.Contains(err.Error(), `order:k-1: entry "1-1" is no entry`) || errors.Is(err, partitions.ErrFenced) {
		t.Errorf("got %v", err)
	}
}

// TestDrainedUnitLeavesTheBusySet: only when no lane has anything, and everything is acknowledged.
func TestDrainedUnitLeavesTheBusySet(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, node := newWorld(t, sharedRedis(t, cluster), Config{})
			w.publish(orders, 2, "shipping")
			w.publish(late, 1, "shipping")
			h := w.acquire(node, shipping)
			for _, done := range [][]event.Position{
				{place(orders, 0), place(late, 0)}, {place(orders, 1), place(late, 0)}, {place(orders, 2), place(late, 0)},
			} {
				if got := w.advance(node, h, 1, done...); got.Drained || len(got.Entries) != 1 || !w.isBusy(shipping) {
					t.Errorf("at %v: %+v, busy %v", done, got, w.isBusy(shipping))
				}
			}
			if got := w.advance(node, h, 1, place(orders, 2), place(late, 1)); !got.Drained || w.isBusy(shipping) {
				t.Errorf("at the end: %+v, busy %v", got, w.isBusy(shipping))
			}
		})
	}
}

func TestReleaseLooksAtEveryLane(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, node := newWorld(t, sharedRedis(t, cluster), Config{})
			h := w.acquire(node, shipping)
			done := []event.Position{place(orders, 0), place(late, 0), place(payments, 0)}
			w.advance(node, h, 5, done...)
			for _, lane := range []event.LaneRef{payments, late, orders} {
				w.publish(lane, 1, "shipping")
				if err := node.Port().Release(t.Context(), h, true); !errors.Is(err, partitions.ErrBusy) || !w.isBusy(shipping) {
					t.Errorf("something in %s: %v, busy %v", lane, err, w.isBusy(shipping))
				}
				for i := range done {
					if done[i].Lane == lane {
						done[i].Sequence++
					}
				}
				w.advance(node, h, 5, done...)
			}
			w.do("sadd", w.busy("shipping"), shipping.Key) // a mark that nothing came of
			w.release(node, h, true)
			if w.isBusy(shipping) {
				t.Error("it is busy still")
			}
			w.publish(orders, 1, "shipping")
			h = w.acquire(node, shipping)
			if err := node.Port().Release(t.Context(), h, true); !errors.Is(err, partitions.ErrBusy) {
				t.Errorf("nothing was read yet: %v", err)
			}
			w.release(node, h, false)
			if !w.isBusy(shipping) {
				t.Error("a hand-over took it out of the busy ones")
			}
		})
	}
}

// TestLookAfterTheKeyLeftTheBusySet: in a Cluster somebody publishes between a read that found nothing and the removal of the key, and finds the key there, so that
// nobody is woken.
func TestLookAfterTheKeyLeftTheBusySet(t *testing.T) {
	t.Parallel()
	w, node := newWorld(t, sharedRedis(t, true), Config{})
	h := w.acquire(node, shipping)
	at := []event.Position{place(orders, 0), place(late, 0)}
	w.advance(node, h, 5, at...)
	w.publish(late, 1, "shipping")
	p := node.conn.Load().port
	tenure, err := p.tenure(h)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.readApart(t.Context(), h, tenure, at, 5)
	if err != nil || sequences(got.Entries) != run(late, 1, 1) || got.Drained || !w.isBusy(shipping) {
		t.Errorf("got %+v, %v, busy %v", got, err, w.isBusy(shipping))
	}
	w.pass(w.traits().TTL) // and when the look fails
	if _, err := p.readApart(t.Context(), h, tenure, at, 5); !errors.Is(err, partitions.ErrFenced) || !w.isBusy(shipping) {
		t.Errorf("got %v, busy %v", err, w.isBusy(shipping))
	}
	if err := node.Port().Release(t.Context(), h, true); !errors.Is(err, partitions.ErrFenced) || !w.isBusy(shipping) {
		t.Errorf("release: got %v, busy %v", err, w.isBusy(shipping))
	}
}

// TestDeletedStreamGoesOnWhereItWas: its groups are gone with it; the relay puts back what nobody passed.
func TestDeletedStreamGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	made := w.publish(orders, 5)
	h := w.acquire(node, shipping)
	w.advance(node, h, 2, place(orders, 2))
	w.do("del", w.stream(orders))
	if got := w.fetch(node, h, 5, place(orders, 2)); len(got.Entries) > 0 || got.Gap {
		t.Errorf("it is gone: %+v", got)
	}
	w.add(orders, made[1:])
	if got := w.advance(node, h, 5, place(orders, 2)); sequences(got.Entries) != run(orders, 3, 5) {
		t.Errorf("got %s", sequences(got.Entries))
	}
	w.advance(node, h, 5, place(orders, 5))
	if p := w.pending(orders, "shipping"); len(p) > 0 {
		t.Errorf("pending: %v", p)
	}
}

// TestLargeEntriesComeFewAtATime: a unit's answer has a limit, and a call's. Whoever finds the answer full is asked for again.
func TestLargeEntriesComeFewAtATime(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	body := strings.Repeat("x", unitBytes/2)
	const units = 3 * callBytes / unitBytes
	var all sync.WaitGroup
	for i := range units {
		lane := event.LaneRef{Category: "order", Key: "u-" + strconv.Itoa(i)}
		for seq := range event.Sequence(5) {
			w.do("xadd", w.stream(lane), entryID(seq+1), "type", "order.placed", "data", body)
		}
		h := w.acquire(node, event.Unit{Name: "shipping", Key: lane.Key})
		all.Go(func() {
			got, err := node.Port().Fetch(t.Context(), h, []event.Position{place(lane, 0)}, 5)
			if err != nil || len(got.Entries) == 0 || len(got.Entries) > 2 || got.Drained {
				t.Errorf("%s: %d entries, %v, %v", lane, len(got.Entries), got.Drained, err)
			}
		})
	}
	all.Wait()
}

// TestAHoleInTheMiddleEndsWhatIsRead: what comes behind it is not given with what comes before it, nor in its place.
func TestAHoleInTheMiddleEndsWhatIsRead(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.publish(orders, 5, "shipping")
	h := w.acquire(node, shipping)
	w.do("xdel", w.stream(orders), "3-0")
	if got := w.fetch(node, h, 10, place(orders, 0)); sequences(got.Entries) != run(orders, 1, 2) {
		t.Errorf("got %s", sequences(got.Entries))
	}
	if got := w.fetch(node, h, 10, place(orders, 2)); !got.Gap || len(got.Entries) > 0 {
		t.Errorf("got %+v, want a gap: nobody has 3", got)
	}
}

// TestPendingInBulkHoldsNobodyUp: E3, acquire and the first read do not depend on what is pending, 20,000 entries here. Redis itself tells how long it was at work;
// the fastest of five takeovers counts, for the machine may be busy.
func TestPendingInBulkHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const n, limit = 20_000, 5000 // µs
	server := redisserver.Run(t, redisserver.Options{Config: []string{"--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000"}})
	w, node := newWorld(t, server, Config{})
	w.publish(orders, n, "shipping")
	w.fetch(node, w.acquire(node, shipping), eventstore.MaxLimit, place(orders, 0))
	w.do("xreadgroup", "group", "shipping", node.OwnerID()+":1", "count", n, "streams", w.stream(orders), ">")
	if got := len(w.pending(orders, "shipping")); got != n {
		t.Fatalf("%d are pending", got)
	}
	w.do("slowlog", "reset")
	for range 5 {
		b := w.node()
		w.pass(w.traits().TTL)
		h := w.acquire(b, shipping)
		if got := w.advance(b, h, 16, place(orders, 0)); sequences(got.Entries) != run(orders, 1, 16) {
			t.Errorf("got %s", sequences(got.Entries))
		}
	}
	fastest := make(map[any]int64)
	for _, entry := range w.do("slowlog", "get", 1000).([]any) {
		took, command := entry.([]any)[2].(int64), entry.([]any)[3].([]any)
		if name := command[0]; name == "evalsha" || name == "eval" {
			if was, ok := fastest[command[1]]; !ok || took < was {
				fastest[command[1]] = took
			}
		}
	}
	for _, s := range []*script{scriptAcquire, scriptRead} {
		if took, ok := fastest[s.flagged.sha]; !ok || took > limit {
			t.Errorf("script %s: %d µs (found %v)", s.name, took, ok)
		} else {
			t.Logf("script %s: %d µs", s.name, took)
		}
	}
}

// TestAnswerThatIsFullPutsUnitsOff: they are asked for again, and lose nothing but time.
func TestAnswerThatIsFullPutsUnitsOff(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	p := node.conn.Load().port
	requests := make([]*request, 2*callBytes/unitBytes)
	for i := range requests {
		lane := event.LaneRef{Category: "order", Key: "u-" + strconv.Itoa(i)}
		w.do("xadd", w.stream(lane), "1-0", "type", "order.placed", "data", strings.Repeat("x", unitBytes))
		tenure, err := p.tenure(w.acquire(node, event.Unit{Name: "shipping", Key: lane.Key}))
		if err != nil {
			t.Fatal(err)
		}
		r := &reading{above: []event.Position{place(lane, 0)}, most: 5}
		if err := p.plan(tenure, r); err != nil {
			t.Fatal(err)
		}
		requests[i] = &request{tenure: tenure, asked: r, done: make(chan struct{})}
	}
	p.call(t.Context(), &kindRead, p.pack(&kindRead, requests))
	answers := make(map[any]int)
	for _, r := range requests {
		if r.err != nil {
			t.Fatal(r.err)
		}
		answers[r.answer[0]]++
	}
	if diff := cmp.Diff(map[any]int{"ok": callBytes / unitBytes, "later": callBytes / unitBytes}, answers); diff != "" {
		t.Error(diff)
	}
}

// storeOf is a store whose lanes hold these, with new ids where they have none.
func storeOf(t *testing.T, entries ...event.Envelope) eventstore.Store {
	t.Helper()
	store := memory.Open()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Stop(context.Background()) })
	for i := range entries {
		e := entries[i]
		if e.Category == "" {
			e = event.Envelope{ID: event.NewID(), Type: "order.placed", Category: orders.Category, Key: orders.Key}
		}
		if _, err := store.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{e}}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// counting counts what is read from a store, or refuses it.
type counting struct {
	eventstore.Store
	err error

	mu sync.Mutex
	n  int
}

func (c *counting) ReadLane(ctx context.Context, lane event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	return c.Store.ReadLane(ctx, lane, after, limit)
}

func (c *counting) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
