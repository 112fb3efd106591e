package eventstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestGravestStatusCountsAndIsSummedUpInOneLine(t *testing.T) {
	t.Parallel()
	payments := event.LaneRef{Category: "payment", Key: "a"}
	all := eventstore.Standing{
		Halt:         &eventstore.Halt{Lane: orders, Sequence: 5, Reason: "poison", Error: "no carrier\nat line 7", Since: noon},
		Pause:        &eventstore.Pause{Actor: "ann", Reason: "stocktaking", Since: noon.Add(1)},
		HandlerPause: &eventstore.Pause{Actor: "bob", Since: noon.Add(2)},
		Parking:      &eventstore.Parking{Count: 3, First: eventstore.Parked{Lane: orders, Sequence: 5, Time: noon.Add(3)}},
		Tried:        &eventstore.Tried{Lane: orders, Sequence: 6, Attempts: 1, Error: "no carrier", Time: noon.Add(4)},
	}
	for _, c := range []struct {
		drop    func()
		lane    event.LaneRef
		tail    event.Sequence
		status  eventstore.Status
		since   time.Time
		summary string
	}{
		{func() {}, orders, 6, eventstore.StatusHalted, noon, "poison at #5: no carrier"},
		{func() { all.Halt.Reason = "" }, payments, 6, eventstore.StatusHalted, noon, "halted at order:a #5: no carrier"},
		{func() { all.Halt = nil }, orders, 6, eventstore.StatusPaused, noon.Add(1), "paused by ann: stocktaking"},
		{func() { all.Pause = nil }, orders, 6, eventstore.StatusPaused, noon.Add(2), "handler paused by bob"},
		{func() { all.HandlerPause = nil }, orders, 6, eventstore.StatusParking, noon.Add(3), "3 parked from #5 on, not tried yet"},
		{func() { all.Parking.First.Reason, all.Parking.First.Error = "poison", "no carrier" }, payments, 6, eventstore.StatusParking, noon.Add(3), "3 parked from order:a #5 on, poison: no carrier"},
		{func() { all.Parking = nil }, orders, 6, eventstore.StatusTrying, noon.Add(4), "1 attempt failed at #6: no carrier"},
		{func() { all.Tried.Attempts, all.Tried.Error = 0, "" }, orders, 6, eventstore.StatusTrying, noon.Add(4), "suspected of ending the process at #6"},
		{func() { all.Tried = nil }, orders, 6, eventstore.StatusBehind, time.Time{}, ""},
		{func() {}, orders, 4, eventstore.StatusDone, time.Time{}, ""},
	} {
		c.drop()
		status, since, summary := all.Status(c.lane, c.tail, 4)
		if status != c.status || !since.Equal(c.since) || summary != c.summary {
			t.Errorf("got %s since %s, %q; want %s since %s, %q", status, since, summary, c.status, c.since, c.summary)
		}
	}
}

func TestLongErrorsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	s := eventstore.Standing{Halt: &eventstore.Halt{Lane: orders, Sequence: 5, Reason: "poison", Error: "x" + strings.Repeat("é", 200)}}
	_, _, summary := s.Status(orders, 6, 4)
	if want := "poison at #5: x" + strings.Repeat("é", 79) + "..."; summary != want {
		t.Errorf("got %q, want %q", summary, want)
	}
}

func TestStateOfAUnitTellsWhatIsInItsWay(t *testing.T) {
	t.Parallel()
	s := halted(5)
	s.Pause, s.HandlerPause, s.Parking, s.Tried = &eventstore.Pause{}, &eventstore.Pause{}, &eventstore.Parking{}, &eventstore.Tried{}
	got := s.Standing()
	if got != (eventstore.Standing{Halt: s.Halt, Pause: s.Pause, HandlerPause: s.HandlerPause, Parking: s.Parking, Tried: s.Tried}) {
		t.Errorf("got %+v", got)
	}
}
