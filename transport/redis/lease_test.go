package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// TestALeaseWrittenByHandIsTolerated: whoever holds it is named if the lease says so.
func TestALeaseWrittenByHandIsTolerated(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	for lease, want := range map[string]partitions.Acquired{
		"worker-7:1":                       {Holder: "worker-7", HeldAt: 1},
		"a:b:7":                            {Holder: "a:b", HeldAt: 7},
		"worker-7":                         {},
		":7":                               {},
		"":                                 {},
		"worker-7:18446744073709551616000": {},
	} {
		w.do("set", w.lease(shipping), lease, "px", 10_000)
		got, err := node.Port().Acquire(t.Context(), shipping, 0)
		if left := got.HeldFor; left <= 0 || left > 10*time.Second {
			t.Errorf("%q: held for %s", lease, left)
		}
		if got.HeldFor = 0; got != want || err != nil {
			t.Errorf("%q: got %+v, %v, want %+v", lease, got, err, want)
		}
	}
}

func TestFreshRedisGrantsNothingForOneTTL(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.forget()
	for _, floor := range []event.Generation{0, 5} { // units that were never raised, too: an earlier grant may be on its way
		got, err := node.Port().Acquire(t.Context(), shipping, floor)
		if diff := cmp.Diff(partitions.Acquired{Forgot: true}, got); diff != "" || err != nil {
			t.Errorf("floor %d: %v\n%s", floor, err, diff)
		}
	}
	const busy = 6 * time.Second // what a busy machine may take for this
	w.pass(w.traits().TTL - busy)
	if got, err := node.Port().Acquire(t.Context(), shipping, 0); err != nil || !got.Forgot {
		t.Errorf("before one TTL is over: %+v, %v", got, err)
	}
	w.pass(busy + time.Second)
	w.acquire(node, shipping)
}

// TestAcquireSentBeforeALossIsRefused: it reaches a server that lost everything since, and that another node had begin anew, or nobody.
func TestAcquireSentBeforeALossIsRefused(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	c := node.conn.Load()
	tenure, err := c.port.newTenure(partitions.Held{Unit: shipping})
	if err != nil {
		t.Fatal(err)
	}
	sent := &call{script: scriptAcquire}
	packAcquire(c.port, sent, []*request{{tenure: tenure, asked: event.Generation(0)}})
	run := func() []any {
		reply, err := c.servers.run(t.Context(), onWork, sent)
		if err != nil {
			t.Fatal(err)
		}
		return reply.([]any)
	}
	w.forget()
	if diff := cmp.Diff([]any{"forgot", int64(-1)}, run()); diff != "" {
		t.Errorf("nobody noticed: %s", diff)
	}
	if err := node.checkBirth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(); got[0] != "forgot" || got[1].(int64) <= 0 {
		t.Errorf("born anew: %v", got)
	}
	if keys := w.keys(); len(keys) != 1 {
		t.Errorf("it left %v", keys)
	}
}

func TestBirthOfAnotherServerOrOfTheFutureCountsAsForgotten(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	birth := node.conn.Load().birthKey(node.conn.Load().servers.of(""))
	was := w.do("get", birth).(string)
	id, _, _ := strings.Cut(was, " ")
	for _, other := range []string{strings.Repeat("0", 40) + " 1 x", fmt.Sprintf("%s %d x", id, time.Now().Add(time.Hour).UnixMilli()), "nonsense"} {
		w.do("set", birth, other)
		if got, err := node.Port().Acquire(t.Context(), shipping, 0); err != nil || !got.Forgot {
			t.Errorf("%q: %+v, %v", other, got, err)
		}
		if now := w.do("get", birth).(string); now == other {
			t.Errorf("%q: is still there, so nothing would ever be granted", other)
		}
	}
}

