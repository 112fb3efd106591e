package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

func ids(first, last int) []string {
	var all []string
	for n := first; n <= last; n++ {
		all = append(all, fmt.Sprintf("%d-0", n))
	}
	return all
}

func (w *scene) holds(t *testing.T, lane event.LaneRef, first, last int) {
	t.Helper()
	if diff := cmp.Diff(ids(first, last), w.sequences(t, lane)); diff != "" {
		t.Errorf("the stream of %s (-want +got):\n%s", lane, diff)
	}
}

func answered(t *testing.T, got transport.Appended, outcome transport.AppendOutcome, newest event.Sequence) {
	t.Helper()
	if got.Err != nil || got.Outcome != outcome || got.Newest != newest {
		t.Errorf("got %v, newest %d, %v; want %v, newest %d", got.Outcome, got.Newest, got.Err, outcome, newest)
	}
}

// Defect P1: an outbox whose rows overtake one another puts a wrong order into the stream.
func TestP1ARunThatOvertakesAnotherIsAGap(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 1, 2)
	answered(t, publish(t, tr, orders, 4, 4), transport.AppendGap, 2)
	published(t, tr, orders, 3, 3)
	published(t, tr, orders, 4, 4)
	w.holds(t, orders, 1, 4)
}

// A flush, and then a publisher that was frozen with 12 in its hands: what it brings must not make 10 and 11 look like duplicates.
func TestAfterAFlushALateRunSwallowsNothing(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 8, 11)
	w.forget(t)
	late := tr.Append(t.Context(), []transport.Append{{Lane: orders, Entries: entries(orders, 12, 12)}})[0]
	answered(t, late, transport.AppendEmpty, 0)
	published(t, tr, orders, 10, 11)
	published(t, tr, orders, 12, 12)
	w.holds(t, orders, 10, 12)
}

// Scripts that the server does not know any more, between two calls: the second must not go without the first.
func TestForgottenScriptsLoseNothing(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*scene{"standalone": newScene(t, redisserver.Options{}), "cluster": newClusterScene(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := w.connected(t)
			lanes := make([]event.LaneRef, 300) // two calls, or three hundred
			for i := range lanes {
				lanes[i] = event.LaneRef{Category: "order", Key: fmt.Sprintf("k-%d", i)}
			}
			for seq := event.Sequence(1); seq <= 3; seq++ {
				var runs []transport.Append
				for _, lane := range lanes {
					runs = append(runs, transport.Append{Lane: lane, Entries: entries(lane, seq, seq), Start: seq == 1, Subscribers: []string{"shipping"}})
				}
				w.do(t, "SCRIPT", "FLUSH")
				for _, got := range tr.Append(t.Context(), runs) {
					answered(t, got, transport.AppendOK, seq)
				}
			}
			w.holds(t, lanes[0], 1, 3)
			w.holds(t, lanes[299], 1, 3)
		})
	}
}

func TestAStreamThatIsGoneIsEmptyWhateverIsWrittenBesideIt(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 5, 9)
	w.do(t, "DEL", w.stream(t, orders))
	answered(t, tr.Append(t.Context(), []transport.Append{{Lane: orders, Entries: entries(orders, 10, 10)}})[0], transport.AppendEmpty, 0)
	published(t, tr, orders, 3, 4) // below what it once had
	w.holds(t, orders, 3, 4)
}

func TestAStreamWithoutEntriesBeginsBelowWhatItOnceHad(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 5, 9)
	w.do(t, "XTRIM", w.stream(t, orders), "MAXLEN", "0")
	answered(t, tr.Append(t.Context(), []transport.Append{{Lane: orders}})[0], transport.AppendEmpty, 0)
	published(t, tr, orders, 3, 4)
	w.holds(t, orders, 3, 4)
}

func TestTheNewestStringIsMadeAnewFromTheStream(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 1, 3)
	w.do(t, "DEL", w.stream(t, orders)+":__newest__")
	got := tr.Append(t.Context(), []transport.Append{{Lane: orders}})[0]
	answered(t, got, transport.AppendOK, 3)
	if want := "order:k-1#3"; got.NewestID != want {
		t.Errorf("newest is %q, want %q", got.NewestID, want)
	}
	w.do(t, "SET", w.stream(t, orders)+":__newest__", "2 order:k-1#2") // behind its stream
	answered(t, publish(t, tr, orders, 3, 4), transport.AppendDup, 3)
	published(t, tr, orders, 3, 4)
	w.holds(t, orders, 1, 4)
}

// Defect P14: streams that are never trimmed.
func TestP14AStreamKeepsAtMostMaxAheadReadOrNot(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.cfg.MaxAhead = 10
	tr := w.connected(t)
	published(t, tr, orders, 1, 8, "shipping")
	published(t, tr, orders, 9, 25, "shipping")
	w.holds(t, orders, 16, 25)
	published(t, tr, orders, 26, 26, "shipping")
	w.holds(t, orders, 17, 26)
}

func TestALaneThatCannotBeReadFailsAlone(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*scene{"standalone": newScene(t, redisserver.Options{}), "cluster": newClusterScene(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := w.connected(t)
			byHand, wrong, fine := event.LaneRef{Category: "order", Key: "by-hand"}, event.LaneRef{Category: "order", Key: "wrong"}, orders
			w.do(t, "XADD", w.stream(t, byHand), "7-3", "a", "b")
			w.do(t, "SET", w.stream(t, wrong), "x")
			var runs []transport.Append
			for _, lane := range []event.LaneRef{byHand, wrong, {Category: "order", Key: "a:b"}, fine} {
				runs = append(runs, transport.Append{Lane: lane, Entries: entries(lane, 1, 1), Start: true})
			}
			got := tr.Append(t.Context(), runs)
			for i, want := range []string{"written by hand", "WRONGTYPE", "contains ':'"} {
				if got[i].Err == nil || !strings.Contains(got[i].Err.Error(), want) {
					t.Errorf("lane %d: got %+v, want an error about %q", i, got[i], want)
				}
			}
			answered(t, got[3], transport.AppendOK, 1)
			trims := tr.Trim(t.Context(), []transport.Trim{{Lane: wrong, Through: 1}, {Lane: fine, Through: 1}})
			if trims[0] == nil || trims[1] != nil {
				t.Errorf("trim: got %v", trims)
			}
		})
	}
}

