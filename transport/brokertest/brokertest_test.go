package brokertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/partitions/partitionstest"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

func TestBrokerInMemory(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(_ *testing.T, store eventstore.Store, id eventstore.Identity) brokertest.Harness {
		server := brokertest.NewServer(brokertest.Config{Limits: transport.Limits{MaxAhead: 50}})
		node := func(name string, store eventstore.Records, id eventstore.Identity) *brokertest.Broker {
			b := server.Node(name)
			b.Bind(store, id)
			return b
		}
		return brokertest.Harness{
			Broker: node("a", store, id),
			Other:  func(*testing.T) brokertest.Leasing { return node("b", store, id) },
			Foreign: func(_ *testing.T, store eventstore.Store, id string) brokertest.Leasing {
				return node("c", store, eventstore.Identity{StoreID: id})
			},
			Pass:     func(_ *testing.T, d time.Duration) { server.Pass(d) },
			Forget:   func(*testing.T) { server.Forget() },
			Delete:   func(_ *testing.T, lane event.LaneRef) { server.Delete(lane) },
			LoseTail: func(_ *testing.T, lane event.LaneRef, n int) { server.LoseTail(lane, n) },
			Fill:     func(_ *testing.T, full bool) { server.Fill(full) },
			Producer: brokertest.Producer{
				Write: func(_ *testing.T, source, key, id, value string) string {
					return server.Write(source, key, id, transport.SourceField{Name: "value", Value: value})
				},
				Index:   func(_ *testing.T, source, key string) { server.Index(source, key) },
				Text:    func(_ *testing.T, source, key string) { server.Text(source, key) },
				Shorten: func(_ *testing.T, source, key string, n int) { server.Shorten(source, key, n) },
				Drop:    func(_ *testing.T, source, key string) { server.Drop(source, key) },
			},
			MaxAhead: 50,
		}
	})
}

// kept is a store of records alone, from which a test takes what it likes.
type kept struct {
	eventstore.Records
	lanes map[event.LaneRef][]event.Envelope
}

func (k kept) ReadLane(_ context.Context, lane event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	all := k.lanes[lane]
	for len(all) > 0 && all[0].Sequence <= after {
		all = all[1:]
	}
	return append([]event.Envelope(nil), all[:min(limit, len(all))]...), nil
}

func TestPortInMemory(t *testing.T) {
	t.Parallel()
	partitionstest.Run(t, func(t *testing.T) partitionstest.Harness {
		server := brokertest.NewServer(brokertest.Config{})
		store := kept{lanes: make(map[event.LaneRef][]event.Envelope)}
		node := func() *brokertest.Broker {
			b := server.Node("node")
			b.Bind(store, eventstore.Identity{StoreID: "s"})
			if err := b.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			return b
		}
		b := node()
		return partitionstest.Harness{
			Port:  b.Port(),
			Owner: b.OwnerID(),
			Append: func(t *testing.T, lane event.LaneRef, n int) {
				all := store.lanes[lane]
				for range n {
					seq := event.Sequence(len(all) + 1)
					all = append(all, event.Envelope{ID: lane.String() + seq.String(), Type: "x", Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq})
				}
				store.lanes[lane] = all
				if got := b.Append(t.Context(), []transport.Append{{Lane: lane, Entries: all, Start: true}})[0]; got.Err != nil || got.Outcome != transport.AppendOK {
					t.Fatalf("append: %+v", got)
				}
			},
			Purge: func(_ *testing.T, lane event.LaneRef, seq event.Sequence) {
				store.lanes[lane] = store.lanes[lane][seq:]
				server.Cut(lane, seq)
			},
			Other: func(*testing.T) partitions.Port { return node().Port() },
			Pass:  func(_ *testing.T, d time.Duration) { server.Pass(d) },
			Forget: func(t *testing.T) {
				server.Forget()
				for lane, all := range store.lanes {
					if got := b.Append(t.Context(), []transport.Append{{Lane: lane, Entries: all, Start: true}})[0]; got.Err != nil {
						t.Fatalf("append: %+v", got)
					}
				}
			},
		}
	})
}

func TestFaultsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	server := brokertest.NewServer(brokertest.Config{})
	b := server.Node("a")
	if err := b.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	lanes := []event.LaneRef{{Category: "order", Key: "fine"}, {Category: "order", Key: "refused"}, {Category: "order", Key: "lost"}}
	var runs []transport.Append
	for _, l := range lanes {
		runs = append(runs, transport.Append{Lane: l, Start: true, Entries: []event.Envelope{{ID: l.Key, Category: l.Category, Key: l.Key, Sequence: 1}}})
	}
	var calls []brokertest.Call
	server.Break(func(c brokertest.Call) brokertest.Fault {
		calls = append(calls, c)
		return map[string]brokertest.Fault{"refused": brokertest.Refused, "lost": brokertest.Lost}[c.Lane.Key]
	})
	got := b.Append(t.Context(), runs)
	for i, want := range []error{nil, brokertest.ErrRefused, brokertest.ErrLost} {
		if !errors.Is(got[i].Err, want) {
			t.Errorf("%s: got %v, want %v", lanes[i], got[i].Err, want)
		}
	}
	var kept []int
	for _, l := range lanes {
		kept = append(kept, len(server.Stream(l)))
	}
	if diff := cmp.Diff([]int{1, 0, 1}, kept); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if want := (brokertest.Call{Node: "a", Op: "append", Lane: lanes[2]}); len(calls) != 3 || calls[2] != want {
		t.Errorf("calls %+v", calls)
	}
}

func TestRealTimeRunsByItself(t *testing.T) {
	t.Parallel()
	server := brokertest.NewServer(brokertest.Config{RealTime: true, Traits: partitions.Traits{TTL: time.Nanosecond}})
	b := server.Node("a")
	if err := b.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	u := event.Unit{Name: "shipping", Key: "k"}
	got, err := b.Port().Acquire(t.Context(), u, 0)
	if err != nil || !got.Granted {
		t.Fatalf("%+v, %v", got, err)
	}
	for { // the clock of the machine has moved in the end
		left, err := b.Leases(t.Context(), []event.Unit{u})
		if err != nil {
			t.Fatal(err)
		}
		if left[0] == 0 {
			return
		}
	}
}

func TestWakesThatWereLostAreToBeLookedFor(t *testing.T) {
	t.Parallel()
	server := brokertest.NewServer(brokertest.Config{})
	b := server.Node("a")
	if err := b.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var woken, rescans int
	err := b.Start(t.Context(), transport.Node{
		Subscriptions: []transport.Subscription{{Name: "shipping", Category: "order"}},
		Wake:          func(event.Unit) { woken++ },
		Rescan:        func() { rescans++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := func() {
		if err := b.Mark(t.Context(), []event.Unit{{Name: "shipping", Key: "k"}}); err != nil {
			t.Fatal(err)
		}
	}
	server.Deafen(true)
	mark()
	if woken != 0 || rescans != 0 {
		t.Errorf("deaf, and woken %d times, told %d times", woken, rescans)
	}
	server.Deafen(false)
	if rescans != 1 {
		t.Errorf("told %d times to look", rescans)
	}
	if mark(); woken != 1 {
		t.Errorf("woken %d times", woken)
	}
}
