package local_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/transporttest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, func(_ *testing.T, store eventstore.Store, id eventstore.Identity) transporttest.Transport {
		tr := local.New()
		tr.Bind(store, id, event.KeyRules{})
		return tr
	}, transporttest.Owned)
}

// bundle is a transport over a started store, and a node that notes what reaches it.
type bundle struct {
	store     eventstore.Store
	transport *local.Transport
	woken     signal.Signal[event.Unit]
	reported  signal.Signal[error]
}

var subscriptions = []transport.Subscription{
	{Name: "shipping", Category: "order"}, {Name: "billing", Category: "order"}, {Name: "billing", Category: "payment"},
}

// setup binds the transport to what view makes of the store.
func setup(t *testing.T, view func(eventstore.Store) eventstore.Store) *bundle {
	t.Helper()
	b := &bundle{store: memory.Open(), transport: local.New()}
	id, err := b.store.Start(t.Context(), eventstore.StartOptions{Node: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b.woken.Init(t)
	b.reported.Init(t)
	b.transport.Bind(view(b.store), id, event.KeyRules{})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(b.transport.Stop(ctx), b.store.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return b
}

func asItIs(s eventstore.Store) eventstore.Store { return s }

func (b *bundle) start(t *testing.T) {
	t.Helper()
	if err := b.transport.Start(t.Context(), transport.Node{
		Subscriptions: subscriptions, Wake: b.woken.Send, Report: b.reported.Send,
	}); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) commit(t *testing.T, category, key string) []event.Tail {
	t.Helper()
	done, err := b.store.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{
		{ID: category + key, Type: "thing.happened", Category: category, Key: key},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return done.Tails
}

func TestStartWithoutAStoreSaysWhatToDo(t *testing.T) {
	t.Parallel()
	tr := local.New()
	if err := tr.Start(t.Context(), transport.Node{}); err == nil {
		t.Error("started")
	}
	if tr.Port() != nil {
		t.Error("it has a port")
	}
}

func TestCommitWakesEachSubscriberOfEachTailAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, asItIs)
	b.startAndLook(t)
	tails := []event.Tail{
		{Lane: event.LaneRef{Category: "audit", Key: "c-1"}, First: 1, Last: 1},
		{Lane: event.LaneRef{Category: "order", Key: "c-1"}, First: 1, Last: 3},
		{Lane: event.LaneRef{Category: "payment", Key: "c-2", Lane: event.Backfill}, First: 1, Last: 1},
		{Lane: event.LaneRef{Category: "end", Key: ""}, First: 1, Last: 1},
	}
	if err := b.transport.Committed(t.Context(), tails); err != nil {
		t.Fatal(err)
	}
	var got []event.Unit
	for range 3 {
		got = append(got, b.woken.Wait(t))
	}
	want := []event.Unit{{Name: "shipping", Key: "c-1"}, {Name: "billing", Key: "c-1"}, {Name: "billing", Key: "c-2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := b.transport.Committed(t.Context(), tails[1:2]); err != nil {
		t.Fatal(err)
	}
	if u := b.woken.Wait(t); u != want[0] {
		t.Errorf("woke %s besides", u)
	}
}

// startAndLook starts, and returns when the first look is over but for its end: what it wakes last is committed here.
func (b *bundle) startAndLook(t *testing.T) {
	t.Helper()
	b.commit(t, "payment", "~")
	b.start(t)
	b.woken.WaitFor(t, func(u event.Unit) bool { return u.Key == "~" })
}

func TestCommitAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	b := setup(t, asItIs)
	b.commit(t, "payment", "~")
	carries := make(chan struct{}, 1)
	woken := 0
	if err := b.transport.Start(t.Context(), transport.Node{Subscriptions: subscriptions, Wake: func(event.Unit) {
		woken++
		select {
		case carries <- struct{}{}:
		default:
		}
	}}); err != nil {
		t.Fatal(err)
	}
	<-carries
	tails := []event.Tail{{Lane: event.LaneRef{Category: "order", Key: "c-1"}, First: 1, Last: 1}}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = b.transport.Committed(ctx, tails) }); n != 0 {
		t.Errorf("Committed allocates %v times", n)
	}
	if woken < 100 {
		t.Errorf("and woke %d units", woken)
	}
}

func TestNotifyFindsWhatNoCommitAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t, asItIs)
	b.startAndLook(t)
	for _, key := range []string{"a", "b", "c"} {
		b.commit(t, "payment", key)
		b.transport.Notify()
		b.woken.WaitFor(t, func(u event.Unit) bool { return u.Key == key })
	}
}

// blocked is a store in which looking takes for ever, until somebody wants it to end.
type blocked struct {
	eventstore.Store
	looking chan struct{}
}

func (b blocked) Unpassed(ctx context.Context, _, _ string, _ event.LaneRef, _ int) ([]event.LaneRef, error) {
	close(b.looking)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestStartWaitsForNoLookAndCommitsAreCarriedMeanwhile(t *testing.T) {
	t.Parallel()
	looking := make(chan struct{})
	b := setup(t, func(s eventstore.Store) eventstore.Store { return blocked{s, looking} })
	b.start(t)
	<-looking
	if err := b.transport.Committed(t.Context(), b.commit(t, "payment", "c-1")); err != nil {
		t.Fatal(err)
	}
	b.woken.Wait(t)
	if err := b.transport.Stop(t.Context()); err != nil { // and ends the look
		t.Fatal(err)
	}
}

// failing is a store that cannot be looked through a number of times.
type failing struct {
	eventstore.Store
	left *int // used by the looking goroutine alone
}

var errFailing = errors.New("disk error")

func (f failing) Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error) {
	if *f.left > 0 {
		*f.left--
		return nil, errFailing
	}
	return f.Store.Unpassed(ctx, name, category, after, limit)
}

func TestLookThatFailsIsReportedAndMadeAgainEverMoreSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 10
		b := setup(t, func(s eventstore.Store) eventstore.Store { return failing{s, &left} })
		b.commit(t, "order", "c-1")
		before := time.Now()
		var pauses []time.Duration
		b.start(t)
		for range 10 {
			if err := b.reported.Wait(t); !errors.Is(err, errFailing) {
				t.Errorf("reported: %v", err)
			}
			pauses = append(pauses, time.Since(before).Round(time.Millisecond))
			before = time.Now()
		}
		b.woken.Wait(t)
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms,
			10 * time.Second, 10 * time.Second}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Error(diff)
		}
	})
}

func TestStopEndsThePauseAfterALookThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 1
		b := setup(t, func(s eventstore.Store) eventstore.Store { return failing{s, &left} })
		b.start(t)
		b.reported.Wait(t)
		before := time.Now()
		if err := b.transport.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("stop took %s", took)
		}
	})
}

// aside is a store in which units have set something aside that is due.
type aside struct {
	eventstore.Store
	units []event.Unit
}

func (a aside) DueUnits(_ context.Context, after event.Unit, _ int) ([]event.Unit, error) {
	if after != (event.Unit{}) {
		return nil, errFailing
	}
	return a.units, nil
}

func TestWhatWasSetAsideAndIsDueWakesItsUnitAtStartAndAtNotify(t *testing.T) {
	t.Parallel()
	units := []event.Unit{{Name: "billing", Key: "c-1"}, {Name: "nobody", Key: "c-1"}, {Name: "shipping", Key: "c-2"}}
	b := setup(t, func(s eventstore.Store) eventstore.Store { return aside{s, units} })
	b.start(t)
	for range 2 {
		got := []event.Unit{b.woken.Wait(t), b.woken.Wait(t)}
		if diff := cmp.Diff([]event.Unit{units[0], units[2]}, got); diff != "" {
			t.Error(diff)
		}
		b.transport.Notify()
	}
}

func TestStartAfterAnUncleanEndFailsWhenNobodyCanTellWhatWasLeft(t *testing.T) {
	t.Parallel()
	left := 1
	b := setup(t, func(s eventstore.Store) eventstore.Store { return failing{s, &left} })
	b.transport.Bind(failing{b.store, &left}, eventstore.Identity{Unclean: true}, event.KeyRules{})
	node := transport.Node{Subscriptions: subscriptions, Wake: b.woken.Send, Report: b.reported.Send}
	if err := b.transport.Start(t.Context(), node); !errors.Is(err, errFailing) {
		t.Fatalf("start: %v", err)
	}
	b.commit(t, "order", "c-1")
	if err := b.transport.Start(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	b.woken.Wait(t)
}
