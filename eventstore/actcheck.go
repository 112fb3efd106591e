package eventstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
)

// MaxRate is the most rows that a job takes in a second.
const MaxRate = 100_000

// Validate reports what no store may do, whatever it holds: all that is wrong with the act at once.
func (a *Act) Validate() error {
	for _, text := range [...]struct{ what, is string }{
		{"name", a.Unit.Name}, {"key", a.Unit.Key}, {"category of the event", a.Seen.Lane.Category}, {"key of the event", a.Seen.Lane.Key},
	} {
		if err := event.CheckID(text.what, text.is); err != nil { // it could not be named with whatever else is wrong
			return fmt.Errorf("%s: %w", a.Kind, err)
		}
	}
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%s %q: "+format, append([]any{a.Kind, a.Unit}, args...)...))
		}
	}
	switch a.Kind {
	case ActRetry, ActSkip, ActDeadLetter:
		wrong(a.Unit.Key == "", "a key is needed: it is done to one unit")
		wrong(a.Seen.Sequence == 0 || a.Seen.Lane.Category == "", "it needs the event at which you saw the unit stopped")
	case ActRename, ActRemove, ActReset:
		wrong(a.Unit.Key != "", "it is done to a whole handler: leave the key out")
	case ActPause, ActResume:
	case ActStartJob, ActPauseJob, ActResumeJob, ActCancelJob:
		wrong(true, "jobs have calls of their own")
	case ActAdopt:
		wrong(true, "it is done to a lane, by a call of its own")
	default:
		wrong(true, "no such act")
	}
	wrong(a.Unit.Name == "", "no name of a handler")
	if a.Kind == ActRename {
		err := event.CheckDeclaredName(a.To)
		wrong(err != nil, "new name: %w", err)
		wrong(err == nil && a.To == a.Unit.Name, "it has that name already")
	}
	wrong(a.Kind == ActReset && a.Start == nil, "no start: say where it is to begin again")
	wrong(a.Actor == "", "no actor: say who does it")
	wrong(a.Reason == "" && a.needsReason(), "no reason: say why")
	return errors.Join(errs...)
}

func (a *Act) needsReason() bool {
	return a.Kind != ActRetry && a.Kind != ActPause && a.Kind != ActResume
}

// Validate reports what selects nothing in any store.
func (f *Filter) Validate() error {
	for _, text := range [...]struct{ what, is string }{{"handler", f.Handler}, {"key", f.Key}, {"type", f.Type}, {"event id", f.EventID}} {
		if err := event.CheckID(text.what, text.is); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	switch {
	case f.Handler == "":
		return errors.New("filter: name a handler")
	case !f.From.IsZero() && !f.Until.IsZero() && !f.From.Before(f.Until):
		return fmt.Errorf("filter: nothing is from %s and before %s", stamp(f.From), stamp(f.Until))
	}
	return nil
}

// Validate reports what is wrong with a job to begin, all at once.
func (j *Job) Validate() error {
	errs := []error{j.Kind.Validate(), j.Filter.Validate()}
	if j.Rate < 0 || j.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("job: rate is %d rows a second, it must be 1 to %d, or 0 for %d", j.Rate, MaxRate, DefaultRate))
	}
	if j.Actor == "" {
		errs = append(errs, errors.New("job: no actor: say who does it"))
	}
	if j.Reason == "" && j.Kind != JobReplay && j.Kind != JobRetry { // those two lose nothing
		errs = append(errs, errors.New("job: no reason: say why"))
	}
	return errors.Join(errs...)
}

// Validate reports a kind that is none.
func (k JobKind) Validate() error {
	if !slices.Contains([]JobKind{JobReplay, JobPurge, JobRetry, JobSkip, JobDeadLetter}, k) {
		return fmt.Errorf("job: no such kind %q", string(k))
	}
	return nil
}

// OfDead reports whether the rows of such a job are dead letters; else they are units that are stopped.
func (k JobKind) OfDead() bool { return k == JobReplay || k == JobPurge }

// CheckJobAct reports what cannot be done to any job.
func CheckJobAct(kind ActKind, actor string) error {
	switch {
	case kind != ActPauseJob && kind != ActResumeJob && kind != ActCancelJob:
		return fmt.Errorf("%q is not done to jobs", string(kind))
	case actor == "":
		return fmt.Errorf("%s: no actor: say who does it", kind)
	}
	return nil
}

// Validate reports a query that no store answers.
func (q *PartitionQuery) Validate() error {
	known := []Status{"", StatusDone, StatusBehind, StatusTrying, StatusHalted, StatusParking, StatusPaused}
	if !slices.Contains(known, q.Status) {
		return fmt.Errorf("no such status %q (known: %v)", string(q.Status), known[1:])
	}
	if err := CheckLane(event.LaneRef{Category: q.Category}); err != nil {
		return err
	}
	if err := CheckPage(q.Name, event.Unit{Name: q.After.Name}); err != nil {
		return err
	}
	if err := CheckLane(q.After.Lane); err != nil {
		return err
	}
	return CheckLimit(q.Limit)
}
