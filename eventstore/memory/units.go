package memory

import (
	"context"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Recover implements [eventstore.Units].
func (s *Store) Recover(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	err := s.read(ctx, func(d *data) {
		for i := range asked {
			found[i] = d.recover(&asked[i])
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Raise implements [eventstore.Units].
func (s *Store) Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	err := s.change(ctx, func(d *data) error {
		for i := range asked {
			a := &asked[i]
			raised := d.generations[a.Unit] < a.Generation
			if raised {
				d.generations[a.Unit] = a.Generation
			}
			found[i] = d.recover(a)
			found[i].Raised = raised
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (d *data) recover(a *eventstore.Ask) eventstore.Recovered {
	r := eventstore.Recovered{
		Unit:        a.Unit,
		Generation:  d.generations[a.Unit],
		Checkpoints: make([]event.Position, len(a.Lanes)),
		Halt:        d.halt(a.Unit),
		Pause:       d.pause(a.Unit),
		Parked:      d.parked[a.Unit].byCategory(),
		Due:         d.hasDue(a.Unit),
		Tried:       d.attempts(a.Unit),
	}
	for i, ref := range a.Lanes {
		m := d.checkpoint(a.Unit.Name, ref)
		r.Checkpoints[i] = event.Position{Lane: ref, Sequence: m.at, EventID: m.id}
	}
	return r
}
