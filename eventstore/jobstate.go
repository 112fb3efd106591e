package eventstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
)

// FewDead is how many dead letters [Jobs.CountJob] gives as examples.
const FewDead = 5

// Begun is the job as it begins, with as many rows as its filter selects now.
func (j Job) Begun(total int, at time.Time) Job {
	if j.Rate == 0 {
		j.Rate = DefaultRate
	}
	return Job{
		Kind: j.Kind, Filter: j.Filter, State: JobRunning, Rate: j.Rate, Total: total,
		Actor: j.Actor, Reason: j.Reason, Began: at, Changed: at,
	}
}

// Acted is the job after an act on it, or a [*JobMovedError].
func (j Job) Acted(kind ActKind, at time.Time) (Job, error) {
	next := j
	next.Changed = at
	switch {
	case kind == ActPauseJob && j.State == JobRunning:
		next.State = JobPaused
	case kind == ActResumeJob && j.State == JobPaused:
		next.State = JobRunning
	case kind == ActCancelJob && j.Open():
		next.State = JobCancelled
	default:
		return j, &JobMovedError{Kind: kind, Now: j}
	}
	return next, nil
}

// Open reports whether the job is not over.
func (j Job) Open() bool { return j.State == JobRunning || j.State == JobPaused }

// Stepped is the job after rows were taken; more: there are others that it will take.
func (j Job) Stepped(more bool, at time.Time) Job {
	j.Changed = at
	if !more && j.Waiting() == 0 {
		j.State = JobDone
	}
	return j
}

// Takes reports whether the job takes a row that was set aside, or a unit that stopped, at that time: not after the start of
// the job, and as its filter says.
func (j *Job) Takes(at time.Time) bool {
	f := &j.Filter
	return !at.After(j.Began) && !at.Before(f.From) && (f.Until.IsZero() || at.Before(f.Until))
}

// Record is the row that an act on the job leaves, but for its id.
func (j *Job) Record(kind ActKind, actor, reason string, at time.Time) ActRecord {
	return ActRecord{
		Kind: kind, Unit: event.Unit{Name: j.Filter.Handler, Key: j.Filter.Key}, Job: j.ID,
		Actor: actor, Reason: reason, Detail: j.detail(kind), Time: at,
	}
}

func (j *Job) detail(kind ActKind) string {
	noun := "dead letter"
	if !j.Kind.OfDead() {
		noun = "stop"
	}
	if kind == ActStartJob {
		return fmt.Sprintf("%s of %s, %d a second%s", j.Kind, counted(j.Total, noun), j.Rate, j.Filter.words())
	}
	return fmt.Sprintf("%s of %s: %d taken, %d through, %d failed", j.Kind, counted(j.Total, noun), j.Handed, j.Through, j.Failed)
}

// words say what a filter selects beyond its handler and key.
func (f *Filter) words() string {
	var s strings.Builder
	for _, part := range [...]struct{ name, value string }{{"type", f.Type}, {"reason", f.Reason}, {"event", f.EventID}} {
		if part.value != "" {
			fmt.Fprintf(&s, ", %s %q", part.name, part.value)
		}
	}
	if !f.From.IsZero() {
		s.WriteString(", from " + stamp(f.From) + " on")
	}
	if !f.Until.IsZero() {
		s.WriteString(", before " + stamp(f.Until))
	}
	return s.String()
}

// OnHalt is the act by which a job of the kinds retry, skip and dead-letter acts on a halt.
func (j *Job) OnHalt(h *Halt, at time.Time) Act { return j.on(h.Unit, h.position(), h.Since, at) }

// OnParking is the same for a unit that has parked events.
func (j *Job) OnParking(p *Parking, at time.Time) Act {
	return j.on(p.Unit, p.First.position(), p.First.Time, at)
}

func (j *Job) on(u event.Unit, seen event.Position, since, at time.Time) Act {
	kind := map[JobKind]ActKind{JobRetry: ActRetry, JobSkip: ActSkip, JobDeadLetter: ActDeadLetter}[j.Kind]
	return Act{Kind: kind, Unit: u, Seen: seen, Since: since, Actor: j.Actor, Reason: j.Reason, Time: at}
}

// Record is the row that an act leaves, but for its id.
func (a *Act) Record(d Deed) ActRecord {
	return ActRecord{Kind: a.Kind, Unit: a.Unit, Event: d.Event, Actor: a.Actor, Reason: a.Reason, Detail: d.Detail, Time: a.Time}
}
