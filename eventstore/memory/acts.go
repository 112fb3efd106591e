package memory

import (
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Act implements [eventstore.Acts].
func (s *Store) Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error) {
	if err := a.Validate(); err != nil {
		return eventstore.ActRecord{}, err
	}
	var done eventstore.ActRecord
	err := s.change(ctx, func(d *data) error {
		if a.Time.IsZero() {
			a.Time = now()
		}
		var err error
		switch a.Kind {
		case eventstore.ActRename, eventstore.ActRemove, eventstore.ActReset:
			done, err = d.actOnHandler(&a)
		default:
			done, err = d.actOnUnit(&a)
		}
		if err == nil {
			done = d.record(done)
		}
		return err
	})
	return done, err
}

// actOnUnit does an act and gives its row, which is not kept yet.
func (d *data) actOnUnit(a *eventstore.Act) (eventstore.ActRecord, error) {
	state := d.state(a.Unit)
	var checkpoint event.Sequence
	if h := state.Halt; h != nil {
		checkpoint = d.checkpoint(h.Unit.Name, h.Lane).at
	}
	deed, err := a.Decide(state, checkpoint)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	d.do(a.Unit, &deed, a.Time)
	return a.Record(deed), nil
}

func (d *data) do(u event.Unit, deed *eventstore.Deed, at time.Time) {
	if deed.LiftHalt {
		delete(d.halts, u)
		delete(d.tried, u)
	}
	if a := deed.Advance; a != nil {
		d.lane(a.Lane).pass(mark{name: u.Name, at: a.To, id: a.EventID})
		d.moved[u.Name] = at
	}
	if deed.Dead != nil {
		d.bury(*deed.Dead)
	}
	if deed.DropFirst {
		d.dropParked(u)
	}
	if p := d.parked[u]; p != nil && deed.DueFirst {
		p.due = true
	}
	if deed.Pause != nil {
		d.pauses[u] = *deed.Pause
	}
	if deed.Resume {
		delete(d.pauses, u)
	}
}

// record keeps the row of an act.
func (d *data) record(r eventstore.ActRecord) eventstore.ActRecord {
	r.ID = int64(len(d.acts)) + 1
	d.acts = append(d.acts, r)
	return r
}

// ActsAfter implements [eventstore.Acts].
func (s *Store) ActsAfter(ctx context.Context, id int64, limit int) ([]eventstore.ActRecord, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.ActRecord
	err := s.read(ctx, func(d *data) {
		rest := d.acts[min(max(id, 0), int64(len(d.acts))):]
		found = slices.Clone(rest[:min(limit, len(rest))])
	})
	return found, err
}

// LastAct implements [eventstore.Acts].
func (s *Store) LastAct(ctx context.Context) (int64, error) {
	var last int64
	err := s.read(ctx, func(d *data) { last = int64(len(d.acts)) })
	return last, err
}

// ListActs implements [eventstore.Acts].
func (s *Store) ListActs(ctx context.Context, q eventstore.ActQuery) ([]eventstore.ActRecord, error) {
	if err := eventstore.CheckUnit(event.Unit{Name: q.Name, Key: q.Key}); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(q.Limit); err != nil {
		return nil, err
	}
	var found []eventstore.ActRecord
	err := s.read(ctx, func(d *data) {
		for _, r := range slices.Backward(d.acts) {
			if (q.Before == 0 || r.ID < q.Before) && (q.Name == "" || r.Unit.Name == q.Name) &&
				(q.Key == "" || r.Unit.Key == q.Key) && len(found) < q.Limit {
				found = append(found, r)
			}
		}
	})
	return found, err
}