func TestUncleanIsWhatAnotherOwnerDidNotRelease(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	b := w.node()
	unclean := func(node *Transport) bool {
		t.Helper()
		got, err := node.Port().Acquire(t.Context(), shipping, 0)
		if err != nil || !got.Granted {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Unclean
	}
	if unclean(a) {
		t.Error("nobody had it before")
	}
	if unclean(a) {
		t.Error("its own lease was superseded")
	}
	w.pass(w.traits().TTL)
	if unclean(a) {
		t.Error("its own lease lapsed: it has not died of it")
	}
	w.pass(w.traits().TTL)
	if !unclean(b) {
		t.Error("another's lapsed: want unclean")
	}
	w.release(b, partitions.Held{Unit: shipping, Generation: 4}, false)
	if unclean(a) {
		t.Error("released")
	}
}

// TestGenerationOutlivesItsRelease: and is kept no longer than RetireAfter then, or keys that come and go would leave one each for ever.
func TestGenerationOutlivesItsRelease(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	h := w.acquire(node, shipping)
	w.release(node, h, true)
	w.keptFor(w.counter(shipping), time.Hour-time.Minute, time.Hour)
	if got := w.acquire(node, shipping); got.Generation != h.Generation+1 {
		t.Errorf("granted %d after %d", got.Generation, h.Generation)
	}
}

// keptFor checks when a key expires.
func (w *world) keptFor(key string, least, most time.Duration) {
	w.Helper()
	if ttl := w.client.PTTL(w.Context(), key).Val(); ttl < least || ttl > most {
		w.Errorf("%s expires in %v, want %v to %v", key, ttl, least, most)
	}
}

// TestGenerationOfALapsedLeaseExpires: likewise where nobody came back to release it. However long a unit was held and renewed, its generation outlives the
// lease by RetireAfter, for it tells how the owner ended, and by little more.
func TestGenerationOfALapsedLeaseExpires(t *testing.T) {
	t.Parallel()
	const ttl, retireAfter = 15 * time.Second, 40 * time.Second
	w, node := newWorld(t, sharedRedis(t, false), Config{TTL: ttl, RetireAfter: retireAfter})
	h := w.acquire(node, shipping)
	tenure, err := node.conn.Load().port.tenure(h)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		const step = ttl / 5
		w.pass(step)
		tenure.kept.Add(-int64(step)) // the node's own clock
		if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
			t.Fatal(err)
		}
		w.keptFor(w.counter(shipping), ttl+retireAfter-time.Second, ttl+retireAfter*5/4)
	}
	w.pass(ttl + retireAfter - 2*time.Second)
	if got, err := w.node().Port().Acquire(t.Context(), shipping, 0); err != nil || got.Generation != h.Generation+1 || !got.Unclean {
		t.Errorf("within the time: %+v, %v; want it above %d, unclean", got, err, h.Generation)
	}
	w.pass(ttl + retireAfter*5/4)
	if n := w.do("exists", w.counter(shipping)); n != int64(0) {
		t.Error("the generation key is still there")
	}
	if got := w.acquire(node, shipping); got.Generation != 1 {
		t.Errorf("granted %d, and nothing is known: the store is to say what is above all that were granted", got.Generation)
	}
	if got, err := node.Port().Acquire(t.Context(), shipping, 7); err != nil || got.Generation != 8 {
		t.Errorf("above what the store says: %+v, %v", got, err)
	}
}

// TestRenewalsSayNowAndThenHowLongGenerationsAreKept: a generation key is not touched each time, and never for whoever does not hold the unit.
func TestRenewalsSayNowAndThenHowLongGenerationsAreKept(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	h := w.acquire(node, shipping)
	renew := func() error { return node.Port().Renew(t.Context(), []partitions.Held{h})[0] }
	w.do("pexpire", w.counter(shipping), 1_000_000)
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	w.keptFor(w.counter(shipping), 0, 1000*time.Second)
	tenure, err := node.conn.Load().port.tenure(h)
	if err != nil {
		t.Fatal(err)
	}
	tenure.kept.Add(-int64(time.Hour / keepsPer))
	w.do("set", w.lease(shipping), "another:9", "px", 10_000)
	if err := renew(); !errors.Is(err, partitions.ErrFenced) {
		t.Errorf("another has it: %v", err)
	}
	w.keptFor(w.counter(shipping), 0, 1000*time.Second)
}

func TestGenerationGoesAboveALeaseWhoseCounterIsGone(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	w.acquire(node, shipping)
	first := w.acquire(node, shipping)
	w.do("del", w.counter(shipping))
	if got := w.acquire(node, shipping); got.Generation <= first.Generation {
		t.Errorf("granted %d after %d", got.Generation, first.Generation)
	}
}

