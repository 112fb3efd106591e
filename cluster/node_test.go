package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker, a store, and the nodes that share them.
type world struct {
	t      *testing.T
	server *brokertest.Server
	store  eventstore.Store
	id     eventstore.Identity
	gossip func() transport.Gossip // nil = none
	names  []string                // of subscribers, beside shipping
	counts []string                // categories of which the keys are counted, beside order
	mu     struct {
		sync.Mutex
		relaying map[event.Part][]string // nodes that hold a part at this moment
		twice    []string                // what was held by two at once
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, server: brokertest.NewServer(brokertest.Config{RealTime: true}), store: memory.Open()}
	w.mu.relaying = map[event.Part][]string{}
	id, err := w.store.Start(t.Context(), eventstore.StartOptions{Relayed: true})
	if err != nil {
		t.Fatal(err)
	}
	w.id = id
	t.Cleanup(func() {
		if err := w.store.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if len(w.mu.twice) > 0 {
			t.Errorf("held by two at once: %v", w.mu.twice)
		}
	})
	return w
}

// fake is a node with units that are no more than names.
type fake struct {
	*cluster.Node
	w      *world
	name   string
	broker *brokertest.Broker
	hangs  atomic.Bool // the next mark, until its context ends
	slow   atomic.Bool // the end of a relay takes ten seconds
	mu     struct {
		sync.Mutex
		live   map[event.Unit]bool
		woken  []event.Unit
		handed []event.Unit
		looked map[event.Part]int
		parts  map[event.Part]bool
		many   map[string][]int // live keys, of each warning

		wakes, lost   []string
		beats, failed int
		counted       map[string]int
	}
}

// join starts a node.
func (w *world) join(name string) *fake {
	w.t.Helper()
	f := &fake{w: w, name: name, broker: w.server.Node(name)}
	f.mu.live, f.mu.looked, f.mu.parts = map[event.Unit]bool{}, map[event.Part]int{}, map[event.Part]bool{}
	f.mu.many, f.mu.counted = map[string][]int{}, map[string]int{}
	f.broker.Bind(w.store, w.id)
	if err := f.broker.Connect(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	var gossip transport.Gossip
	if w.gossip != nil {
		gossip = w.gossip()
	}
	node, err := cluster.New(cluster.Config{
		Gossip: gossip,
		Self:   transport.Member{ID: f.broker.OwnerID(), Node: name, StoreID: w.id.StoreID, Names: append([]string{"shipping"}, w.names...)},
		Broker: marking{f.broker, f}, Port: f.broker.Port(), Store: w.store, Units: f, Relay: f, Categories: append([]string{"order"}, w.counts...), MaxPartitions: 3,
		Observer: cluster.Observer{
			ManyPartitions: func(category string, live int) {
				f.note(func() { f.mu.many[category] = append(f.mu.many[category], live) })
			},
			Keys:     func(category string, live int) { f.note(func() { f.mu.counted[category] = live }) },
			Woken:    func(name string) { f.note(func() { f.mu.wakes = append(f.mu.wakes, name) }) },
			PartLost: func(_ event.Part, why string) { f.note(func() { f.mu.lost = append(f.mu.lost, why) }) },
			Beat: func(err error) {
				f.note(func() {
					if f.mu.beats++; err != nil {
						f.mu.failed++
					}
				})
			},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	f.Node = node
	err = f.broker.Start(w.t.Context(), transport.Node{
		Subscriptions: []transport.Subscription{{Name: "shipping", Category: "order"}, {Name: event.PartName}}, Wake: node.Wake, Rescan: node.Rescan,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := node.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (f *fake) leave() {
	f.w.t.Helper()
	ctx := context.WithoutCancel(f.w.t.Context())
	if err := errors.Join(f.Node.Drain(ctx), f.Node.Stop(ctx), f.broker.Stop(ctx)); err != nil {
		f.w.t.Errorf("%s leaves: %v", f.name, err)
	}
}

func (f *fake) Live(u event.Unit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.live[u]
}

func (f *fake) Wake(u event.Unit) { f.note(func() { f.mu.woken = append(f.mu.woken, u) }) }

func (f *fake) HandOver(u event.Unit) { f.note(func() { f.mu.handed = append(f.mu.handed, u) }) }

func (f *fake) Look(p event.Part) { f.note(func() { f.mu.looked[p]++ }) }

func (f *fake) note(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

func (f *fake) Hold(p event.Part, _ event.Generation) {
	f.note(func() { f.mu.parts[p] = true })
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.mu.relaying[p] = append(f.w.mu.relaying[p], f.name)
	if len(f.w.mu.relaying[p]) > 1 {
		f.w.mu.twice = append(f.w.mu.twice, fmt.Sprint(p, f.w.mu.relaying[p]))
	}
}

func (f *fake) Drop(p event.Part) {
	if f.slow.Load() {
		ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		<-ctx.Done()
	}
	f.note(func() { delete(f.mu.parts, p) })
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.mu.relaying[p] = slices.DeleteFunc(f.w.mu.relaying[p], func(name string) bool { return name == f.name })
}

// take gives what was woken, each once, and forgets it.
func (f *fake) take() []event.Unit {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := map[event.Unit]bool{}
	for _, u := range f.mu.woken {
		set[u] = true
	}
	f.mu.woken = nil
	all := slices.Collect(maps.Keys(set))
	slices.SortFunc(all, func(a, b event.Unit) int { return cmpKeys(a, b) })
	return all
}

func cmpKeys(a, b event.Unit) int {
	switch {
	case a.Key < b.Key:
		return -1
	case a.Key > b.Key:
		return 1
	}
	return 0
}

func (f *fake) partCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.parts)
}

func (f *fake) handed() []event.Unit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.handed)
}

func (f *fake) looks(p event.Part) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.looked[p]
}

func (f *fake) warned(category string) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.many[category])
}

// pass lets time pass, and everything that is due happen.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// late refuses a call after a while: the broker hangs, for whoever asks it. A heartbeat is 3 s.
func late(d time.Duration) brokertest.Fault {
	timer := time.NewTimer(d)
	<-timer.C
	return brokertest.Refused
}

// unitSet is a set for what nodes do at the same time.
type unitSet struct{ m sync.Map }

// add reports whether it was not among them.
func (s *unitSet) add(u event.Unit) bool {
	_, was := s.m.LoadOrStore(u, true)
	return !was
}

func (s *unitSet) count() (n int) {
	s.m.Range(func(any, any) bool { n++; return true })
	return n
}

// mark gives units work, as a publisher does.
func (w *world) mark(by *fake, units ...event.Unit) {
	w.t.Helper()
	if err := by.broker.Mark(w.t.Context(), units); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// owned gives units that a node ranks first for.
func (f *fake) owned(n int) []event.Unit {
	var all []event.Unit
	for i := 0; len(all) < n; i++ {
		if f.Placement().First(unit(i)) == f.broker.OwnerID() {
			all = append(all, unit(i))
		}
	}
	slices.SortFunc(all, cmpKeys)
	return all
}

func TestAllPartsAreHeldAndSharedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(10 * time.Millisecond)
		if n := a.partCount(); n != event.Parts {
			t.Errorf("the only node holds %d parts", n)
		}
		b, c := w.join("b"), w.join("c")
		pass(30 * time.Second)
		if n := a.partCount() + b.partCount() + c.partCount(); n != event.Parts {
			t.Errorf("%d parts are held", n)
		}
		for _, f := range []*fake{a, b, c} {
			if n := f.partCount(); n < 10 || n > 35 {
				t.Errorf("%s holds %d of %d parts", f.name, n, event.Parts)
			}
		}
		b.leave()
		pass(10 * time.Second)
		if n := a.partCount() + c.partCount(); n != event.Parts {
			t.Errorf("after one left %d parts are held", n)
		}
		a.leave()
		c.leave()
	})
}

func TestTheFirstGoesForWhatIsMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(5 * time.Second) // both have seen the other: the list is read once in a heartbeat
		units := a.owned(5)
		a.take()
		b.take()
		w.mark(b, units...)
		if diff := cmp.Diff(units, a.take()); diff != "" {
			t.Error(diff)
		}
		if got := b.take(); len(got) > 0 {
			t.Errorf("the other goes for %v at once", got)
		}
		pass(time.Second)
		if diff := cmp.Diff(units, b.take()); diff != "" { // nobody holds them: the first does not come
			t.Error(diff)
		}
		a.leave()
		b.leave()
	})
}

func TestWhatOneHoldsNobodyGoesForUntilItLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(time.Second)
		u := a.owned(1)[0]
		if got, err := b.broker.Port().Acquire(t.Context(), u, 0); err != nil || !got.Granted {
			t.Fatal(got, err)
		}
		began := time.Now()
		w.mark(b, u)
		pass(14*time.Second + 900*time.Millisecond)
		if got := a.take(); len(got) > 0 {
			t.Errorf("goes for %v", got)
		}
		for len(a.take()) == 0 {
			pass(10 * time.Millisecond)
			if time.Since(began) > 20*time.Second {
				t.Fatal("never goes for it")
			}
		}
		if took := time.Since(began); took > 15*time.Second+50*time.Millisecond {
			t.Errorf("goes for it %v after it lapsed", took-15*time.Second)
		}
		a.leave()
		b.leave()
	})
}

func TestLostWakesAreFoundWithinAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(time.Second)
		w.server.Deafen(true)
		at, idle := unit(1), unit(2)
		a.note(func() { a.mu.live[idle] = true }) // believes to have nothing to do
		w.mark(a, at, idle)
		if got := a.take(); len(got) > 0 {
			t.Fatalf("%v were woken by wakes that were lost", got)
		}
		pass(3 * time.Second)
		if diff := cmp.Diff([]event.Unit{at, idle}, a.take()); diff != "" {
			t.Error(diff)
		}
		a.leave()
	})
}

