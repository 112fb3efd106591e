package storelane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
)

func TestEveryUnitIsGrantedAtTheStartGeneration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, floor := range []event.Generation{0, b.id.StartGeneration, 7} {
		got, err := b.port.Acquire(t.Context(), shipping, floor)
		want := partitions.Acquired{Granted: true, Generation: b.id.StartGeneration}
		if err != nil || got != want {
			t.Errorf("acquire with floor %d: got %+v, %v", floor, got, err)
		}
	}
	if b.port.Traits().Leased {
		t.Error("the port says that it leases")
	}
}

func TestAnotherStartsGenerationIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.held(shipping)
	stale := partitions.Held{Unit: shipping, Generation: b.id.StartGeneration + 1}

	_, fetch := b.port.Fetch(t.Context(), stale, above(orders, 0), 1)
	_, advance := b.port.Advance(t.Context(), stale, above(orders, 0), 1)
	renew := b.port.Renew(t.Context(), []partitions.Held{good, stale})
	for what, err := range map[string]error{
		"fetch": fetch, "advance": advance, "renew": renew[1], "release": b.port.Release(t.Context(), stale, true),
	} {
		if !errors.Is(err, partitions.ErrFenced) {
			t.Errorf("%s: got %v, want %v", what, err, partitions.ErrFenced)
		}
	}
	if renew[0] != nil {
		t.Errorf("renewal of a good unit beside a fenced one: %v", renew[0])
	}
}

func TestFetchGivesTheLaneInOrderAndTheSameAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		b.publish(orders, 0)
	}
	want := []string{"order:c-1 #2", "order:c-1 #3", "order:c-1 #4"}
	for range 2 {
		if diff := cmp.Diff(want, read(b.fetch(3, above(orders, 1, backfill(orders), 0)))); diff != "" {
			t.Error(diff)
		}
	}
	got, err := b.port.Advance(t.Context(), b.held(shipping), above(orders, 4, backfill(orders), 0), 3)
	if diff := cmp.Diff([]string{"order:c-1 #5"}, read(got)); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got := b.fetch(3, above(orders, 5, backfill(orders), 0)); len(got.Entries) != 0 || got.Gap {
		t.Errorf("above the last: %v", read(got))
	}
}

func TestBackfillWaitsForThePrimaryLanesOfAllCategories(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(backfill(orders), 0) // earlier than all others
	b.publish(orders, 1)
	b.publish(payments, 2)

	lanes := func(o, p int) []event.Position {
		return above(backfill(orders), 0, orders, o, backfill(payments), 0, payments, p)
	}
	for _, step := range []struct {
		at   []event.Position
		want []string
	}{
		{lanes(0, 0), []string{"order:c-1 #1", "payment:c-1 #1"}},
		{lanes(1, 0), []string{"payment:c-1 #1"}},
		{lanes(1, 1), []string{"order:c-1 (backfill) #1"}},
	} {
		if diff := cmp.Diff(step.want, read(b.fetch(10, step.at))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestBetweenPrimaryLanesTheEarliestGoesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(payments, 1)
	b.publish(orders, 2)
	b.publish(orders, 4)
	b.publish(payments, 4)
	b.publish(payments, 3) // its lane's order goes before its time
	want := []string{"payment:c-1 #1", "order:c-1 #1", "order:c-1 #2", "payment:c-1 #2", "payment:c-1 #3"}
	for max := 1; max <= len(want); max++ {
		for _, at := range [][]event.Position{above(orders, 0, payments, 0), above(payments, 0, orders, 0)} {
			if diff := cmp.Diff(want[:max], read(b.fetch(max, at))); diff != "" {
				t.Errorf("max %d, asked %s first: %s", max, at[0].Lane, diff)
			}
		}
	}
}

// lossy is a store that lost records of every lane, which no store may do.
type lossy struct {
	eventstore.Store
	lost []event.Sequence
}

func (l lossy) ReadLane(ctx context.Context, ref event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	all, err := l.Store.ReadLane(ctx, ref, after, eventstore.MaxLimit)
	kept := slices.DeleteFunc(all, func(e event.Envelope) bool { return slices.Contains(l.lost, e.Sequence) })
	for i := range kept {
		if i == limit || kept[i].Sequence != kept[0].Sequence+event.Sequence(i) {
			return kept[:i], err
		}
	}
	return kept, err
}

func TestGapIsNeverPassed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 6 {
		b.publish(orders, 0)
	}
	b.port = storelane.New(lossy{b.store, []event.Sequence{1, 4, 6}}, b.id, event.KeyRules{})
	for after, want := range [][]string{
		{"gap in order:c-1"},
		{"order:c-1 #2", "order:c-1 #3"}, // up to the gap
		{"order:c-1 #3"},
		{"gap in order:c-1"},
		{"order:c-1 #5"},
		{"gap in order:c-1"}, // not the end of the lane
		nil,
	} {
		if diff := cmp.Diff(want, read(b.fetch(10, above(orders, after)))); diff != "" {
			t.Errorf("above %d: %s", after, diff)
		}
	}
}

func TestHandlerThatComesAfterAPurgeIsServedWithoutAGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := event.Stream{Kind: "order", ID: "o-1"}
	b.publish(orders, 0)    // 1, is deleted
	b.emit(orders, 0, s, 0) // 2
	b.publish(orders, 0)    // 3, is emptied
	b.emit(orders, 0, s, 1) // 4
	b.publish(orders, 0)    // 5, is emptied
	b.publish(payments, 0)  // 1, is deleted
	b.purge()
	b.publish(payments, 0) // 2
	oldest := []eventstore.Start{{Handler: shipping.Name, Category: orders.Category}, {Handler: shipping.Name, Category: payments.Category}}
	if err := b.store.SaveRegistry(t.Context(), eventstore.Registered{}, oldest); err != nil {
		t.Fatal(err)
	}
	got, err := b.store.Recover(t.Context(), []eventstore.Ask{{Unit: shipping, Lanes: []event.LaneRef{orders, payments}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"order:c-1 #2", "order:c-1 #3 void", "order:c-1 #4", "order:c-1 #5 void", "payment:c-1 #2"}
	if diff := cmp.Diff(want, read(b.fetch(10, got[0].Checkpoints))); diff != "" {
		t.Error(diff)
	}
}

func TestGapInOneLaneStopsTheUnitAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(payments, 0)
	b.purge()
	b.publish(orders, 0)
	b.publish(backfill(payments), 0)
	want := []string{"gap in payment:c-1"}
	if diff := cmp.Diff(want, read(b.fetch(10, above(orders, 0, payments, 0, backfill(payments), 0)))); diff != "" {
		t.Error(diff)
	}
}

func TestRecordWithABadKeyBecomesAVoidAndItsLaneGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := event.LaneRef{Category: "order", Key: "a:b"}
	for range 3 {
		b.publish(bad, 0)
	}
	want := []string{"order:a:b #1 void", "order:a:b #2 void"}
	for range 2 { // another handler, or the same again
		if diff := cmp.Diff(want, read(b.fetch(2, above(bad, 0)))); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"order:a:b #3 void"}, read(b.fetch(2, above(bad, 2)))); diff != "" {
		t.Error(diff)
	}
	if got := b.fetch(2, above(bad, 3)); len(got.Entries) > 0 || got.Gap {
		t.Errorf("above the last: %v", read(got))
	}

	set, err := b.store.Abandoned(t.Context(), event.Position{}, 10)
	if err != nil || len(set) != 3 {
		t.Fatalf("abandoned: %v, %v", set, err)
	}
	for _, a := range set {
		if a.Record.Type == "" || !strings.Contains(a.Reason, `contains ':'`) {
			t.Errorf("abandoned %s #%d as %q for %q", a.Record.Ref(), a.Record.Sequence, a.Record.Type, a.Reason)
		}
	}
}