func TestReleaseTwiceIsReleaseOnce(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	h := w.acquire(node, shipping)
	w.release(node, h, false)
	w.release(node, h, false) // the reply to the first one may have been lost
	w.release(node, h, true)
	w.acquire(w.node(), shipping)
	if err := node.Port().Release(t.Context(), h, false); !errors.Is(err, partitions.ErrFenced) {
		t.Errorf("another has it: %v", err)
	}
}

// TestStaleOwnerChangesNothing: every script that mutates checks the owner first, or a stalled owner that resumes steals the head of the new one; and so for groups.
func TestStaleOwnerChangesNothing(t *testing.T) {
	t.Parallel()
	w, a := setup(t)
	w.publish(orders, 5, "shipping")
	stale := w.acquire(a, shipping)
	w.fetch(a, stale, 2, place(orders, 0), place(late, 0))
	b := w.node()
	w.pass(w.traits().TTL)
	mine := w.acquire(b, shipping)
	if got := w.fetch(b, mine, 2, place(orders, 0), place(late, 0)); sequences(got.Entries) != run(orders, 1, 2) {
		t.Errorf("the new owner reads %s", sequences(got.Entries))
	}
	w.add(late, []event.Envelope{{Category: "order", Key: "k-1", Lane: event.Backfill, Sequence: 1}})
	before := w.snapshot()
	for name, act := range map[string]func() error{
		"renew":           func() error { return a.Port().Renew(t.Context(), []partitions.Held{stale})[0] },
		"release":         func() error { return a.Port().Release(t.Context(), stale, false) },
		"release if idle": func() error { return a.Port().Release(t.Context(), stale, true) },
		"fetch": func() error {
			_, err := a.Port().Fetch(t.Context(), stale, []event.Position{place(orders, 2), place(late, 0)}, 1)
			return err
		},
		"advance": func() error {
			_, err := a.Port().Advance(t.Context(), stale, []event.Position{place(orders, 2), place(late, 0)}, 1)
			return err
		},
		"advance over everything": func() error {
			_, err := a.Port().Advance(t.Context(), stale, []event.Position{place(orders, 5), place(late, 1)}, 1)
			return err
		},
	} {
		if err := act(); !errors.Is(err, partitions.ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", name, err)
		}
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Errorf("%s changed something:\n%s", name, diff)
		}
	}
}

// snapshot is everything of the world that an owner may change.
func (w *world) snapshot() map[string]string {
	w.Helper()
	all := make(map[string]string)
	for _, key := range w.keys() {
		switch kind := w.do("type", key); kind {
		case "string":
			all[key] = w.do("get", key).(string)
		case "set":
			all[key] = fmt.Sprint(w.do("smembers", key))
		case "stream":
			all[key] = fmt.Sprint(w.do("xrange", key, "-", "+"))
			for _, g := range w.client.XInfoGroups(w.Context(), key).Val() {
				all[key+" "+g.Name] = fmt.Sprint(g.LastDeliveredID, w.do("xpending", key, g.Name), g.Consumers)
			}
		}
	}
	return all
}

