package memory

import (
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// actOnHandler does an act on a whole handler and gives its row, which is not kept yet.
func (d *data) actOnHandler(a *eventstore.Act) (eventstore.ActRecord, error) {
	name := a.Unit.Name
	h := d.registry.handlers[name]
	detail, err := a.DecideHandler(d.state(a.Unit), d.runs(h), d.taken(a.To))
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	switch a.Kind {
	case eventstore.ActRename:
		d.rename(name, a.To)
	case eventstore.ActRemove:
		d.remove(name, h.Kind.KeepsPlaces(), a)
	case eventstore.ActReset:
		if h.Begins, err = h.Rebegins(*a.Start); err != nil {
			return eventstore.ActRecord{}, err
		}
		d.registry.handlers[name] = h
		d.reset(h, *a.Start)
	}
	return a.Record(eventstore.Deed{Detail: detail}), nil
}

// runs reports whether somebody who is started handles it.
func (d *data) runs(h eventstore.Handler) bool {
	return h.StoreID == "" && slices.ContainsFunc(d.starts, func(o eventstore.Owner) bool { return o.Generation <= h.Seen })
}

// taken reports whether anything is kept under a name.
func (d *data) taken(name string) bool {
	if _, found := d.registry.handlers[name]; found {
		return true
	}
	if _, found := d.projections[name]; found {
		return true
	}
	for _, l := range d.lanes {
		if l.checkpoint(name).at > 0 {
			return true
		}
	}
	for k := range d.dead {
		if k.name == name {
			return true
		}
	}
	return len(ofName(d.halts, name))+len(ofName(d.parked, name))+len(ofName(d.tried, name))+len(ofName(d.pauses, name)) > 0
}

// ofName gives the units of a handler.
func ofName[V any](rows map[event.Unit]V, name string) []event.Unit {
	var units []event.Unit
	for u := range rows {
		if u.Name == name {
			units = append(units, u)
		}
	}
	return units
}

// forgetRows deletes the rows of a handler.
func forgetRows[V any](rows map[event.Unit]V, name string) {
	maps.DeleteFunc(rows, func(u event.Unit, _ V) bool { return u.Name == name })
}

// renameRows gives the rows of a handler to another name; named gives a row for its unit.
func renameRows[V any](rows map[event.Unit]V, from, to string, named func(V, event.Unit) V) {
	for _, u := range ofName(rows, from) {
		next := event.Unit{Name: to, Key: u.Key}
		rows[next] = named(rows[u], next)
		delete(rows, u)
	}
}

func (d *data) rename(from, to string) {
	r := &d.registry
	r.revision++
	h := r.handlers[from]
	h.Name = to
	r.handlers[to] = h
	delete(r.handlers, from)
	for _, l := range d.lanes {
		for i := range l.passed {
			if l.passed[i].name == from {
				l.passed[i].name = to
			}
		}
	}
	d.renameUnits(from, to)
	for _, j := range d.jobs {
		if j.Filter.Handler == from {
			j.Filter.Handler = to
		}
	}
	if at, found := d.moved[from]; found {
		d.moved[to] = at
		delete(d.moved, from)
	}
}

func (d *data) renameUnits(from, to string) {
	renameRows(d.halts, from, to, func(h eventstore.Halt, u event.Unit) eventstore.Halt {
		h.Unit = u
		return h
	})
	renameRows(d.tried, from, to, func(t eventstore.Tried, u event.Unit) eventstore.Tried {
		t.Unit = u
		return t
	})
	renameRows(d.pauses, from, to, func(p eventstore.Pause, u event.Unit) eventstore.Pause {
		p.Unit = u
		return p
	})
	renameRows(d.generations, from, to, func(g event.Generation, u event.Unit) event.Generation {
		return max(g, d.generations[u]) // one that was removed may have left it
	})
	renameRows(d.tallies, from, to, func(t tally, _ event.Unit) tally { return t })
	renameRows(d.parked, from, to, func(p *parking, u event.Unit) *parking {
		for i := range p.rows {
			p.rows[i].Unit = u
		}
		return p
	})
	for _, l := range d.lettersOf(from, func(*letter) bool { return true }) {
		delete(d.dead, deadKey{name: from, place: l.place()})
		l.Unit.Name = to
		d.dead[deadKey{name: to, place: l.place()}] = l
	}
}

// remove forgets a handler, but for the generations of its units: they never go back.
func (d *data) remove(name string, places bool, a *eventstore.Act) {
	d.registry.revision++
	delete(d.registry.handlers, name)
	for _, l := range d.lanes {
		if places {
			break
		}
		l.unpass(name)
	}
	forgetRows(d.halts, name)
	forgetRows(d.tried, name)
	forgetRows(d.pauses, name)
	forgetRows(d.parked, name)
	forgetRows(d.tallies, name)
	maps.DeleteFunc(d.dead, func(k deadKey, _ *letter) bool { return k.name == name })
	if !places {
		delete(d.moved, name)
	}
	for _, j := range d.jobs {
		if j.Filter.Handler == name && j.Open() {
			j.State, j.Changed = eventstore.JobCancelled, a.Time
		}
	}
}

func (l *lane) unpass(name string) {
	l.passed = slices.DeleteFunc(l.passed, func(m mark) bool { return m.name == name })
}

func (d *data) reset(h eventstore.Handler, start eventstore.Start) {
	start.Handler = h.Name
	for _, category := range h.Categories {
		for _, l := range d.sortedLanes(category) {
			l.unpass(h.Name)
			if m := l.before(start); m.at > 0 {
				l.pass(m)
			}
		}
		d.lookBehind(h.Name, category)
	}
	forgetRows(d.halts, h.Name)
	forgetRows(d.tried, h.Name)
	forgetRows(d.parked, h.Name)
}