func TestKeyRulesAreThoseOfTheApplication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.port = storelane.New(b.store, b.id, event.KeyRules{BackfillSuffix: "old"})
	was, is := event.LaneRef{Category: "order", Key: event.DefaultBackfillSuffix}, event.LaneRef{Category: "order", Key: "old"}
	b.publish(was, 0)
	b.publish(is, 0)
	if diff := cmp.Diff([]string{"order:backfill #1"}, read(b.fetch(1, above(was, 0)))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"order:old #1 void"}, read(b.fetch(1, above(is, 0)))); diff != "" {
		t.Error(diff)
	}
}

func TestDrainedSaysThatNoLaneHoldsMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(orders, 0)
	b.publish(orders, 0)
	b.publish(payments, 0)
	b.publish(backfill(payments), 0)
	at := func(o, ob, p, pb int) []event.Position {
		return above(orders, o, backfill(orders), ob, payments, p, backfill(payments), pb)
	}
	for _, step := range []struct {
		max  int
		at   []event.Position
		want bool
		why  string
	}{
		{1, at(0, 0, 1, 1), false, "the lane goes on"},
		{2, at(0, 0, 1, 1), true, "all of it was read, to the last that fits"},
		{2, at(0, 0, 0, 1), false, "another primary lane did not fit"},
		{3, at(0, 0, 0, 1), true, "all primary lanes were read"},
		{3, at(0, 0, 0, 0), false, "a backfill lane waits"},
		{1, at(2, 0, 1, 0), true, "the backfill lane was read"},
	} {
		got := b.fetch(step.max, step.at)
		if len(got.Entries) == 0 || got.Drained != step.want {
			t.Errorf("%s: drained is %v with %v", step.why, got.Drained, read(got))
		}
	}
	if got := b.fetch(1, at(2, 0, 1, 1)); len(got.Entries) > 0 || got.Gap {
		t.Errorf("above the last: %v", read(got))
	}
}

