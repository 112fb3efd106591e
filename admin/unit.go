package admin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Unit is all that is known of one unit: a handler and a key, or an entity kind and an id.
type Unit struct {
	Handler      string     `json:"handler"`
	Key          string     `json:"key"`
	Kind         string     `json:"kind"`
	State        string     `json:"state"` // "halted", "paused", "parking", "trying", "waiting" (for a newer program), "behind", "done"
	Words        string     `json:"words"` // why, in one line
	Generation   uint64     `json:"generation"`
	Owner        *Owner     `json:"owner,omitempty"`  // nil when nobody has the store open
	Absent       bool       `json:"absent,omitempty"` // the program that started last does not have the handler
	Halt         *Halt      `json:"halt,omitempty"`
	Pause        *Pause     `json:"pause,omitempty"`
	HandlerPause *Pause     `json:"handler_pause,omitempty"`
	Parking      *Parking   `json:"parking,omitempty"`
	Tried        *Tried     `json:"tried,omitempty"`
	Dead         int        `json:"dead"` // dead letters, counted up to 1,000
	Lanes        []LaneView `json:"lanes"`
	Lag          uint64     `json:"lag"`                   // over all lanes
	PassedOver   uint64     `json:"passed_over,omitempty"` // likewise
	Activity     *Activity  `json:"activity,omitempty"`    // in this process; nil when it is at rest, or runs in another
	Waiting      []Event    `json:"waiting"`               // the next few events, in the order in which they will be applied
	// Expect is what an act on the unit, decided on this view, gives as [ActRequest.Expect].
	Expect *Expect `json:"expect,omitempty"`
}

// LaneView is how far a unit is with a lane.
type LaneView struct {
	Category   string `json:"category"`
	Key        string `json:"key"`
	Backfill   bool   `json:"backfill,omitempty"`
	Tail       uint64 `json:"tail"`
	Checkpoint uint64 `json:"checkpoint"`
	Lag        uint64 `json:"lag"` // events above the checkpoint, but for PassedOver
	// PassedOver is how many of the next events above the checkpoint are of types that the handler does not handle: they are passed over with the next one that
	// it does, or when its key comes to rest.
	PassedOver uint64 `json:"passed_over,omitempty"`
	NextType   string `json:"next_type,omitempty"` // of the next event that is to be applied
}

// Tried is what is known of attempts at the next event of a unit.
type Tried struct {
	At           Place     `json:"at"`
	Type         string    `json:"type"`
	Attempts     int       `json:"attempts"` // that failed
	Error        string    `json:"error,omitempty"`
	Last         time.Time `json:"last"`
	Again        time.Time `json:"again,omitzero"`          // when the next is due, where that is known
	Suspicions   int       `json:"suspicions,omitempty"`    // times the process may have died of it
	CrashedAlone int       `json:"crashed_alone,omitempty"` // of them, with no other suspect beside it
}

// Activity is what a unit is doing in this process.
type Activity struct {
	State   string    `json:"state"` // of the unit's machine: "applying", "backoff", "recovering", ...
	At      *Place    `json:"at,omitempty"`
	Type    string    `json:"type,omitempty"`
	Attempt int       `json:"attempt,omitempty"` // at At, from 1
	Since   time.Time `json:"since,omitzero"`    // it has been doing that
	Again   time.Time `json:"again,omitzero"`    // the next attempt
	Asks    int       `json:"asks,omitempty"`    // that wait, of an entity
}

// ShowOptions says how much of a unit is shown.
type ShowOptions struct {
	Waiting int  // how many of the next events; 0 = 5, -1 = none, at most 100
	Payload bool // what they hold
}

// Unit shows one unit. A name that the store does not know is a [*NotFoundError], and so is a key that it has never seen.
func (d *Desk) Unit(ctx context.Context, u event.Unit, opts ShowOptions) (Unit, error) {
	if err := d.begin(checkUnit(u)); err != nil {
		return Unit{}, err
	}
	s, err := d.unitState(ctx, u)
	if err != nil {
		return Unit{}, err
	}
	by, err := d.runner(ctx)
	if err != nil {
		return Unit{}, err
	}
	view, err := d.viewer(ctx, opts.Payload)
	if err != nil {
		return Unit{}, err
	}
	v, err := d.show(ctx, s, by, view, opts.Waiting)
	if err == nil && v.Activity == nil {
		err = d.known(ctx, s)
	}
	if err != nil {
		return Unit{}, err
	}
	return v, nil
}

func checkUnit(u event.Unit) error {
	var faults []string
	if u.Name == "" {
		faults = append(faults, "no handler or entity kind is named: give one")
	}
	if u.Key == "" {
		faults = append(faults, "no key is named: give one")
	}
	return usage(faults)
}

