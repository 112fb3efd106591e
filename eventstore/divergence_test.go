package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Voids up to there would be more than any store can hold.
func TestAnEntryThatNobodyPublishedIsNotAdopted(t *testing.T) {
	t.Parallel()
	for newest, want := range map[event.Sequence]eventstore.Adoption{
		10_000_002:        {Common: 2, Shift: 10_000_000, Published: 10_000_002, Tail: 10_000_005},
		10_000_003:        {Common: 5, Published: 2, Tail: 5},
		1_750_000_000_000: {Common: 5, Published: 2, Tail: 5},
	} {
		d := eventstore.Diverged{Divergence: eventstore.Divergence{Lane: orders, Sequence: newest}, Published: 2, Tail: 5, First: 1}
		got := d.Adopt()
		if says := strings.Contains(got.Detail, fmt.Sprintf("XDEL %d-0", newest)); says != (want.Shift == 0) {
			t.Errorf("%d: %q", newest, got.Detail)
		}
		if got.Detail = ""; got != want {
			t.Errorf("%d: got %+v, want %+v", newest, got, want)
		}
	}
}

func TestAdoptionSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	stored := func(at event.Sequence) eventstore.AppliedAt { return eventstore.AppliedAt{Sequence: at, Stored: true} }
	foreign := func(at event.Sequence) eventstore.AppliedAt { return eventstore.AppliedAt{Sequence: at} }
	for _, c := range []struct {
		what                     string
		newest, published, tail  event.Sequence
		first                    event.Sequence
		applied                  []eventstore.AppliedAt
		common, shift, afterward event.Sequence
		detail                   string
	}{
		{"longer", 4, 2, 5, 1, nil, 2, 2, 7, "voids from #3 to #4, and records from #3 to #5 now have sequences from #5 to #7"},
		{"shorter", 9, 2, 5, 1, nil, 2, 7, 12, "voids from #3 to #9"},
		{"nothing of its own", 4, 2, 2, 1, nil, 2, 2, 4, "voids from #3 to #4"},
		{"a checkpoint tells more", 4, 1, 5, 1, []eventstore.AppliedAt{stored(3)}, 3, 1, 6, "voids from #4 to #4"},
		{"one at the newest tells nothing", 4, 1, 5, 1, []eventstore.AppliedAt{stored(4), stored(5)}, 1, 3, 8, ""},
		{"nothing tells more where one is in the other history", 6, 2, 7, 1, []eventstore.AppliedAt{stored(3), foreign(6), stored(4)}, 2, 4, 11, ""},
		{"noted above the newest", 3, 4, 5, 1, nil, 2, 1, 6, ""},
		{"the beginning is purged", 6, 1, 5, 4, nil, 3, 3, 8, ""},
		{"all that collides is purged", 3, 1, 5, 5, nil, 4, 0, 5, "nothing is renumbered"},
		{"all is purged", 7, 1, 5, 0, nil, 5, 2, 7, "voids from #6 to #7"},
		{"no records", 2, 0, 0, 0, nil, 0, 2, 2, "voids from #1 to #2"},
	} {
		d := eventstore.Diverged{
			Divergence: eventstore.Divergence{Lane: orders, Sequence: c.newest}, Published: c.published, Tail: c.tail, First: c.first, Applied: c.applied,
		}
		a := d.Adopt()
		if a.Common != c.common || a.Shift != c.shift || a.Tail != c.afterward || a.Published != c.newest || !strings.Contains(a.Detail, c.detail) {
			t.Errorf("%s: %+v", c.what, a)
		}
	}
}

// split is a lane of which store and broker have a beginning in common; the store knows of a part of it.
type split struct {
	shared, tail, newest event.Sequence
	eventstore.Diverged
}

// reader is a handler of the store: it has applied so many records of the broker's history, or of the store's.
type reader struct {
	broker  bool
	applied event.Sequence
}

// id names a record of one of the histories.
func (s *split) id(broker bool, at event.Sequence) string {
	switch {
	case at <= s.shared:
		return fmt.Sprint("shared-", at)
	case broker:
		return fmt.Sprint("lost-", at)
	}
	return fmt.Sprint("stored-", at)
}

// stored reports whether a reader stands on a record of the store.
func (s *split) stored(r reader) bool {
	return r.applied <= s.tail && s.id(r.broker, r.applied) == s.id(false, r.applied)
}

