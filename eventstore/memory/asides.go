package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// setAside is what units set aside.
type setAside struct {
	parked  map[event.Unit]*parking // those with a row at least
	ordinal int64                   // last drawn
	dead    map[deadKey]*letter
	tallies map[event.Unit]tally // of dead letters; those with one at least
}

// parking is what one unit has parked.
type parking struct {
	rows       []eventstore.Parked
	due        bool // the first is to be applied
	suspicions int  // of the first
}

type deadKey struct {
	name string
	place
}

// letter is a dead letter.
type letter struct {
	eventstore.Dead
	job        int64 // the replay that has handed it out; 0 = it is not due
	suspicions int
}

func (l *letter) place() place { return place{lane: l.Lane, seq: l.Sequence} }

type tally struct{ all, due int }

func newSetAside() setAside {
	return setAside{
		parked:  make(map[event.Unit]*parking),
		dead:    make(map[deadKey]*letter),
		tallies: make(map[event.Unit]tally),
	}
}

// count keeps the tally of a unit.
func (s *setAside) count(u event.Unit, all, due int) {
	t := s.tallies[u]
	t.all, t.due = t.all+all, t.due+due
	if t == (tally{}) {
		delete(s.tallies, u)
		return
	}
	s.tallies[u] = t
}

// letter gives the dead letter of a unit, nil when there is none.
func (s *setAside) letter(u event.Unit, p place) *letter {
	l := s.dead[deadKey{name: u.Name, place: p}]
	if l == nil || l.Unit != u {
		return nil
	}
	return l
}

// lettersOf gives the dead letters of a handler that are wanted, in order of key and place.
func (s *setAside) lettersOf(name string, wanted func(*letter) bool) []*letter {
	var found []*letter
	for k, l := range s.dead {
		if k.name == name && wanted(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *letter) int { return compareByKey(a.place(), b.place()) })
	return found
}

// held gives the places of what was set aside, whoever's it is.
func (s *setAside) held() map[place]bool {
	held := make(map[place]bool, len(s.dead))
	for k := range s.dead {
		held[k.place] = true
	}
	for _, p := range s.parked {
		for i := range p.rows {
			held[place{lane: p.rows[i].Lane, seq: p.rows[i].Sequence}] = true
		}
	}
	return held
}

// hasDue reports whether a unit has rows to be applied now.
func (s *setAside) hasDue(u event.Unit) bool {
	p := s.parked[u]
	return (p != nil && p.due) || s.tallies[u].due > 0
}

// isDue reports whether an attempt at a row may end.
func (s *setAside) isDue(u event.Unit, ref eventstore.AsideRef) bool {
	if ref.Kind == eventstore.AsideDead {
		l := s.letter(u, place{lane: ref.Lane, seq: ref.Sequence})
		return l != nil && l.job != 0
	}
	p := s.parked[u]
	return p != nil && p.due && p.rows[0].Lane == ref.Lane && p.rows[0].Sequence == ref.Sequence
}

// byCategory counts the rows. It may be called on nil.
func (p *parking) byCategory() []eventstore.ParkedIn {
	if p == nil {
		return nil
	}
	var counts []eventstore.ParkedIn
	for i := range p.rows {
		name := p.rows[i].Lane.Category
		at, found := slices.BinarySearchFunc(counts, name, func(c eventstore.ParkedIn, name string) int { return cmp.Compare(c.Category, name) })
		if !found {
			counts = slices.Insert(counts, at, eventstore.ParkedIn{Category: name})
		}
		counts[at].Count++
	}
	return counts
}

// list gives rows as they are told.
func (p *parking) list(rows []eventstore.Parked) []eventstore.Parked {
	rows = slices.Clone(rows)
	if len(rows) > 0 && rows[0].Ordinal == p.rows[0].Ordinal {
		rows[0].Due = p.due
	}
	return rows
}

