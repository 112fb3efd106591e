package partitionstest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// Harness is a port and the world behind it. Each test has one of its own.
type Harness struct {
	// Port is that of one owner, started.
	Port partitions.Port
	// Owner is how others are told of that owner. Only where units are leased.
	Owner string
	// Append commits n records to a lane, and returns when the port can see them.
	Append func(t *testing.T, lane event.LaneRef, n int)
	// Purge takes the records of a lane up to seq away from everywhere the port looks. nil: the port's world loses nothing.
	Purge func(t *testing.T, lane event.LaneRef, seq event.Sequence)

	// Crash ends the owner as kill -9 would, and gives the port of the next one, which has taken over for the handlers shipping and billing what
	// there is to do in the categories order and payment. Only where units are not leased; nil: its world does not tell how an owner ended.
	Crash func(t *testing.T) partitions.Port

	// Other gives the port of another owner in the same world. Only where units are leased, as are all of the following.
	Other func(t *testing.T) partitions.Port
	// Pass lets d pass for leases.
	Pass func(t *testing.T, d time.Duration)
	// Forget makes the port's world lose its memory: leases and generations, not the records.
	Forget func(t *testing.T)
}

// Run runs the suite. open makes a fresh world.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for name, test := range map[string]func(*suite){
		"an empty lane reads as nothing":                          emptyLane,
		"entries come in order":                                   entriesInOrder,
		"no more than asked for":                                  noMoreThanMax,
		"the same call gives the same entries":                    sameCallSameEntries,
		"what is appended later is read later":                    appendedLater,
		"advance reads above what it acknowledges":                advanceReadsAbove,
		"advance twice is advance once":                           advanceTwice,
		"primary goes before backfill":                            primaryFirst,
		"every lane of the unit is read":                          everyLane,
		"keys do not mix":                                         keysApart,
		"units read one lane each at its own pace":                unitsApart,
		"a gap is said and not skipped":                           gap,
		"units are independent under concurrency":                 concurrentUnits,
		"a cancelled context ends a call":                         cancelled,
		"acquire grants a generation":                             grants,
		"an owner may acquire again":                              acquiresAgain,
		"another generation is fenced":                            otherGenerationFenced,
		"a batch of renewals answers each for itself":             renewalsEach,
		"a released unit can be acquired again":                   releasedAgain,
		"what a dead owner may have had in hand is unclean, once": crashed,
		"a leased unit is held against others":                    heldAgainstOthers,
		"generations go above the floor":                          aboveFloor,
		"generations only grow":                                   generationsGrow,
		"a release hands the unit over at once, clean":            releaseHandsOver,
		"a release if idle is refused while something is unread":  releaseIfIdle,
		"a lapsed lease goes to another, unclean":                 lapses,
		"a renewal extends":                                       renewalExtends,
		"a late renewal does not revive":                          lateRenewal,
		"a fenced owner can do nothing":                           fencedOwner,
		"a new owner reads what was not acknowledged":             newOwnerReads,
		"a port that forgot grants nothing for one lease":         forgot,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			test(&suite{T: t, Harness: h, port: h.Port, traits: h.Port.Traits(), unit: shipping})
		})
	}
	// What stands for a part is leased as any unit is, but nothing is read of it: a port may lease it in another way.
	for name, test := range map[string]func(*suite){
		"acquire grants a generation":                 grants,
		"a batch of renewals answers each for itself": renewalsEach,
		"a leased unit is held against others":        heldAgainstOthers,
		"generations go above the floor":              aboveFloor,
		"generations only grow":                       generationsGrow,
		"a release hands the unit over at once":       releaseHandsOver,
		"a lapsed lease goes to another, unclean":     lapses,
		"a renewal extends":                           renewalExtends,
		"a late renewal does not revive":              lateRenewal,
		"a port that forgot grants nothing":           forgotPart,
	} {
		t.Run("part: "+name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			if !h.Port.Traits().Leased {
				t.Skip("this port does not lease")
			}
			test(&suite{T: t, Harness: h, port: h.Port, traits: h.Port.Traits(), unit: part})
		})
	}
}

// suite is one test with its world.
type suite struct {
	*testing.T
	Harness
	port   partitions.Port
	traits partitions.Traits
	unit   event.Unit // of tests that need no more than a lease
}

var (
	shipping = event.Unit{Name: "shipping", Key: "k-1"}
	part     = event.Unit{Name: event.PartName, Key: "5b1c-7"} // as a node names it: store and part
	orders   = event.LaneRef{Category: "order", Key: "k-1"}
	payments = event.LaneRef{Category: "payment", Key: "k-1"}
)

func backfill(lane event.LaneRef) event.LaneRef {
	lane.Lane = event.Backfill
	return lane
}

// needsLeases skips what only a port that leases can be asked.
func (s *suite) needsLeases() {
	s.Helper()
	if !s.traits.Leased {
		s.Skip("this port does not lease")
	}
}

// acquire has the unit granted.
func (s *suite) acquire(port partitions.Port, u event.Unit, floor event.Generation) partitions.Held {
	s.Helper()
	got, err := port.Acquire(s.Context(), u, floor)
	if err != nil {
		s.Fatalf("acquire %s: %v", u, err)
	}
	if !got.Granted {
		s.Fatalf("acquire %s: not granted: %+v", u, got)
	}
	return partitions.Held{Unit: u, Generation: got.Generation}
}

// fetch reads above positions and fails on an error.
func (s *suite) fetch(port partitions.Port, h partitions.Held, max int, above ...event.Position) partitions.Fetched {
	s.Helper()
	got, err := port.Fetch(s.Context(), h, above, max)
	if err != nil {
		s.Fatalf("fetch: %v", err)
	}
	return got
}

func (s *suite) advance(port partitions.Port, h partitions.Held, max int, done ...event.Position) partitions.Fetched {
	s.Helper()
	got, err := port.Advance(s.Context(), h, done, max)
	if err != nil {
		s.Fatalf("advance: %v", err)
	}
	return got
}

// drain reads on until nothing is left, and gives everything that came, without acknowledging it.
func (s *suite) drain(port partitions.Port, h partitions.Held, max int, at ...event.Position) []event.Position {
	s.Helper()
	var all []event.Position
	for {
		got := s.fetch(port, h, max, at...)
		if got.Gap {
			s.Fatalf("gap in %s above %v", got.Lane, at)
		}
		if len(got.Entries) == 0 {
			return all
		}
		for _, p := range places(got.Entries) {
			all = append(all, p)
			for i := range at {
				if at[i].Lane == p.Lane {
					at[i] = p
				}
			}
		}
	}
}

// places are the entries, by lane and sequence.
func places(entries []event.Envelope) []event.Position {
	var all []event.Position
	for i := range entries {
		all = append(all, event.Position{Lane: entries[i].Ref(), Sequence: entries[i].Sequence})
	}
	return all
}

func at(lane event.LaneRef, seq event.Sequence) event.Position {
	return event.Position{Lane: lane, Sequence: seq}
}

// run is the positions of a lane from first to last.
func run(lane event.LaneRef, first, last event.Sequence) []event.Position {
	var all []event.Position
	for seq := first; seq <= last; seq++ {
		all = append(all, at(lane, seq))
	}
	return all
}

func (s *suite) same(what string, want, got []event.Position) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// fenced checks that a call was refused because the generation is not held.
func (s *suite) fenced(what string, err error) {
	s.Helper()
	if !errors.Is(err, partitions.ErrFenced) {
		s.Errorf("%s: got %v, want ErrFenced", what, err)
	}
}
