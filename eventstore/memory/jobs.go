package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// job is one with how far it has come: what stands at or before its last row is over, whatever became of it.
type job struct {
	eventstore.Job
	lastDead place
	lastStop stop
}

// stop is what has stopped a unit: its halt, or else its first parked event.
type stop struct {
	parked bool
	key    string // of the unit
}

func (s stop) compare(o stop) int {
	return cmp.Or(cmp.Compare(s.key, o.key), compareBool(s.parked, o.parked))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// outcome counts what became of a row that was handed out.
func (j *job) outcome(through bool) {
	if through {
		j.Through++
	} else {
		j.Failed++
	}
	j.Changed = now()
}

func (d *data) job(id int64) (*job, error) {
	if id < 1 || id > int64(len(d.jobs)) {
		return nil, fmt.Errorf("job %d: %w", id, eventstore.ErrNotFound)
	}
	return d.jobs[id-1], nil
}

func matches(f *eventstore.Filter, u event.Unit, kind, reason, id string) bool {
	return f.Handler == u.Name && (f.Key == "" || f.Key == u.Key) && (f.Type == "" || f.Type == kind) &&
		(f.Reason == "" || f.Reason == reason) && (f.EventID == "" || f.EventID == id)
}

// letters gives dead letters that a job takes, after its last one, in order.
func (d *data) letters(j *job) []*letter {
	return d.lettersOf(j.Filter.Handler, func(l *letter) bool {
		return matches(&j.Filter, l.Unit, l.Type, l.Reason, l.EventID) && j.Takes(l.Time) && compareByKey(l.place(), j.lastDead) > 0
	})
}

// stops gives what a job acts on, after its last one, in order.
func (d *data) stops(j *job) []stop {
	var found []stop
	add := func(s stop) {
		if s.compare(j.lastStop) > 0 {
			found = append(found, s)
		}
	}
	for _, u := range ofName(d.halts, j.Filter.Handler) {
		if h := d.halt(u); h != nil && matches(&j.Filter, u, h.EventType, h.Reason, h.EventID) && j.Takes(h.Since) {
			add(stop{key: u.Key})
		}
	}
	for _, u := range ofName(d.parked, j.Filter.Handler) {
		p := d.parked[u]
		if first := &p.rows[0]; !p.due && matches(&j.Filter, u, first.Type, first.Reason, first.EventID) && j.Takes(first.Time) {
			add(stop{key: u.Key, parked: true})
		}
	}
	slices.SortFunc(found, stop.compare)
	return found
}

// count counts the rows of a job that has not begun.
func (d *data) rows(j *job) (int, []*letter, error) {
	if _, found := d.registry.handlers[j.Filter.Handler]; !found {
		return 0, nil, fmt.Errorf("job: no handler or entity kind is called %q: %w", j.Filter.Handler, eventstore.ErrNotFound)
	}
	if j.Kind.OfDead() {
		letters := d.letters(j)
		if j.Kind == eventstore.JobReplay { // what another has handed out is left to it
			letters = slices.DeleteFunc(letters, func(l *letter) bool { return l.job != 0 })
		}
		return len(letters), letters, nil
	}
	return len(d.stops(j)), nil, nil
}

// StartJob implements [eventstore.Jobs].
func (s *Store) StartJob(ctx context.Context, given eventstore.Job) (eventstore.Job, error) {
	if err := given.Validate(); err != nil {
		return eventstore.Job{}, err
	}
	var begun eventstore.Job
	err := s.change(ctx, func(d *data) error {
		at := now()
		j := &job{Job: given.Begun(0, at)}
		total, _, err := d.rows(j)
		if err != nil {
			return err
		}
		j.Total, j.ID = total, int64(len(d.jobs))+1
		d.jobs = append(d.jobs, j)
		d.record(j.Record(eventstore.ActStartJob, j.Actor, j.Reason, at))
		begun = j.Job
		return nil
	})
	return begun, err
}

// CountJob implements [eventstore.Jobs].
func (s *Store) CountJob(ctx context.Context, kind eventstore.JobKind, f eventstore.Filter) (int, []eventstore.Dead, error) {
	if err := cmp.Or(kind.Validate(), f.Validate()); err != nil {
		return 0, nil, err
	}
	var (
		total int
		few   []eventstore.Dead
		wrong error
	)
	err := s.read(ctx, func(d *data) {
		var letters []*letter
		total, letters, wrong = d.rows(&job{Job: eventstore.Job{Kind: kind, Filter: f}.Begun(0, now())})
		for _, l := range letters[:min(len(letters), eventstore.FewDead)] {
			few = append(few, l.Dead)
		}
	})
	return total, few, cmp.Or(err, wrong)
}

// ListJobs implements [eventstore.Jobs].
func (s *Store) ListJobs(ctx context.Context, before int64, open bool, limit int) ([]eventstore.Job, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Job
	err := s.read(ctx, func(d *data) {
		for _, j := range slices.Backward(d.jobs) {
			if (before == 0 || j.ID < before) && (!open || j.Open()) && len(found) < limit {
				found = append(found, j.Job)
			}
		}
	})
	return found, err
}

// ReadJob implements [eventstore.Jobs].
func (s *Store) ReadJob(ctx context.Context, id int64) (eventstore.Job, error) {
	var (
		found eventstore.Job
		wrong error
	)
	err := s.read(ctx, func(d *data) {
		var j *job
		if j, wrong = d.job(id); wrong == nil {
			found = j.Job
		}
	})
	return found, cmp.Or(err, wrong)
}

// ActOnJob implements [eventstore.Jobs].
func (s *Store) ActOnJob(ctx context.Context, id int64, kind eventstore.ActKind, actor, reason string) (eventstore.Job, error) {
	if err := eventstore.CheckJobAct(kind, actor); err != nil {
		return eventstore.Job{}, err
	}
	var acted eventstore.Job
	err := s.change(ctx, func(d *data) error {
		j, err := d.job(id)
		if err != nil {
			return err
		}
		at := now()
		next, err := j.Acted(kind, at)
		if err != nil {
			return err
		}
		j.Job = next
		if j.State == eventstore.JobCancelled {
			for _, l := range d.lettersOf(j.Filter.Handler, func(l *letter) bool { return l.job == id }) {
				d.recall(l)
			}
		}
		d.record(j.Record(kind, actor, reason, at))
		acted = j.Job
		return nil
	})
	return acted, err
}

// StepJob implements [eventstore.Jobs].
func (s *Store) StepJob(ctx context.Context, id int64, max int) (eventstore.Job, []event.Unit, error) {
	if err := eventstore.CheckLimit(max); err != nil {
		return eventstore.Job{}, nil, err
	}
	var (
		stepped eventstore.Job
		units   []event.Unit
	)
	err := s.change(ctx, func(d *data) error {
		j, err := d.job(id)
		if err != nil {
			return err
		}
		if j.State == eventstore.JobRunning {
			var more bool
			if j.Kind.OfDead() {
				units, more = d.stepDead(j, max)
			} else {
				units, more = d.stepStops(j, max)
			}
			j.Job = j.Stepped(more, now())
		}
		stepped = j.Job
		return nil
	})
	return stepped, units, err
}

func (d *data) stepDead(j *job, max int) (units []event.Unit, more bool) {
	rows := d.letters(j)
	if j.Kind == eventstore.JobReplay {
		rows = slices.DeleteFunc(rows, func(l *letter) bool { return l.job != 0 })
	}
	taken := rows[:min(max, len(rows))]
	for _, l := range taken {
		units = append(units, l.Unit)
		j.Handed++
		j.lastDead = l.place()
		if j.Kind == eventstore.JobReplay {
			l.job = j.ID
			d.count(l.Unit, 0, 1)
		} else {
			d.forgetLetter(l)
			j.Through++
		}
	}
	return slices.Compact(units), len(rows) > len(taken)
}

func (d *data) stepStops(j *job, max int) (units []event.Unit, more bool) {
	rows := d.stops(j)
	taken := rows[:min(max, len(rows))]
	for _, s := range taken {
		u := event.Unit{Name: j.Filter.Handler, Key: s.key}
		units = append(units, u)
		j.Handed++
		j.lastStop = s
		var a eventstore.Act
		if s.parked {
			a = j.OnParking(d.parking(u), now())
		} else {
			a = j.OnHalt(d.halt(u), now())
		}
		row, err := d.actOnUnit(&a)
		if err != nil { // it cannot be done in this state: the unit stays as it is
			j.Failed++
			continue
		}
		j.Through++
		row.Job = j.ID
		d.record(row)
	}
	return slices.Compact(units), len(rows) > len(taken)
}