func TestBadRecordAtTheHeadDoesNotWedgeOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := event.LaneRef{Category: "order", Key: "a:b"}
	for range 10 {
		b.publish(bad, 0)
	}
	// The store refuses to abandon: the bad lane has to wait, nobody else does.
	b.port = storelane.New(stuck{b.store}, b.id, event.KeyRules{})
	for i := range 100 {
		good := event.LaneRef{Category: "order", Key: fmt.Sprintf("c-%d", i)}
		b.publish(good, 0)
		if _, err := b.port.Fetch(t.Context(), b.held(shipping), above(bad, 0), 10); !errors.Is(err, errStuck) {
			t.Fatalf("fetch of the bad lane: %v", err)
		}
		if got := b.fetch(10, above(good, 0)); len(got.Entries) != 1 {
			t.Fatalf("fetch of %s: %v", good, read(got))
		}
	}
	// It lets go: terminal at once, and the worker goes on.
	b.port = storelane.New(b.store, b.id, event.KeyRules{})
	got := b.fetch(10, above(bad, 0))
	if len(got.Entries) != 10 {
		t.Fatalf("fetch of the bad lane: %v", read(got))
	}
	for _, e := range got.Entries {
		if !e.Void() {
			t.Errorf("#%d would be delivered", e.Sequence)
		}
	}
}

var errStuck = errors.New("disk is read-only")

type stuck struct{ eventstore.Store }

func (stuck) Abandon(context.Context, event.LaneRef, event.Sequence, string) error { return errStuck }

type stale struct{ eventstore.Store }

func (stale) LaneTail(context.Context, event.LaneRef) (event.Sequence, error) {
	return 0, eventstore.ErrStale
}

func TestErrorsOfTheStoreKeepTheirClass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := storelane.New(stale{b.store}, b.id, event.KeyRules{}).
		Fetch(t.Context(), b.held(shipping), above(orders, 0), 1)
	if !errors.Is(err, partitions.ErrFenced) || !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("stale store: %v", err)
	}
	if err := b.store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = b.port.Fetch(t.Context(), b.held(shipping), above(orders, 0), 1)
	if !errors.Is(err, eventstore.ErrClosed) || errors.Is(err, partitions.ErrFenced) {
		t.Errorf("stopped store: %v", err)
	}
}

func TestAContextThatIsDoneEndsEveryCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, acquire := b.port.Acquire(ctx, shipping, 0)
	_, fetch := b.port.Fetch(ctx, b.held(shipping), above(orders, 0), 1)
	for what, err := range map[string]error{
		"acquire": acquire, "fetch": fetch, "release": b.port.Release(ctx, b.held(shipping), true),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPageSizeOutOfRangeIsAnErrorAndNotAnEmptyLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, max := range []int{-1, 0, eventstore.MaxLimit + 1} {
		if got, err := b.port.Fetch(t.Context(), b.held(shipping), above(orders, 0), max); err == nil {
			t.Errorf("max %d gave %v", max, read(got))
		}
	}
}

func TestEventCommittedBetweenTheLastReadAndTheReleaseIsReadByTheNextOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := above(orders, 0, backfill(orders), 0)
	if got := b.fetch(10, at); len(got.Entries) > 0 {
		t.Fatalf("fetched %v from nothing", read(got))
	}
	b.publish(orders, 0)
	if err := b.port.Release(t.Context(), b.held(shipping), true); err != nil {
		t.Fatal(err)
	}
	got, err := b.port.Acquire(t.Context(), shipping, 0)
	if err != nil || !got.Granted {
		t.Fatal(got, err)
	}
	if diff := cmp.Diff([]string{"order:c-1 #1"}, read(b.fetch(10, at))); diff != "" {
		t.Error(diff)
	}
}

// Whatever is in the lanes and whatever max is: applying what is fetched applies each record once, in lane order, and no
// backfill record before the last primary one.
func TestFetchAppliesEachRecordOnceInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		lanes := []event.LaneRef{orders, backfill(orders), payments, backfill(payments)}
		at := make([]event.Position, len(lanes))
		total, primary := 0, 0
		for i, l := range lanes {
			at[i].Lane = l
			for range rapid.IntRange(0, 5).Draw(rt, l.String()) {
				b.publish(l, 0)
				total++
				if l.Lane == event.Primary {
					primary++
				}
			}
		}
		for done := 0; done < total; {
			got := b.fetch(rapid.IntRange(1, 7).Draw(rt, "max"), at)
			if len(got.Entries) == 0 {
				rt.Fatalf("nothing to fetch after %d of %d", done, total)
			}
			for _, e := range got.Entries {
				i := indexOf(lanes, e.Ref())
				if e.Sequence != at[i].Sequence+1 {
					rt.Fatalf("%s: #%d after #%d", e.Ref(), e.Sequence, at[i].Sequence)
				}
				if e.Lane == event.Backfill && done < primary {
					rt.Fatalf("%s #%d before the primary lanes were drained", e.Ref(), e.Sequence)
				}
				at[i].Sequence = e.Sequence
				done++
			}
		}
		if got := b.fetch(7, at); len(got.Entries) > 0 || got.Gap {
			rt.Fatalf("more than there is: %v", read(got))
		}
	})
}

func indexOf(lanes []event.LaneRef, l event.LaneRef) int {
	for i := range lanes {
		if lanes[i] == l {
			return i
		}
	}
	return -1
}