// unitState reads a unit, whose name must be known.
func (d *Desk) unitState(ctx context.Context, u event.Unit) (eventstore.UnitState, error) {
	s, err := d.store.UnitState(ctx, u)
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		return s, err
	}
	left := s.Halt != nil || s.Parking != nil || s.Dead > 0 // of one that is registered no more
	if err == nil && (s.Kind != "" || left) {
		return s, nil
	}
	if err := d.checkNames(ctx, u.Name, ""); err != nil {
		return s, err
	}
	return s, err
}

// show makes a view of a unit, with what it is doing here and the next few events.
func (d *Desk) show(ctx context.Context, s eventstore.UnitState, by runner, view *viewer, waiting int) (Unit, error) {
	v := unitOf(s)
	v.Owner, v.Absent = by.owner, by.lacks[s.Unit.Name]
	if live := d.opts.Live; live != nil && live.Inspect != nil {
		activity, err := live.Inspect(ctx, s.Unit)
		if err != nil {
			return Unit{}, err
		}
		v.Activity = activity
	}
	handles, err := d.passOver(ctx, &s, &v)
	if err != nil {
		return Unit{}, err
	}
	v.State = stateOf(&v)
	v.Words = d.reasons(&v)[0]
	err = d.waiting(ctx, s, &v, handles, view, waiting)
	return v, err
}

// unitOf is a view of what the store knows alone.
func unitOf(s eventstore.UnitState) Unit {
	v := Unit{
		Handler: s.Unit.Name, Key: s.Unit.Key, Kind: string(s.Kind), Generation: uint64(s.Generation),
		Pause: pauseOf(s.Pause), HandlerPause: pauseOf(s.HandlerPause), Dead: s.Dead, Lanes: []LaneView{}, Waiting: []Event{}, Expect: expectOf(s),
	}
	if s.Halt != nil {
		h := haltOf(*s.Halt)
		v.Halt = &h
	}
	if s.Parking != nil {
		p := parkingOf(*s.Parking)
		v.Parking = &p
	}
	if t := s.Tried; t != nil {
		v.Tried = &Tried{
			At: placeOf(t.Lane, t.Sequence, t.EventID), Type: t.EventType, Attempts: t.Attempts, Error: t.Error, Last: t.Time, Again: t.Again,
			Suspicions: t.Suspicions, CrashedAlone: t.Alone,
		}
	}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		lane := LaneView{
			Category: l.Lane.Category, Key: l.Lane.Key, Backfill: l.Lane.Lane == event.Backfill,
			Tail: uint64(l.Tail), Checkpoint: uint64(l.Checkpoint.Sequence), Lag: l.Lag(),
		}
		if l.Next != nil {
			lane.NextType = l.Next.Type
		}
		v.Lag += lane.Lag
		v.Lanes = append(v.Lanes, lane)
	}
	return v
}

// expectOf is what an act on a unit in this state names; nil where it is stopped at no event.
func expectOf(s eventstore.UnitState) *Expect {
	switch {
	case s.Halt != nil:
		return &Expect{Place: placeOf(s.Halt.Lane, s.Halt.Sequence, s.Halt.EventID), Since: s.Halt.Since}
	case s.Parking != nil:
		f := s.Parking.First
		return &Expect{Place: placeOf(f.Lane, f.Sequence, f.EventID), Since: f.Time}
	}
	return nil
}

// waiting reads the next few events, in the order in which they will be applied: parked ones, then primary lanes, then backfill.
func (d *Desk) waiting(ctx context.Context, s eventstore.UnitState, v *Unit, handles handling, view *viewer, n int) error {
	switch {
	case n < 0:
		return nil
	case n == 0:
		n = 5
	}
	n = min(n, 100)
	if s.Parking != nil {
		parked, err := d.store.ListParked(ctx, s.Unit, 0, n)
		if err != nil {
			return err
		}
		for _, p := range parked {
			e, err := d.record(ctx, placeOf(p.Lane, p.Sequence, p.EventID))
			if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
				return err
			}
			if err == nil {
				v.Waiting = append(v.Waiting, view.event(e))
			}
		}
	}
	var lanes [][]event.Envelope
	for i := range s.Lanes {
		if l := &s.Lanes[i]; l.Lag() > 0 {
			rows, err := d.store.ReadLane(ctx, l.Lane, l.Checkpoint.Sequence, n)
			if err != nil {
				return err
			}
			lanes = append(lanes, rows)
		}
	}
	for len(v.Waiting) < n {
		first := -1
		for i, l := range lanes {
			if len(l) > 0 && (first < 0 || before(&l[0], &lanes[first][0])) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		e := view.event(lanes[first][0])
		e.PassedOver = handles.passes(&lanes[first][0])
		v.Waiting = append(v.Waiting, e)
		lanes[first] = lanes[first][1:]
	}
	return nil
}

// before tells which of two lanes' next events will be applied first, as well as can be told from outside.
func before(a, b *event.Envelope) bool {
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), a.Time.Compare(b.Time), a.Ref().Compare(b.Ref())) < 0
}
