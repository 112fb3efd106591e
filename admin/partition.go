package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
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

var statuses = []eventstore.Status{
	eventstore.StatusDone, eventstore.StatusBehind, eventstore.StatusTrying, eventstore.StatusHalted, eventstore.StatusParking, eventstore.StatusPaused,
}

// Partitions lists partitions in order of (handler, category, key, lane).
func (d *Desk) Partitions(ctx context.Context, q PartitionQuery) (Page[Partition], error) {
	var after eventstore.PartitionPlace
	p, err := page("partitions", q.Limit, q.Cursor, &after)
	if q.Status != "" && !slices.Contains(statuses, eventstore.Status(q.Status)) {
		err = joinUsage(err, fmt.Sprintf("status %q is none: give done, behind, trying, halted, parking or paused", q.Status))
	}
	if err = d.begin(err); err != nil {
		return Page[Partition]{}, err
	}
	rows, err := d.store.ListPartitions(ctx, eventstore.PartitionQuery{
		Name: q.Handler, Category: q.Category, Status: eventstore.Status(q.Status), After: after, Limit: p.ask(),
	})
	if err == nil && len(rows) == 0 {
		err = d.checkNames(ctx, q.Handler, q.Category)
	}
	if err != nil {
		return Page[Partition]{}, err
	}
	return pageOf(p, rows, partitionOf, func(r eventstore.Partition) any {
		return eventstore.PartitionPlace{Name: r.Unit.Name, Lane: r.Lane}
	}), nil
}

func partitionOf(r eventstore.Partition) Partition {
	return Partition{
		Handler: r.Unit.Name, Key: r.Unit.Key, Category: r.Lane.Category, Backfill: r.Lane.Lane == event.Backfill,
		Tail: uint64(r.Tail), Checkpoint: uint64(r.Checkpoint), Lag: uint64(r.Tail - min(r.Tail, r.Checkpoint)),
		Status: string(r.Status), Since: r.Since, Summary: r.Summary,
	}
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
	return listUnits(ctx, d, "halts", q, eventstore.Operations.ListHalts, haltOf, func(h eventstore.Halt) event.Unit { return h.Unit })
}

func haltOf(h eventstore.Halt) Halt {
	return Halt{
		Handler: h.Unit.Name, Key: h.Unit.Key, At: placeOf(h.Lane, h.Sequence, h.EventID), Type: h.EventType, Attempts: h.Attempts,
		Reason: h.Reason, Error: h.Error, Since: h.Since, Generation: uint64(h.Generation),
	}
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
	return listUnits(ctx, d, "parking", q, eventstore.Operations.ListParking, parkingOf, func(p eventstore.Parking) event.Unit { return p.Unit })
}

func parkingOf(p eventstore.Parking) Parking {
	return Parking{Handler: p.Unit.Name, Key: p.Unit.Key, Count: p.Count, First: parkedOf(p.First)}
}

func parkedOf(p eventstore.Parked) Parked {
	return Parked{
		At: placeOf(p.Lane, p.Sequence, p.EventID), Type: p.Type, Attempts: p.Attempts, Reason: p.Reason, Error: p.Error,
		Since: p.Time, Due: p.Due,
	}
}

// Parked lists the parked events of one unit in the order in which they will be applied.
func (d *Desk) Parked(ctx context.Context, u event.Unit, cursor string, limit int) (Page[Parked], error) {
	var after int64
	p, err := page("parked", limit, cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[Parked]{}, err
	}
	rows, err := d.store.ListParked(ctx, u, after, p.ask())
	if err == nil && len(rows) == 0 {
		err = d.checkNames(ctx, u.Name, "")
	}
	if err != nil {
		return Page[Parked]{}, err
	}
	return pageOf(p, rows, parkedOf, func(r eventstore.Parked) any { return r.Ordinal }), nil
}

// Pauses lists what is paused in order of (handler, key); a whole handler comes before its keys.
func (d *Desk) Pauses(ctx context.Context, q UnitQuery) (Page[Pause], error) {
	return listUnits(ctx, d, "pauses", q, eventstore.Operations.ListPauses, func(p eventstore.Pause) Pause { return *pauseOf(&p) },
		func(p eventstore.Pause) event.Unit { return p.Unit })
}

// listUnits is what all lists of units have in common.
func listUnits[R, T any](ctx context.Context, d *Desk, list string, q UnitQuery,
	read func(s eventstore.Operations, ctx context.Context, name string, after event.Unit, limit int) ([]R, error), view func(R) T, unit func(R) event.Unit,
) (Page[T], error) {
	var after event.Unit
	p, err := page(list, q.Limit, q.Cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[T]{}, err
	}
	rows, err := read(d.store, ctx, q.Handler, after, p.ask())
	if err == nil && len(rows) == 0 {
		err = d.checkNames(ctx, q.Handler, "")
	}
	if err != nil {
		return Page[T]{}, err
	}
	return pageOf(p, rows, view, func(r R) any { return unit(r) }), nil
}
