package admin

import (
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Place names an event in its lane.
type Place struct {
	Category string `json:"category"`
	Key      string `json:"key"`
	Backfill bool   `json:"backfill,omitempty"`
	Sequence uint64 `json:"sequence"`
	EventID  string `json:"event_id,omitempty"` // "" where it is not known
}

// String is such as "order:client-17 #5".
func (p Place) String() string { return fmt.Sprintf("%s #%d", p.lane(), p.Sequence) }

func (p Place) lane() event.LaneRef {
	l := event.LaneRef{Category: p.Category, Key: p.Key}
	if p.Backfill {
		l.Lane = event.Backfill
	}
	return l
}

func (p Place) position() event.Position {
	return event.Position{Lane: p.lane(), Sequence: event.Sequence(p.Sequence), EventID: p.EventID}
}

func placeOf(l event.LaneRef, s event.Sequence, id string) Place {
	return Place{Category: l.Category, Key: l.Key, Backfill: l.Lane == event.Backfill, Sequence: uint64(s), EventID: id}
}

// Expect is the state that a person saw and decided on: at which event the unit was stopped, and since when, as [Unit.Expect] gave
// it. Sequence 0 = it was not stopped at an event.
type Expect struct {
	Place
	Since time.Time `json:"since,omitzero"`
}