// parking gives what a unit has parked, nil when nothing.
func (s *setAside) parking(u event.Unit) *eventstore.Parking {
	p := s.parked[u]
	if p == nil {
		return nil
	}
	return &eventstore.Parking{Unit: u, First: p.list(p.rows[:1])[0], Count: len(p.rows)}
}

// behindNothing gives an event that is to be parked behind others, where there are none; nil when all is well.
func (s *setAside) behindNothing(c *eventstore.Changes) *eventstore.Parked {
	of := func(category string) func(eventstore.Parked) bool {
		return func(p eventstore.Parked) bool { return p.Lane.Category == category }
	}
	for i := range c.Park {
		p := &c.Park[i]
		if p.Reason != "" || slices.ContainsFunc(c.Park[:i], of(p.Lane.Category)) {
			continue
		}
		if before := s.parked[p.Unit]; before == nil || !slices.ContainsFunc(before.rows, of(p.Lane.Category)) {
			return p
		}
	}
	return nil
}

// applyAsides makes what c sets aside and settles part of the data; check has passed.
func (d *data) applyAsides(c *eventstore.Changes) {
	if c.Settle != nil {
		d.settle(c.Fence.Unit, c.Settle)
	}
	if c.Suspect != nil {
		d.suspect(c.Fence.Unit, c.Suspect)
	}
	for i := range c.Dead {
		d.bury(c.Dead[i])
	}
	for i := range c.Park {
		d.park(c.Park[i])
	}
}

func (d *data) park(row eventstore.Parked) {
	p := d.parked[row.Unit]
	if p == nil {
		p = new(parking)
		d.parked[row.Unit] = p
	}
	d.ordinal++
	row.Ordinal, row.Due = d.ordinal, false
	p.rows = append(p.rows, row)
}

// dropParked takes the first parked event away; the next one, if any, is due.
func (d *data) dropParked(u event.Unit) {
	p := d.parked[u]
	p.rows, p.due, p.suspicions = p.rows[1:], true, 0
	if len(p.rows) == 0 {
		delete(d.parked, u)
	}
}

// bury keeps a dead letter. One that stands there already failed anew, whoever had handed it out.
func (d *data) bury(dead eventstore.Dead) {
	key := deadKey{name: dead.Unit.Name, place: place{lane: dead.Lane, seq: dead.Sequence}}
	if was := d.dead[key]; was != nil {
		d.outcome(was, false)
		d.count(was.Unit, -1, 0)
	}
	d.dead[key] = &letter{Dead: dead}
	d.count(dead.Unit, 1, 0)
}

// forgetLetter deletes a dead letter; a job that has handed it out need not wait for it.
func (d *data) forgetLetter(l *letter) {
	d.outcome(l, true)
	d.count(l.Unit, -1, 0)
	delete(d.dead, deadKey{name: l.Unit.Name, place: l.place()})
}

// outcome tells the job that has handed a dead letter out what became of it. It is not due any more.
func (d *data) outcome(l *letter, through bool) {
	if l.job == 0 {
		return
	}
	d.jobs[l.job-1].outcome(through)
	d.recall(l)
}

// recall takes back a dead letter that was handed out.
func (d *data) recall(l *letter) {
	l.job, l.suspicions = 0, 0
	d.count(l.Unit, 0, -1)
}

func (d *data) settle(u event.Unit, s *eventstore.Settle) {
	if s.Kind == eventstore.AsideDead {
		l := d.letter(u, place{lane: s.Lane, seq: s.Sequence})
		if s.Failed == nil {
			d.forgetLetter(l)
			return
		}
		d.outcome(l, false)
		l.Attempts, l.Reason, l.Error, l.Time = s.Failed.Attempts, s.Failed.Reason, s.Failed.Error, s.Failed.Time
		return
	}
	if s.Failed == nil {
		d.dropParked(u)
		return
	}
	p := d.parked[u]
	p.due, p.suspicions = false, 0
	first := &p.rows[0]
	first.Attempts, first.Reason, first.Error, first.Time = s.Failed.Attempts, s.Failed.Reason, s.Failed.Error, s.Failed.Time
}