func splitAtRandom(random *rand.Rand) (*split, []reader) {
	upTo := func(n event.Sequence) event.Sequence { return event.Sequence(random.IntN(int(n) + 1)) }
	s := &split{shared: upTo(6)}
	s.tail, s.newest = s.shared+upTo(5), s.shared+1+upTo(4)
	s.Diverged = eventstore.Diverged{
		Divergence: eventstore.Divergence{Sequence: s.newest}, Published: upTo(s.shared), Tail: s.tail, First: min(s.tail, 1),
	}
	readers := make([]reader, 1+random.IntN(4))
	for i := range readers {
		r := &readers[i]
		if r.broker = random.IntN(2) == 0; r.broker {
			r.applied = upTo(s.newest)
		} else {
			r.applied = upTo(s.tail)
		}
		if r.applied > s.Published {
			s.Applied = append(s.Applied, eventstore.AppliedAt{Sequence: r.applied, Stored: s.stored(*r)})
		}
	}
	return s, readers
}

// times counts how often a reader has applied each record when it has read on to the end of the adopted lane: in the store, or what the broker has from there.
func (s *split) times(a eventstore.Adoption, r reader, fromBroker bool) map[string]int {
	lane := make(map[event.Sequence]string) // voids are not in it
	for at := event.Sequence(1); at <= s.tail; at++ {
		if at <= a.Common {
			lane[at] = s.id(false, at)
		} else {
			lane[at+a.Shift] = s.id(false, at)
		}
	}
	times := make(map[string]int)
	for at := event.Sequence(1); at <= r.applied; at++ {
		times[s.id(r.broker, at)]++
	}
	at := r.applied
	if at > a.Common && s.stored(r) {
		at += a.Shift
	}
	for at++; at <= a.Tail; at++ {
		if fromBroker && at <= s.newest {
			times[s.id(true, at)]++
		} else {
			times[lane[at]]++
		}
	}
	return times
}

// Readers stand anywhere in either history, and read on where they stand. In the end each has applied every record of the store, and none of them
// twice that anything tells to be in common.
func TestAfterAnAdoptionEveryReaderAppliesEveryRecordOnce(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if given := os.Getenv("KEYHOLD_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	twice := 0
	for range 20_000 {
		s, readers := splitAtRandom(random)
		a := s.Adopt()
		for _, r := range readers {
			for _, fromBroker := range []bool{false, true} {
				if fromBroker && a.Common > s.shared {
					continue // a reader got the store's record there, so the broker has lost its own
				}
				times := s.times(a, r, fromBroker)
				for at := event.Sequence(1); at <= s.tail; at++ {
					switch n := times[s.id(false, at)]; {
					case n == 1:
					case n == 2 && at > a.Common && at <= s.shared: // nothing tells
						twice++
					default:
						t.Fatalf("%+v of %+v applies #%d of the store %d times, from the broker %v: %+v, %+v", r, readers, at, n, fromBroker, s, a)
					}
				}
			}
		}
	}
	if twice == 0 {
		t.Error("histories of which nothing tells what is in common were never made")
	}
}

func TestWhatIsMissingOfAnAdoptionIsSaid(t *testing.T) {
	t.Parallel()
	if err := eventstore.CheckAdopt(orders, "ann", "why"); err != nil {
		t.Error(err)
	}
	err := eventstore.CheckAdopt(orders, "", "")
	for _, want := range []string{"order:a", "no actor", "no reason"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, without %q", err, want)
		}
	}
	act := eventstore.Act{Kind: eventstore.ActAdopt, Unit: unit, Actor: "ann", Reason: "why"}
	if err := act.Validate(); err == nil || !strings.Contains(err.Error(), "a call of its own") {
		t.Errorf("got %v", err)
	}
}

func TestALaneIsOfThePartsThatHoldIt(t *testing.T) {
	t.Parallel()
	held := []eventstore.PartFence{{Part: orders.Part() + 1, Generation: 1}, {Part: orders.Part(), Generation: 1}}
	if !eventstore.Holds(held, orders) || eventstore.Holds(held[:1], orders) || eventstore.Holds(nil, orders) {
		t.Error("the lane is held by those who do not hold its part, or the other way round")
	}
}