// TestOneUnitsErrorFailsNoOther: units that are asked for in one call; defects P11 (one exception ends the pass) and E8.
func TestOneUnitsErrorFailsNoOther(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	p := node.conn.Load().port
	units := make([]*request, 3)
	held := make([]partitions.Held, 3)
	for i := range units {
		u := event.Unit{Name: "shipping", Key: fmt.Sprintf("u-%d", i)}
		w.publish(event.LaneRef{Category: "order", Key: u.Key}, 2, "shipping")
		held[i] = w.acquire(node, u)
	}
	bad := w.stream(event.LaneRef{Category: "order", Key: "u-1"})
	w.do("del", bad)
	w.do("set", bad, "somebody else's")
	for i := range units {
		tenure, err := p.tenure(held[i])
		if err != nil {
			t.Fatal(err)
		}
		r := &reading{above: []event.Position{place(event.LaneRef{Category: "order", Key: held[i].Unit.Key}, 0)}, most: 5}
		if err := p.plan(tenure, r); err != nil {
			t.Fatal(err)
		}
		units[i] = &request{tenure: tenure, asked: r, done: make(chan struct{})}
	}
	p.call(t.Context(), &kindRead, p.pack(&kindRead, units))
	for i, r := range units {
		if i == 1 {
			if r.err == nil || !strings.Contains(r.err.Error(), "WRONGTYPE") || !strings.Contains(r.err.Error(), "shipping/u-1") {
				t.Errorf("the bad one: %v", r.err)
			}
			continue
		}
		_, _, entries, err := r.asked.(*reading).parse(r.answer)
		if r.err != nil || err != nil || len(entries[0]) != 2 {
			t.Errorf("unit %d: %v, %v, %v", i, r.answer, r.err, err)
		}
	}
	w.do("del", w.counter(held[1].Unit))
	w.do("lpush", w.counter(held[1].Unit), "x")
	for i := range units {
		tenure, err := p.newTenure(partitions.Held{Unit: held[i].Unit})
		if err != nil {
			t.Fatal(err)
		}
		units[i] = &request{tenure: tenure, asked: event.Generation(0), done: make(chan struct{})}
	}
	p.call(t.Context(), &kindAcquire, p.pack(&kindAcquire, units))
	for i, r := range units {
		if bad := i == 1; bad != (r.err != nil) {
			t.Errorf("acquire of unit %d: %v", i, r.err)
		}
	}
}

func TestManyLeasesAreRenewedEachForItself(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	held := make([]partitions.Held, 2*renewals+7)
	for i := range held {
		held[i] = partitions.Held{Unit: event.Unit{Name: "shipping", Key: fmt.Sprintf("u-%d", i)}, Generation: 1}
		if i%3 > 0 {
			w.do("set", w.lease(held[i].Unit), node.OwnerID()+":1") // without an end: only the renewal sets one
		}
	}
	for i, err := range node.Port().Renew(t.Context(), held) {
		if i%3 == 0 && !errors.Is(err, partitions.ErrFenced) || i%3 > 0 && err != nil {
			t.Fatalf("lease %d: %v", i, err)
		}
	}
	if ttl := w.client.PTTL(t.Context(), w.lease(held[len(held)-1].Unit)).Val(); ttl <= 0 || ttl > w.traits().TTL {
		t.Errorf("the last one ends in %v", ttl)
	}
}

// TestPartsAreRenewedInOneGo: what they cost a node that has nothing to do does not depend on their number.
func TestPartsAreRenewedInOneGo(t *testing.T) {
	t.Parallel()
	w, node := newWorld(t, redisserver.Run(t, redisserver.Options{}), Config{})
	var held []partitions.Held
	for p := range event.Parts {
		held = append(held, w.acquire(node, event.Unit{Name: event.PartName, Key: "5b1c-" + strconv.Itoa(p)}))
	}
	hash := w.name(event.NameParts, "5b1c", "")
	w.pass(10 * time.Second)
	w.keptFor(hash, time.Hour, time.Hour+15*time.Minute+10*time.Second)
	if err := w.server.ResetCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, err := range node.Port().Renew(t.Context(), held) {
		if err != nil {
			t.Errorf("part %d: %v", i, err)
		}
	}
	calls, err := w.server.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for name, n := range calls {
		if name != "hello" && !strings.HasPrefix(name, "config") { // those of connections
			sum += n
		}
	}
	if sum > 6 { // the script is not known yet: twice
		t.Errorf("%d commands: %v", sum, calls)
	}
	w.keptFor(hash, time.Hour+15*time.Minute, time.Hour+15*time.Minute+15*time.Second)
	w.pass(10 * time.Second)
	left, err := node.Leases(t.Context(), []event.Unit{held[0].Unit, held[63].Unit})
	if err != nil || left[0] <= 0 || left[1] <= 0 {
		t.Errorf("after the renewal they last for %v, %v", left, err)
	}
}

func TestUnitsThatNobodyAsksForAnyMoreAreForgotten(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	p := node.conn.Load().port
	for i := range 3000 {
		tenure, err := p.newTenure(partitions.Held{Unit: event.Unit{Name: "shipping", Key: fmt.Sprint(i)}, Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.begin(tenure)
		tenure.proven.Add(-int64(w.traits().TTL + time.Second))
	}
	if n := p.mu.tenures.Len(); n > 1100 {
		t.Errorf("%d units are remembered", n)
	}
}
