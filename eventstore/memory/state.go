package memory

import (
	"context"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const countedDead = 1000 // where a unit's count of dead letters ends

// UnitState implements [eventstore.Acts].
func (s *Store) UnitState(ctx context.Context, u event.Unit) (eventstore.UnitState, error) {
	if err := eventstore.CheckUnit(u); err != nil {
		return eventstore.UnitState{}, err
	}
	var state eventstore.UnitState
	err := s.read(ctx, func(d *data) { state = d.state(u) })
	return state, err
}

func (d *data) state(u event.Unit) eventstore.UnitState {
	h := d.registry.handlers[u.Name]
	s := eventstore.UnitState{
		Unit: u, Kind: h.Kind, Generation: d.generation, HandlerPause: d.handlerPause(u.Name),
	}
	if u.Key == "" {
		return s
	}
	if g := d.generations[u]; g != 0 {
		s.Generation = g
	}
	s.Halt, s.Pause, s.Parking, s.Tried = d.halt(u), d.ownPause(u), d.parking(u), d.attempts(u)
	s.Dead = min(d.tallies[u].all, countedDead)
	for _, category := range sortedSet(h.Categories) {
		for _, kind := range []event.Lane{event.Primary, event.Backfill} {
			l := d.lanes[event.LaneRef{Category: category, Key: u.Key, Lane: kind}]
			if l == nil {
				continue
			}
			if m := l.checkpoint(u.Name); l.tail > 0 || m.at > 0 {
				s.Lanes = append(s.Lanes, l.state(m))
			}
		}
	}
	return s
}

func (l *lane) state(m mark) eventstore.LaneState {
	s := eventstore.LaneState{Lane: l.ref, Tail: l.tail, Checkpoint: event.Position{Lane: l.ref, Sequence: m.at, EventID: m.id}}
	if at := l.after(m.at); at < len(l.records) {
		next := l.records[at].Envelope
		next.Data = nil
		s.Next = &next
	}
	return s
}

// standing is the part of the state that is in the way of a unit.
func (d *data) standing(u event.Unit) eventstore.Standing {
	return eventstore.Standing{
		Halt: d.halt(u), Pause: d.ownPause(u), HandlerPause: d.handlerPause(u.Name), Parking: d.parking(u), Tried: d.attempts(u),
	}
}

// attempts gives what is known of attempts at the next event of a unit, nil when nothing.
func (d *data) attempts(u event.Unit) *eventstore.Tried {
	t, found := d.tried[u]
	if !found || t.Sequence <= d.checkpoint(u.Name, t.Lane).at {
		return nil
	}
	known := t
	return &known
}

// pause gives why a unit reads no further, nil when it does.
func (d *data) pause(u event.Unit) *eventstore.Pause {
	if len(d.pauses) == 0 {
		return nil
	}
	if p := d.ownPause(u); p != nil {
		return p
	}
	return d.handlerPause(u.Name)
}

func (d *data) ownPause(u event.Unit) *eventstore.Pause {
	p, found := d.pauses[u]
	if !found {
		return nil
	}
	known := p
	return &known
}

func (d *data) handlerPause(name string) *eventstore.Pause { return d.ownPause(event.Unit{Name: name}) }

// sortedSet gives the names in order, each once.
func sortedSet(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