func TestANodeThatCannotRecoverAUnitStandsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(time.Second)
		u := a.owned(1)[0]
		a.take()
		b.take()
		a.Unfit(u)
		w.mark(a, u)
		if diff := cmp.Diff([]event.Unit(nil), a.take()); diff != "" {
			t.Error(diff)
		}
		pass(400 * time.Millisecond) // b does not know that a stands back, and gives it its grace
		if diff := cmp.Diff([]event.Unit{u}, b.take()); diff != "" {
			t.Error(diff)
		}
		a.leave()
		b.leave()
	})
}

// TestAUnitThatWaitsForANewerProgramIsTriedAtGrowingDistances: two nodes that do not know its next event rank themselves last, each in the belief that the other one
// goes first. A node that comes, which may know it, goes for it at once.
func TestAUnitThatWaitsForANewerProgramIsTriedAtGrowingDistances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(time.Second)
		var u event.Unit // that the one to come will rank first for
		names := []string{"shipping"}
		later := cluster.NewPlacement([]transport.Member{{ID: "a", Node: "a", Names: names}, {ID: "b", Node: "b", Names: names}, {ID: "c", Node: "c", Names: names}})
		for i := 0; later.First(u) != "c"; i++ {
			u = unit(i)
		}
		w.mark(a, u)
		tries := 0
		for range 120 {
			pass(time.Second)
			for _, f := range []*fake{a, b} {
				for range f.take() {
					tries++
					f.Newer(u)
				}
			}
		}
		if tries < 4 || tries > 16 { // after 0, 1, 3, 7, 15, 31, 63, 123 s by each, and what a scan comes later
			t.Errorf("tried %d times in two minutes", tries)
		}
		c := w.join("c")
		pass(5 * time.Second)
		if diff := cmp.Diff([]event.Unit{u}, c.take()); diff != "" {
			t.Error(diff)
		}
		for _, f := range []*fake{a, b, c} {
			f.leave()
		}
	})
}

// A store that was away has every node stand back, and then all of them for as long as each was told to.
func TestNodesThatCouldNotRecoverAUnitGoForItWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := []*fake{w.join("a"), w.join("b"), w.join("c")}
		pass(10 * time.Second)
		u := all[0].owned(1)[0]
		w.mark(all[0], u)
		for range 8 { // for a minute, in the end
			for _, f := range all {
				f.Unfit(u)
			}
		}
		for _, f := range all {
			f.take()
		}
		pass(10 * time.Second)
		for _, f := range all {
			if got := f.take(); len(got) > 0 {
				t.Fatalf("%s goes for %v, so there is nothing to show", f.name, got)
			}
		}
		for _, f := range all {
			f.Refit()
		}
		pass(time.Second)
		if got := all[0].take(); len(got) == 0 {
			t.Error("nobody goes for a unit although the store is back")
		}
		for _, f := range all {
			f.leave()
		}
	})
}

func TestTheHolderOfAPartIsToldToLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(30 * time.Second)
		var all []event.Part
		for i := range event.Parts {
			all = append(all, event.Part(i))
		}
		a.Tell(all)
		synctest.Wait()
		for i := range event.Parts {
			p := event.Part(i)
			if n := a.looks(p) + b.looks(p); n != 1 {
				t.Errorf("part %d was looked at %d times", p, n)
			}
		}
		a.leave()
		b.leave()
	})
}

func TestUnitsThatWaitForAPersonAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		w.mark(a, unit(1))
		a.Rested(unit(1), true)
		pass(4 * time.Second)
		a.take()
		pass(10 * time.Second)
		if got := a.take(); len(got) > 0 {
			t.Errorf("goes for %v", got)
		}
		a.Rested(unit(1), false)
		pass(4 * time.Second)
		if diff := cmp.Diff([]event.Unit{unit(1)}, a.take()); diff != "" {
			t.Error(diff)
		}
		a.leave()
	})
}

// Defect P18: nobody says that there are very many live keys, until the memory of the broker is full.
func TestManyLiveKeysAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		live := func(from, to int) {
			for i := from; i <= to; i++ {
				got := a.broker.Append(t.Context(), []transport.Append{{
					Lane: event.LaneRef{Category: "order", Key: fmt.Sprint("k-", i)}, Start: true, Subscribers: []string{"shipping"},
					Entries: []event.Envelope{{ID: fmt.Sprint(i), Type: "placed", Category: "order", Key: fmt.Sprint("k-", i), Sequence: 1}},
				}})
				if got[0].Err != nil {
					t.Fatal(got[0].Err)
				}
			}
		}
		warned := func(when string, want ...int) {
			t.Helper()
			pass(62 * time.Second) // it counts once a minute
			if diff := cmp.Diff(want, a.warned("order"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: warnings, with the keys that were live (-want +got):\n%s", when, diff)
			}
		}
		live(1, 3)
		warned("as many as may be")
		live(4, 4)
		warned("one more", 4)
		live(5, 9)
		warned("still more, which is no news", 4)
		for i := 3; i <= 9; i++ {
			if err := a.broker.Retire(t.Context(), []transport.Retire{{Lane: event.LaneRef{Category: "order", Key: fmt.Sprint("k-", i)}, Through: 1}})[0]; err != nil {
				t.Fatal(err)
			}
		}
		warned("few again", 4)
		live(3, 6)
		warned("many again", 4, 6)
		a.leave()
	})
}
