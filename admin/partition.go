package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// PartitionQuery selects partitions of handlers. Zero fields select all.
type PartitionQuery struct {
	Handler  string
	Category string
	Status   string // "done", "behind", "trying", "halted", "parking", "paused"
	Cursor   string
	Limit    int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// Partition is one lane of a handler.
type Partition struct {
	Handler    string    `json:"handler"`
	Key        string    `json:"key"`
	Category   string    `json:"category"`
	Backfill   bool      `json:"backfill,omitempty"`
	Tail       uint64    `json:"tail"`       // sequence of the last event
	Checkpoint uint64    `json:"checkpoint"` // of the last one applied
	Lag        uint64    `json:"lag"`
	Status     string    `json:"status"`
	Since      time.Time `json:"since,omitzero"`
	Summary    string    `json:"summary,omitempty"` // of why: "retries exhausted at #5: card declined"
}

// Partitions lists partitions in order of (handler, category, key, lane).
func (d *Desk) Partitions(ctx context.Context, q PartitionQuery) (Page[Partition], error) {
	return Page[Partition]{}, errUnbuilt
}

// UnitQuery lists what belongs to the units of a handler.
type UnitQuery struct {
	Handler string // "" = all
	Cursor  string
	Limit   int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// Halt is why, where and since when a unit is halted.
type Halt struct {
	Handler    string    `json:"handler"`
	Key        string    `json:"key"`
	At         Place     `json:"at"`
	Type       string    `json:"type"`
	Attempts   int       `json:"attempts"`
	Reason     string    `json:"reason"`
	Error      string    `json:"error,omitempty"`
	Since      time.Time `json:"since"`
	Generation uint64    `json:"generation"`
}

// Halts lists halted units in order of (handler, key).
func (d *Desk) Halts(ctx context.Context, q UnitQuery) (Page[Halt], error) {
	return Page[Halt]{}, errUnbuilt
}

// Parking is what a unit has set aside in order.
type Parking struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
	Count   int    `json:"count"`
	First   Parked `json:"first"`
}

// Parked is an event that a unit has set aside, together with everything of its category that came after it.
type Parked struct {
	At       Place     `json:"at"`
	Type     string    `json:"type"`
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason,omitempty"` // "" for one that was set aside because it came after another
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since"`
	Due      bool      `json:"due,omitempty"` // it is about to be applied
}

// Parking lists units with parked events in order of (handler, key).
func (d *Desk) Parking(ctx context.Context, q UnitQuery) (Page[Parking], error) {
	return Page[Parking]{}, errUnbuilt
}

// Parked lists the parked events of one unit in the order in which they will be applied.
func (d *Desk) Parked(ctx context.Context, u event.Unit, cursor string, limit int) (Page[Parked], error) {
	return Page[Parked]{}, errUnbuilt
}

// Pauses lists what is paused in order of (handler, key); a whole handler comes before its keys.
func (d *Desk) Pauses(ctx context.Context, q UnitQuery) (Page[Pause], error) {
	return Page[Pause]{}, errUnbuilt
}
