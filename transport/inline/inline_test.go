package inline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/transporttest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, func(_ *testing.T, store eventstore.Store, id eventstore.Identity) transporttest.Transport {
		tr := inline.New()
		tr.Bind(store, id, event.KeyRules{})
		return tr
	}, transporttest.Owned)
}

// bundle is a transport over a started store, and a node whose Drive is drive. Units apply nothing: what is unpassed stays so.
type bundle struct {
	store     eventstore.Store
	transport *inline.Transport
	driven    signal.Signal[string] // "name key #sequence", when Drive was called
	reported  signal.Signal[error]
	drive     func(ctx context.Context, u event.Unit) error
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		store: memory.Open(), transport: inline.New(),
		drive: func(context.Context, event.Unit) error { return nil },
	}
	id, err := b.store.Start(t.Context(), eventstore.StartOptions{Node: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b.driven.Init(t)
	b.reported.Init(t)
	b.transport.Bind(b.store, id, event.KeyRules{})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(b.transport.Stop(ctx), b.store.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bundle) start(ctx context.Context) error {
	return b.transport.Start(ctx, transport.Node{
		Subscriptions: []transport.Subscription{{Name: "shipping", Category: "order"}, {Name: "billing", Category: "order"}},
		Drive: func(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error {
			b.driven.Send(fmt.Sprintf("%s %s #%d", u.Name, lane.Key, seq))
			return b.drive(ctx, u)
		},
		Report: b.reported.Send,
	})
}

// commit commits n events under a key in one go.
func (b *bundle) commit(t *testing.T, category, key string, n int) []event.Tail {
	t.Helper()
	var events []event.Envelope
	for i := range n {
		events = append(events, event.Envelope{ID: fmt.Sprint(i), Type: "thing.happened", Category: category, Key: key})
	}
	done, err := b.store.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: events})
	if err != nil {
		t.Fatal(err)
	}
	return done.Tails
}

func (b *bundle) wantDriven(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := b.driven.Wait(t); got != w {
			t.Errorf("driven: got %s, want %s", got, w)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStartWithoutAStoreSaysWhatToDo(t *testing.T) {
	t.Parallel()
	tr := inline.New()
	if err := tr.Start(t.Context(), transport.Node{}); err == nil {
		t.Error("started")
	}
	if tr.Port() != nil {
		t.Error("it has a port")
	}
}

func TestStartDrivesEachUnitToTheEndOfEachLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.commit(t, "order", "a", 3)
	b.commit(t, "order", "b", 2)
	must(t, b.start(t.Context()))
	b.wantDriven(t, "shipping a #3", "shipping b #2", "billing a #3", "billing b #2")
}

func TestStartReportsAUnitThatCannotBeDrivenAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	why := errors.New("no memory left")
	b.drive = func(context.Context, event.Unit) error { return why }
	b.commit(t, "order", "a", 1)
	must(t, b.start(t.Context()))
	b.wantDriven(t, "shipping a #1", "billing a #1")
	for range 2 {
		if err := b.reported.Wait(t); !errors.Is(err, why) {
			t.Errorf("reported: %v", err)
		}
	}
}

func TestStartFailsWithTheStoreAndCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.store.Stop(t.Context()))
	if err := b.start(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Fatalf("start: %v", err)
	}
	id, err := b.store.Start(t.Context(), eventstore.StartOptions{})
	must(t, err)
	b.transport.Bind(b.store, id, event.KeyRules{})
	must(t, b.start(t.Context()))
}

func TestStartEndsWithItsContextAndCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.drive = func(context.Context, event.Unit) error {
		cancel()
		return nil
	}
	b.commit(t, "order", "a", 1)
	if err := b.start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("start: %v", err)
	}
	b.wantDriven(t, "shipping a #1") // and no more
	must(t, b.start(t.Context()))
	b.wantDriven(t, "shipping a #1", "billing a #1")
}

func TestStartEndsWhenItIsStoppedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.commit(t, "order", "a", 1)
	b.drive = func(ctx context.Context, _ event.Unit) error {
		short, cancel := context.WithCancel(ctx)
		cancel()
		return b.transport.Stop(short) // begins it, and does not wait for this very delivery
	}
	if err := b.start(t.Context()); !errors.Is(err, lifecycle.ErrStopped) {
		t.Fatalf("start: %v", err)
	}
	if err := b.reported.Wait(t); !errors.Is(err, context.Canceled) {
		t.Errorf("reported: %v", err)
	}
	b.wantDriven(t, "shipping a #1")
}

func TestCommitThatConcernsNobodyWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.start(t.Context()))
	b.drive = func(context.Context, event.Unit) error {
		// Not nested: it would wait for its turn, which is taken.
		return b.transport.Committed(t.Context(), b.commit(t, "audit", "a", 1))
	}
	must(t, b.transport.Committed(t.Context(), b.commit(t, "order", "a", 1)))
	b.wantDriven(t, "shipping a #1", "billing a #1")
}

func TestEventsOfOneCommitAreDrivenOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.start(t.Context()))
	must(t, b.transport.Committed(t.Context(), b.commit(t, "order", "a", 2)))
	b.wantDriven(t, "shipping a #1", "billing a #1", "shipping a #2", "billing a #2")
}

func TestContextThatOutlivesItsDeliveryStillDelivers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.start(t.Context()))
	var kept context.Context
	b.drive = func(ctx context.Context, _ event.Unit) error {
		kept = ctx
		return nil
	}
	must(t, b.transport.Committed(t.Context(), b.commit(t, "order", "a", 1)))
	b.wantDriven(t, "shipping a #1", "billing a #1")
	why := errors.New("no memory left")
	b.drive = func(context.Context, event.Unit) error { return why }
	for _, key := range []string{"b", "c"} {
		must(t, b.transport.Committed(kept, b.commit(t, "order", key, 1)))
		b.wantDriven(t, "shipping "+key+" #1", "billing "+key+" #1")
		if err := b.reported.Wait(t); !errors.Is(err, why) { // nobody is there to return it to
			t.Errorf("reported: %v", err)
		}
	}
}

func TestPanicOfADeliveryTakesNobodysTurnAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.start(t.Context()))
	b.drive = func(context.Context, event.Unit) error { panic("at the disco") }
	func() {
		defer func() {
			if p := recover(); p == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = b.transport.Committed(t.Context(), b.commit(t, "order", "a", 1))
	}()
	b.drive = func(context.Context, event.Unit) error { return nil }
	must(t, b.transport.Committed(t.Context(), b.commit(t, "order", "b", 1)))
	b.wantDriven(t, "shipping a #1", "shipping a #1", "billing a #1", "shipping b #1", "billing b #1")
}

func TestCapabilitiesAreNamed(t *testing.T) {
	t.Parallel()
	want := "publish, consumer groups, ack, ordering, dead letter, replay, inline"
	if diff := cmp.Diff(want, inline.New().Capabilities().String()); diff != "" {
		t.Error(diff)
	}
}

// aside is a store in which a unit has set something aside that is due.
type aside struct{ eventstore.Store }

var errFailing = errors.New("disk error")

func (aside) DueUnits(_ context.Context, after event.Unit, _ int) ([]event.Unit, error) {
	if after != (event.Unit{}) {
		return nil, errFailing
	}
	return []event.Unit{{Name: "billing", Key: "c-1"}, {Name: "nobody", Key: "c-1"}, {Name: "shipping", Key: "c-2"}}, nil
}

func TestStartDrivesUnitsThroughWhatTheySetAside(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.transport.Bind(aside{b.store}, eventstore.Identity{StartGeneration: 1}, event.KeyRules{})
	b.drive = func(_ context.Context, u event.Unit) error {
		if u.Name == "billing" {
			return errFailing
		}
		return nil
	}
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := []string{b.driven.Wait(t), b.driven.Wait(t)}
	if diff := cmp.Diff([]string{"billing  #0", "shipping  #0"}, got); diff != "" {
		t.Error(diff)
	}
	if err := b.reported.Wait(t); !errors.Is(err, errFailing) {
		t.Errorf("reported: %v", err)
	}
}
