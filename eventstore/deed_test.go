package eventstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// act is one on the unit at an event of orders.
func act(kind eventstore.ActKind, at event.Sequence) eventstore.Act {
	return eventstore.Act{
		Kind: kind, Unit: unit, Seen: event.Position{Lane: orders, Sequence: at}, Actor: "ann", Reason: "carrier is back", Time: noon.Add(time.Hour),
	}
}

func halted(at event.Sequence) eventstore.UnitState {
	return eventstore.UnitState{Unit: unit, Kind: eventstore.EventHandler, Halt: &eventstore.Halt{
		Unit: unit, Lane: orders, Sequence: at, EventID: "e-5", EventType: "order.placed", Attempts: 5, Reason: "poison", Error: "no carrier", Since: noon,
	}}
}

func parking(count int, due bool) eventstore.UnitState {
	return eventstore.UnitState{Unit: unit, Kind: eventstore.EventHandler, Parking: &eventstore.Parking{Unit: unit, Count: count, First: eventstore.Parked{
		Unit: unit, Lane: orders, Sequence: 5, EventID: "e-5", Type: "order.placed", Time: noon, Due: due,
	}}}
}

func TestDeedOfAnActOnAHalt(t *testing.T) {
	t.Parallel()
	at := event.Position{Lane: orders, Sequence: 5, EventID: "e-5"}
	past := &eventstore.Advance{Lane: orders, From: 4, To: 5, EventID: "e-5"}
	for _, c := range []struct {
		kind eventstore.ActKind
		want eventstore.Deed
	}{
		{eventstore.ActRetry, eventstore.Deed{LiftHalt: true, Event: at, Detail: "halted at order:a #5 (poison), now tries it again"}},
		{eventstore.ActSkip, eventstore.Deed{LiftHalt: true, Event: at, Advance: past, Detail: "halted at order:a #5 (poison), now passes it"}},
		{eventstore.ActDeadLetter, eventstore.Deed{
			LiftHalt: true, Event: at, Advance: past, Detail: "halted at order:a #5 (poison), now passes it and keeps it as a dead letter",
			Dead: &eventstore.Dead{
				Unit: unit, Lane: orders, Sequence: 5, EventID: "e-5", Type: "order.placed", Attempts: 5, Reason: "poison", Error: "no carrier", Time: noon.Add(time.Hour),
			},
		}},
	} {
		a := act(c.kind, 5)
		got, err := a.Decide(halted(5), 4)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.kind, diff)
		}
	}
}

