package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Filter selects dead letters (for replay and purge) or stopped units (for retry, skip and dead-letter). Handler is required; other
// zero fields select all.
type Filter struct {
	Handler string    `json:"handler"`
	Key     string    `json:"key,omitempty"`
	Type    string    `json:"type,omitempty"`
	Reason  string    `json:"reason,omitempty"` // exactly, as lists show it
	EventID string    `json:"event_id,omitempty"`
	From    time.Time `json:"from,omitzero"`
	Until   time.Time `json:"until,omitzero"`
}

// JobRequest is what a person wants done to many rows.
type JobRequest struct {
	Kind   eventstore.JobKind `json:"kind"` // replay, purge, retry, skip, dead-letter
	Filter Filter             `json:"filter"`
	Rate   int                `json:"rate,omitempty"` // rows per second; 0 = [eventstore.DefaultRate]
	Actor  string             `json:"actor,omitempty"`
	Reason string             `json:"reason,omitempty"` // required but for retry and replay
}

// JobPlan is what a job would do: a dry run.
type JobPlan struct {
	Kind     eventstore.JobKind `json:"kind"`
	Filter   Filter             `json:"filter"`
	Count    int                `json:"count"`
	First    []DeadLetter       `json:"first"` // a few of the dead letters, for replay and purge
	Words    string             `json:"words"` // "would apply 3 dead letters of shipping once more, in about 1 s"
	Warnings []string           `json:"warnings"`
}

// Job is an act on many rows.
type Job struct {
	ID      int64               `json:"id"`
	Kind    eventstore.JobKind  `json:"kind"`
	Filter  Filter              `json:"filter"`
	State   eventstore.JobState `json:"state"`
	Rate    int                 `json:"rate"`
	Total   int                 `json:"total"`
	Handed  int                 `json:"handed"`
	Through int                 `json:"through"`
	Failed  int                 `json:"failed"`
	Waiting int                 `json:"waiting"` // handed out, without an outcome yet
	Actor   string              `json:"actor"`
	Reason  string              `json:"reason,omitempty"`
	Began   time.Time           `json:"began"`
	Changed time.Time           `json:"changed"`
	Words   string              `json:"words"` // "replay of 120 dead letters of shipping: running, 40 through, 2 failed, 3 in hand, about 1 s left"
	Live    string              `json:"live"`  // who does it: "this process", "process 4711 (orders@host)", "nobody has the store open: it goes on when a program starts"; "" when it is over
}

// JobQuery selects jobs.
type JobQuery struct {
	Open   bool // leaves out those that are over
	Cursor string
	Limit  int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// PlanJob tells what StartJob would do, and changes nothing.
func (d *Desk) PlanJob(ctx context.Context, r JobRequest) (JobPlan, error) {
	return JobPlan{}, errUnbuilt
}

// StartJob begins a job. A running program does it, at its rate; it goes on after a restart. To act on a single dead letter, name its
// Handler, Key and EventID.
func (d *Desk) StartJob(ctx context.Context, r JobRequest) (Job, error) { return Job{}, errUnbuilt }

// Job gives one job.
func (d *Desk) Job(ctx context.Context, id int64) (Job, error) { return Job{}, errUnbuilt }

// Jobs lists jobs, the newest first.
func (d *Desk) Jobs(ctx context.Context, q JobQuery) (Page[Job], error) {
	return Page[Job]{}, errUnbuilt
}

// PauseJob has a running job take no further rows.
func (d *Desk) PauseJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return Job{}, errUnbuilt
}

// ResumeJob has a paused job go on.
func (d *Desk) ResumeJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return Job{}, errUnbuilt
}

// CancelJob ends a job that is not over. What it has done stays done; what it has handed out and is not applied yet stays a dead letter.
func (d *Desk) CancelJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return Job{}, errUnbuilt
}