// A server that is full: nothing is published, and everything else goes on, or nobody could ever make room.
func TestAFullServerTakesNoEntriesAndEverythingElse(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takesEverythingButEntries(t, newScene(t, redisserver.Options{Cluster: cluster}))
		})
	}
}

func takesEverythingButEntries(t *testing.T, w *scene) {
	t.Helper()
	tr := w.connected(t)
	published(t, tr, orders, 1, 5)
	other := event.LaneRef{Category: "order", Key: "k-2"}
	published(t, tr, other, 1, 1)
	w.fill(t, true)
	ctx := t.Context()
	got := tr.Append(ctx, []transport.Append{
		{Lane: orders, Entries: entries(orders, 6, 6), Subscribers: []string{"shipping"}},
		{Lane: other, Subscribers: []string{"shipping"}},
	})
	if !errors.Is(got[0].Err, transport.ErrFull) {
		t.Errorf("append: got %v, want ErrFull", got[0].Err)
	}
	answered(t, got[1], transport.AppendOK, 1)
	if keys, _, err := tr.Busy(ctx, "shipping", 0); err != nil || len(keys) != 1 || keys[0] != "k-2" {
		t.Errorf("busy: %q, %v; want the lane that brought nothing", keys, err)
	}
	for what, err := range map[string]error{
		"trim": tr.Trim(ctx, []transport.Trim{{Lane: orders, Through: 3}})[0], "retire": tr.Retire(ctx, []transport.Retire{{Lane: other, Through: 1}})[0],
		"mark": tr.Mark(ctx, []event.Unit{shipping}), "halted": tr.Halted(ctx, shipping, true), "unregister": tr.Unregister(ctx, "shipping"),
		"declare": tr.Declare(ctx, transport.Declared{StoreID: "here", Categories: []transport.Produced{{Category: "order", StoreID: "here"}}}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := tr.Beat(ctx, transport.Member{ID: tr.OwnerID(), StoreID: "here"}, 1e9); err != nil {
		t.Errorf("beat: %v", err)
	}
	w.forget(t) // the birth can be written
	if another := w.node(t, "here", nil); another.Connect(ctx) != nil {
		t.Error("a node cannot connect")
	}
	w.fill(t, false)
	published(t, tr, orders, 6, 6)
}

func TestARunLargerThanACallGoesInOne(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 1, 3000, "shipping")
	if n := len(w.sequences(t, orders)); n != 3000 {
		t.Errorf("%d entries", n)
	}
}

func TestAppendsNobodyConnectedForAreErrors(t *testing.T) {
	t.Parallel()
	for _, got := range redis.New(redis.Config{}).Append(t.Context(), make([]transport.Append, 3)) {
		if got.Err == nil {
			t.Errorf("got %+v", got)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	server := redis.SharedServer(b, false)
	tr := redis.New(redis.Config{URL: server.URL(), Namespace: "bench"})
	if err := tr.Connect(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tr.Stop(b.Context()) })
	const lanes = 256
	data := []byte(strings.Repeat("x", 200))
	seq := event.Sequence(0)
	for b.Loop() {
		seq++
		runs := make([]transport.Append, lanes)
		for i := range runs {
			lane := event.LaneRef{Category: "order", Key: fmt.Sprintf("k-%d", i)}
			runs[i] = transport.Append{Lane: lane, Start: seq == 1, Subscribers: []string{"shipping", "billing"},
				Entries: []event.Envelope{{ID: event.NewID(), Type: "order.placed", Version: 1, Encoding: event.JSON, Data: data, Category: "order", Key: lane.Key, Sequence: seq, StoreID: "here"}}}
		}
		for _, got := range tr.Append(b.Context(), runs) {
			if got.Err != nil || got.Outcome != transport.AppendOK {
				b.Fatalf("%+v", got)
			}
		}
	}
	b.ReportMetric(float64(b.N)*lanes/b.Elapsed().Seconds(), "entries/s")
	if stats, err := server.Info(b.Context(), "commandstats"); err == nil {
		b.Log(stats["cmdstat_evalsha"], stats["cmdstat_xadd"])
	}
}

// A reply that was lost: it is not known what happened, and asking again settles it.
func TestAnAppendWhoseReplyWasLostIsAskedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		direct := w.connected(t)
		published(t, direct, orders, 1, 1)
		line := proxy.Run(t, w.server.Addr())
		w.cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, line.Addr())
		}
		tr := w.connected(t)
		run := transport.Append{Lane: orders, Entries: entries(orders, 2, 3), Subscribers: []string{"shipping"}}
		lost := line.LoseReply("order:k-1#3", 0, false)
		got := tr.Append(t.Context(), []transport.Append{run})[0]
		if got.Err == nil || errors.Is(got.Err, transport.ErrFull) {
			t.Fatalf("got %+v, want an error that leaves it open", got)
		}
		<-lost
		w.holds(t, orders, 1, 3)
		answered(t, tr.Append(t.Context(), []transport.Append{run})[0], transport.AppendOK, 3)
		w.holds(t, orders, 1, 3)
	})
}
