package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Jobs are acts on many rows: durable, paced, done by a running process in small commits. A job goes on where it stood after a restart.
type Jobs interface {
	// StartJob begins a job: of j, Kind, Filter, Rate, Actor and Reason count. A replay and a retry need no reason. Total is counted here, and the start leaves an [ActRecord].
	// Errors: what [Job.Validate] says, [ErrNotFound] for a handler that is not registered; CountJob gives these as well.
	StartJob(ctx context.Context, j Job) (Job, error)
	// CountJob tells how many rows a job with this filter would take, and gives the first few of the dead letters among them. It changes nothing.
	CountJob(ctx context.Context, kind JobKind, f Filter) (int, []Dead, error)
	// ListJobs gives jobs, the newest first, with a lower id than before (0 = all), up to limit. open leaves out those that are over.
	ListJobs(ctx context.Context, before int64, open bool, limit int) ([]Job, error)
	// ReadJob gives one job; [ErrNotFound].
	ReadJob(ctx context.Context, id int64) (Job, error)
	// ActOnJob pauses, resumes or cancels a job. It is compare-and-act: a [*JobMovedError] tells the present state where that cannot be. What a
	// cancelled replay has handed out and is not applied yet is not due any more.
	ActOnJob(ctx context.Context, id int64, kind ActKind, actor, reason string) (Job, error)
	// StepJob takes the next rows of a running job, up to max (1 to 10,000), in one commit, in order of the unit's key, halts before parked
	// events, and gives the units that they belong to, each once. A replay makes its
	// rows due, a purge deletes them, the others act on them, each with an [ActRecord]. Each row is taken once; one that another replay
	// has handed out is left to that, and a row of its own that another job deletes counts as through. A job that has no rows left and waits for
	// none is done. One that is not running is given as it is.
	StepJob(ctx context.Context, id int64, max int) (Job, []event.Unit, error)
}

// JobKind says what a job does with each row.
type JobKind string

const (
	JobReplay     JobKind = "replay"      // dead letters: their handler applies each once more, and it alone
	JobPurge      JobKind = "purge"       // dead letters: they are forgotten
	JobRetry      JobKind = "retry"       // units that are halted or have parked events: as ActRetry
	JobSkip       JobKind = "skip"        // the same: as ActSkip
	JobDeadLetter JobKind = "dead-letter" // the same: as ActDeadLetter
)

// JobState says how far a job is.
type JobState string

const (
	JobRunning   JobState = "running"
	JobPaused    JobState = "paused"
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled"
)

// Job is an act on many rows.
type Job struct {
	ID      int64
	Kind    JobKind
	Filter  Filter
	State   JobState
	Rate    int // rows per second; 0 = [DefaultRate]
	Total   int // rows that the filter selected when it began
	Handed  int // taken so far
	Through int // of them, applied, deleted or acted on
	Failed  int // of them, tried and still there
	Actor   string
	Reason  string
	Began   time.Time
	Changed time.Time
}

// DefaultRate is how many rows a job takes in a second.
const DefaultRate = 100

// Waiting is how many rows were handed out and have no outcome yet.
func (j Job) Waiting() int { return max(j.Handed-j.Through-j.Failed, 0) }

// Filter selects dead letters, or what has stopped a unit: its halt, and its first parked event unless that is due (a unit may have
// both, and is then taken for each). Handler is required; other zero fields select all.
type Filter struct {
	Handler string
	Key     string // of the unit
	Type    string // of the event
	Reason  string // exactly
	EventID string
	From    time.Time // when it was set aside or stopped: at or after
	Until   time.Time // before; a job takes nothing that came after its start
}

// JobMovedError: a job is not in a state in which that can be done.
type JobMovedError struct {
	Kind ActKind
	Now  Job
}

func (e *JobMovedError) Error() string {
	return fmt.Sprintf("%s %d: it is %s", e.Kind, e.Now.ID, e.Now.State)
}
func (e *JobMovedError) Is(target error) bool { return target == ErrStateMoved }