func (d *data) suspect(u event.Unit, s *eventstore.Suspect) {
	if s.Kind == eventstore.AsideDead {
		d.letter(u, place{lane: s.Lane, seq: s.Sequence}).suspicions = s.Suspicions
		return
	}
	d.parked[u].suspicions = s.Suspicions
}

// DueAsides implements [eventstore.Asides].
func (s *Store) DueAsides(ctx context.Context, u event.Unit, limit int) ([]eventstore.Aside, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var (
		found []eventstore.Aside
		from  []*record
	)
	err := s.read(ctx, func(d *data) {
		add := func(kind eventstore.AsideKind, p place, id string, attempts, suspicions int) {
			if len(found) < limit {
				ref := eventstore.AsideRef{Kind: kind, Lane: p.lane, Sequence: p.seq}
				found = append(found, eventstore.Aside{AsideRef: ref, Attempts: attempts, Suspicions: suspicions})
				from = append(from, d.recordAt(p, id))
			}
		}
		if p := d.parked[u]; p != nil && p.due {
			for i := range p.rows {
				r, suspicions := &p.rows[i], 0
				if i == 0 {
					suspicions = p.suspicions
				}
				add(eventstore.AsideParked, place{lane: r.Lane, seq: r.Sequence}, r.EventID, r.Attempts, suspicions)
			}
		}
		if d.tallies[u].due == 0 {
			return
		}
		rows := d.lettersOf(u.Name, func(l *letter) bool { return l.Unit == u && l.job != 0 })
		slices.SortFunc(rows, func(a, b *letter) int { return a.place().compare(b.place()) })
		for _, l := range rows {
			add(eventstore.AsideDead, l.place(), l.EventID, l.Attempts, l.suspicions)
		}
	})
	for i, e := range copies(from) {
		found[i].Record = e
	}
	return found, err
}

// recordAt gives the record at a place, a void where there is none.
func (d *data) recordAt(p place, id string) *record {
	if l := d.lanes[p.lane]; l != nil {
		if at, found := l.at(p.seq); found {
			return l.records[at]
		}
	}
	return &record{Envelope: event.Envelope{ID: id, Category: p.lane.Category, Key: p.lane.Key, Lane: p.lane.Lane, Sequence: p.seq}}
}

// DueUnits implements [eventstore.Asides].
func (s *Store) DueUnits(ctx context.Context, after event.Unit, limit int) ([]event.Unit, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.Unit
	err := s.read(ctx, func(d *data) {
		add := func(u event.Unit) {
			if compareUnits(u, after) > 0 && d.hasDue(u) && d.halt(u) == nil && d.pause(u) == nil {
				found = append(found, u)
			}
		}
		for u := range d.parked {
			add(u)
		}
		for u := range d.tallies {
			add(u)
		}
	})
	slices.SortFunc(found, compareUnits)
	found = slices.Compact(found)
	return found[:min(limit, len(found))], err
}

// ListParked implements [eventstore.Asides].
func (s *Store) ListParked(ctx context.Context, u event.Unit, after int64, limit int) ([]eventstore.Parked, error) {
	if err := eventstore.CheckUnit(u); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Parked
	err := s.read(ctx, func(d *data) {
		p := d.parked[u]
		if p == nil {
			return
		}
		at, _ := slices.BinarySearchFunc(p.rows, after+1, func(r eventstore.Parked, o int64) int { return cmp.Compare(r.Ordinal, o) })
		rest := p.rows[at:]
		found = p.list(rest[:min(limit, len(rest))])
	})
	return found, err
}

// ListParking implements [eventstore.Asides].
func (s *Store) ListParking(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Parking, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Parking
	err := s.read(ctx, func(d *data) {
		for _, u := range slices.SortedFunc(maps.Keys(d.parked), compareUnits) {
			if (name == "" || u.Name == name) && compareUnits(u, after) > 0 && len(found) < limit {
				found = append(found, *d.parking(u))
			}
		}
	})
	return found, err
}