// TestRetryOfADivergedUnitGoesOnInTheBrokersHistory: with the checkpoint where it is, at the event that the broker has there. To pass an event would drop one that nobody has applied.
func TestRetryOfADivergedUnitGoesOnInTheBrokersHistory(t *testing.T) {
	t.Parallel()
	now := halted(5)
	now.Halt.Reason, now.Halt.EventID = eventstore.HistoryDiverged, "e-4b"
	retry := act(eventstore.ActRetry, 5)
	retry.Seen.EventID = "e-4b"
	got, err := retry.Decide(now, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&eventstore.Advance{Lane: orders, From: 4, To: 4, EventID: "e-4b"}, got.Advance); diff != "" || !got.LiftHalt {
		t.Errorf("%+v\n%s", got, diff)
	}
	for _, kind := range []eventstore.ActKind{eventstore.ActSkip, eventstore.ActDeadLetter} {
		other := retry
		other.Kind = kind
		if got, err := other.Decide(now, 4); !errors.Is(err, eventstore.ErrStateMoved) {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}

func TestDeedOfAnActOnParkedEvents(t *testing.T) {
	t.Parallel()
	at := event.Position{Lane: orders, Sequence: 5, EventID: "e-5"}
	for _, c := range []struct {
		kind eventstore.ActKind
		now  eventstore.UnitState
		want eventstore.Deed
	}{
		{eventstore.ActRetry, parking(3, false), eventstore.Deed{DueFirst: true, Event: at, Detail: "3 events parked from order:a #5 on, now applies them"}},
		{eventstore.ActSkip, parking(1, true), eventstore.Deed{DropFirst: true, DueFirst: true, Event: at, Detail: "1 event parked from order:a #5 on, now passes the first"}},
		{eventstore.ActDeadLetter, parking(1, false), eventstore.Deed{
			DropFirst: true, DueFirst: true, Event: at, Detail: "1 event parked from order:a #5 on, now passes the first and keeps it as a dead letter",
			Dead: &eventstore.Dead{Unit: unit, Lane: orders, Sequence: 5, EventID: "e-5", Type: "order.placed", Reason: "parked", Time: noon.Add(time.Hour)},
		}},
	} {
		a := act(c.kind, 5)
		got, err := a.Decide(c.now, 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.kind, diff)
		}
	}
}

func TestActIsRefusedWithTheStateAndTheReason(t *testing.T) {
	t.Parallel()
	both := halted(5)
	both.Parking = parking(2, false).Parking
	paused := &eventstore.Pause{Unit: unit, Actor: "bob", Reason: "stocktaking", Since: noon}
	known := eventstore.UnitState{Unit: unit, Kind: eventstore.EventHandler, Dead: 1}
	late := act(eventstore.ActRetry, 5)
	late.Since = noon.Add(time.Second)
	otherID := act(eventstore.ActRetry, 5)
	otherID.Seen.EventID = "e-6"
	for _, c := range []struct {
		act eventstore.Act
		now eventstore.UnitState
		at  event.Sequence
		why string
	}{
		{act(eventstore.ActRetry, 5), known, 0, "it is not halted and has nothing parked"},
		{act(eventstore.ActRetry, 4), halted(5), 4, "it is halted at order:a #5 since 2026-03-01 12:00:00.000Z"},
		{act(eventstore.ActRetry, 4), both, 4, "it is halted at order:a #5 since 2026-03-01 12:00:00.000Z, and it has 2 events parked, order:a #5 is the first"},
		{late, halted(5), 4, "it is halted at order:a #5 since 2026-03-01 12:00:00.000Z"},
		{otherID, halted(5), 4, "it is halted at order:a #5 since 2026-03-01 12:00:00.000Z"},
		{act(eventstore.ActSkip, 5), halted(5), 3, "its checkpoint of order:a is 3, and events before #5 are not applied yet"},
		{act(eventstore.ActRetry, 5), parking(2, true), 0, "it applies what it parked, order:a #5 is next"},
		{act(eventstore.ActPause, 0), eventstore.UnitState{Unit: unit, Pause: paused}, 0, "it is paused already, by bob since 2026-03-01 12:00:00.000Z: stocktaking"},
		{act(eventstore.ActResume, 0), known, 0, "it is not paused"},
		{act(eventstore.ActResume, 0), eventstore.UnitState{Unit: unit, Dead: 1, HandlerPause: paused}, 0, "it is not paused itself, its whole handler is, by bob since 2026-03-01 12:00:00.000Z: stocktaking"},
	} {
		_, err := c.act.Decide(c.now, c.at)
		var moved *eventstore.StateMovedError
		if !errors.As(err, &moved) || !errors.Is(err, eventstore.ErrStateMoved) {
			t.Fatalf("%s gave %v", c.act.Kind, err)
		}
		if diff := cmp.Diff(&eventstore.StateMovedError{Act: c.act, Now: c.now, Why: c.why}, moved); diff != "" {
			t.Error(diff)
		}
		if want := string(c.act.Kind) + " shipping/a: " + c.why; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %q, want %q first", err, want)
		}
	}
	for _, u := range []event.Unit{unit, {Name: "shipping"}} {
		a := act(eventstore.ActPause, 0)
		a.Unit = u
		if _, err := a.Decide(eventstore.UnitState{Unit: u}, 0); !errors.Is(err, eventstore.ErrNotFound) {
			t.Errorf("%s: got %v", u, err)
		}
	}
}

func TestPauseAndResumeSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	handler := event.Unit{Name: "shipping"}
	paused := func(u event.Unit) *eventstore.Pause {
		return &eventstore.Pause{Unit: u, Actor: "ann", Reason: "carrier is back", Since: noon.Add(time.Hour)}
	}
	for _, c := range []struct {
		kind eventstore.ActKind
		now  eventstore.UnitState
		want eventstore.Deed
	}{
		{eventstore.ActPause, eventstore.UnitState{Unit: unit, Dead: 1}, eventstore.Deed{Pause: paused(unit), Detail: "reads no further until it is resumed"}},
		{eventstore.ActPause, eventstore.UnitState{Unit: handler, Kind: eventstore.EventHandler}, eventstore.Deed{
			Pause: paused(handler), Detail: "all its units read no further until it is resumed",
		}},
		{eventstore.ActResume, eventstore.UnitState{Unit: unit, Pause: paused(unit)}, eventstore.Deed{
			Resume: true, Detail: "paused by ann since 2026-03-01 13:00:00.000Z: carrier is back, now reads on",
		}},
		{eventstore.ActResume, eventstore.UnitState{Unit: unit, Pause: paused(unit), HandlerPause: paused(handler)}, eventstore.Deed{
			Resume: true, Detail: "paused by ann since 2026-03-01 13:00:00.000Z: carrier is back, now reads on as soon as its handler is resumed too",
		}},
	} {
		a := act(c.kind, 0)
		a.Unit = c.now.Unit
		got, err := a.Decide(c.now, 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.kind, diff)
		}
	}
}

func TestWhatIsDoneToHandlersSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	known := eventstore.UnitState{Unit: event.Unit{Name: "shipping"}, Kind: eventstore.EventHandler}
	of := func(kind eventstore.ActKind, start *eventstore.Start) eventstore.Act {
		return eventstore.Act{Kind: kind, Unit: known.Unit, To: "shipments", Start: start}
	}
	entity, process := known, known
	entity.Kind, process.Kind = eventstore.EntityKind, eventstore.ProcessManager
	for _, c := range []struct {
		act          eventstore.Act
		now          eventstore.UnitState
		inUse, taken bool
		detail       string
		err          error
		says         string
	}{
		{act: of(eventstore.ActRename, nil), now: known, detail: `renamed to "shipments", with its place in all lanes`},
		{act: of(eventstore.ActRemove, nil), now: known, taken: true, detail: "forgotten, with its place in all lanes and what it set aside"},
		{act: of(eventstore.ActRemove, nil), now: entity, detail: "forgotten, with what it set aside; its place in the lanes of its commands is kept, so that none is decided twice"},
		{act: of(eventstore.ActReset, &eventstore.Start{}), now: entity, says: "would decide all commands again"},
		{act: of(eventstore.ActReset, &eventstore.Start{}), now: known, detail: "begins again with the first events kept"},
		{act: of(eventstore.ActReset, &eventstore.Start{Now: true}), now: known, detail: "begins again with what comes from now on"},
		{act: of(eventstore.ActReset, &eventstore.Start{From: noon}), now: known, detail: "begins again with the first events from 2026-03-01 12:00:00.000Z on"},
		{act: of(eventstore.ActRename, nil), now: known, taken: true, err: eventstore.ErrStateMoved, says: `the name "shipments" is taken`},
		{act: of(eventstore.ActRemove, nil), now: known, inUse: true, err: eventstore.ErrInUse, says: "stop the program"},
		{act: of(eventstore.ActReset, &eventstore.Start{}), err: eventstore.ErrNotFound, says: `"shipping"`},
		{act: of(eventstore.ActRename, nil), now: entity, says: "the streams of its entity carry its name"},
		{act: of(eventstore.ActRename, nil), now: process, says: "the streams of its process manager carry its name"},
	} {
		detail, err := c.act.DecideHandler(c.now, c.inUse, c.taken)
		if detail != c.detail || (err == nil) != (c.says == "") {
			t.Errorf("%s: got %q, %v", c.act.Kind, detail, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.says) || (c.err != nil && !errors.Is(err, c.err))) {
			t.Errorf("%s: got %v, want %v with %q", c.act.Kind, err, c.err, c.says)
		}
	}
}
