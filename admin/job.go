package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	Words   string              `json:"words"` // "replay of shipping: running, 40 of 120 through, 2 failed, 3 in hand, about 1 s left"
	Live    string              `json:"live"`  // who does it: "this process", "process 4711 (orders@host)", "nobody has the store open: it goes on when a program starts"; of one that is paused, when it is resumed; "" when it is over
}

// JobQuery selects jobs.
type JobQuery struct {
	Open   bool // leaves out those that are over
	Cursor string
	Limit  int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// PlanJob tells what StartJob would do, and changes nothing.
func (d *Desk) PlanJob(ctx context.Context, r JobRequest) (JobPlan, error) {
	if err := d.checkJob(ctx, &r); err != nil {
		return JobPlan{}, err
	}
	n, first, err := d.store.CountJob(ctx, r.Kind, r.Filter.store())
	if err != nil {
		return JobPlan{}, err
	}
	p := JobPlan{Kind: r.Kind, Filter: r.Filter, Count: n, First: []DeadLetter{}, Warnings: []string{}}
	for _, l := range first {
		p.First = append(p.First, deadOf(l))
	}
	p.Words = fmt.Sprintf("would %s, in about %s", doing(r.Kind, n, r.Filter.Handler), age(time.Duration(n/r.Rate)*time.Second))
	if n == 0 {
		p.Words = "there is nothing to " + Verb(string(r.Kind))
		return p, nil
	}
	switch r.Kind {
	case eventstore.JobReplay:
		warning := "their keys went on without them: later events were applied already"
		if n == 1 && len(first) == 1 {
			if warning, err = d.passed(ctx, first[0]); err != nil {
				return JobPlan{}, err
			}
		}
		if warning != "" {
			p.Warnings = append(p.Warnings, warning)
		}
	case eventstore.JobPurge:
		p.Warnings = append(p.Warnings, "they are forgotten for good, and never applied")
	case eventstore.JobSkip:
		p.Warnings = append(p.Warnings, "the events are never applied, and what comes after them is")
	case eventstore.JobDeadLetter:
		p.Warnings = append(p.Warnings, "what comes after the events is applied before them, if they ever are")
	}
	return p, nil
}

// passed says how many later events of the key of a dead letter were applied already; "" when none was.
func (d *Desk) passed(ctx context.Context, l eventstore.Dead) (string, error) {
	s, err := d.store.UnitState(ctx, l.Unit)
	if err != nil {
		return "", err
	}
	for _, lane := range s.Lanes {
		if n := uint64(lane.Checkpoint.Sequence); lane.Lane == l.Lane && n > uint64(l.Sequence) {
			return ofMany(n-uint64(l.Sequence), "later event of this key was", "later events of this key were") + " applied already", nil
		}
	}
	return "", nil
}

// doing says what a job does, with so many.
func doing(k eventstore.JobKind, n int, handler string) string {
	letters := ofMany(n, "dead letter", "dead letters") + " of " + handler
	keys := ofMany(n, "key", "keys") + " of " + handler
	switch k {
	case eventstore.JobReplay:
		return "apply " + letters + " once more"
	case eventstore.JobPurge:
		return "forget " + letters
	case eventstore.JobRetry:
		return "have " + keys + " try again"
	case eventstore.JobSkip:
		return "have " + keys + " go on without the event"
	}
	return "have " + keys + " keep the event as a dead letter and go on"
}

// StartJob begins a job. A running program does it, at its rate; it goes on after a restart. To act on a single dead letter, name its
// Handler, Key and EventID.
func (d *Desk) StartJob(ctx context.Context, r JobRequest) (Job, error) {
	if err := d.checkJob(ctx, &r); err != nil {
		return Job{}, err
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return Job{}, err
	}
	j, err := d.store.StartJob(ctx, eventstore.Job{Kind: r.Kind, Filter: r.Filter.store(), Rate: r.Rate, Actor: r.Actor, Reason: r.Reason})
	if err != nil {
		if errors.Is(err, eventstore.ErrUnknownCommit) {
			d.acted(eventstore.ActRecord{Kind: eventstore.ActStartJob})
			return Job{}, fmt.Errorf("start %s: it may have begun, look at the jobs: %w", r.Kind, err)
		}
		return Job{}, fmt.Errorf("start %s of %s: %w", r.Kind, r.Filter.Handler, err)
	}
	d.acted(eventstore.ActRecord{Kind: eventstore.ActStartJob, Job: j.ID})
	return d.jobOf(j, owner), nil
}

// checkJob checks a request and fills in what it leaves out.
func (d *Desk) checkJob(ctx context.Context, r *JobRequest) error {
	if r.Actor == "" {
		r.Actor = d.opts.Actor
	}
	if err := d.begin(usage(r.faults())); err != nil {
		return err
	}
	if r.Rate == 0 {
		r.Rate = eventstore.DefaultRate
	}
	return d.checkNames(ctx, r.Filter.Handler, "")
}

const maxRate = 100_000

func (r *JobRequest) faults() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	needsReason := true
	switch r.Kind {
	case eventstore.JobReplay, eventstore.JobRetry:
		needsReason = false
	case eventstore.JobPurge, eventstore.JobSkip, eventstore.JobDeadLetter:
	default:
		add("job %q is none: give replay, purge, retry, skip or dead-letter", r.Kind)
		needsReason = false
	}
	if r.Filter.Handler == "" {
		add("no handler or entity kind is named: give one")
	}
	if needsReason && strings.TrimSpace(r.Reason) == "" {
		add("%s needs a reason: say why", r.Kind)
	}
	if r.Actor == "" {
		add("nobody is named who acts: give a name")
	}
	if r.Rate < 0 || r.Rate > maxRate {
		add("rate is %d: give 1 to %d a second, 0 for %d", r.Rate, maxRate, eventstore.DefaultRate)
	}
	if f := r.Filter; !f.From.IsZero() && !f.Until.IsZero() && !f.From.Before(f.Until) {
		add("from %s is not before until %s: nothing lies between", f.From.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return all
}

func (f Filter) store() eventstore.Filter {
	return eventstore.Filter{Handler: f.Handler, Key: f.Key, Type: f.Type, Reason: f.Reason, EventID: f.EventID, From: f.From, Until: f.Until}
}

func (d *Desk) jobOf(j eventstore.Job, owner *Owner) Job {
	f := j.Filter
	v := Job{
		ID: j.ID, Kind: j.Kind, State: j.State, Rate: j.Rate, Total: j.Total, Handed: j.Handed, Through: j.Through, Failed: j.Failed,
		Filter:  Filter{Handler: f.Handler, Key: f.Key, Type: f.Type, Reason: f.Reason, EventID: f.EventID, From: f.From, Until: f.Until},
		Waiting: j.Waiting(), Actor: j.Actor, Reason: j.Reason, Began: j.Began, Changed: j.Changed,
	}
	if v.Rate == 0 {
		v.Rate = eventstore.DefaultRate
	}
	parts := []string{fmt.Sprintf("%s, %d of %d through", j.State, j.Through, j.Total)}
	if j.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", j.Failed))
	}
	over := j.State == eventstore.JobDone || j.State == eventstore.JobCancelled
	if !over && v.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d in hand", v.Waiting))
	}
	if left := j.Total - j.Handed; j.State == eventstore.JobRunning && left > 0 {
		parts = append(parts, "about "+age(time.Duration(left)*time.Second/time.Duration(v.Rate))+" left")
	}
	v.Words = fmt.Sprintf("%s of %s: %s", Verb(string(j.Kind)), f.Handler, strings.Join(parts, ", "))
	switch {
	case over:
	case d.opts.Live != nil:
		v.Live = "this process"
	case owner != nil:
		v.Live = owner.String()
	case j.State == eventstore.JobPaused:
		v.Live = nobody + ": it goes on when it is resumed, and a program has started"
	default:
		v.Live = nobody + ": it goes on when a program starts"
	}
	if j.State == eventstore.JobPaused && (owner != nil || d.opts.Live != nil) {
		v.Live += ", once it is resumed"
	}
	return v
}

// Job gives one job.
func (d *Desk) Job(ctx context.Context, id int64) (Job, error) {
	if err := d.ready(); err != nil {
		return Job{}, err
	}
	j, err := d.store.ReadJob(ctx, id)
	if err != nil {
		return Job{}, d.jobError(id, err)
	}
	owner, err := d.owner(ctx)
	return d.jobOf(j, owner), err
}

func (d *Desk) jobError(id int64, err error) error {
	if errors.Is(err, eventstore.ErrNotFound) {
		return &NotFoundError{What: "job", Name: strconv.FormatInt(id, 10), Hint: "See which there are: " + d.command("jobs ls", nil)}
	}
	return err
}

// Jobs lists jobs, the newest first.
func (d *Desk) Jobs(ctx context.Context, q JobQuery) (Page[Job], error) {
	var before int64
	p, err := page("jobs", q.Limit, q.Cursor, &before)
	if err = d.begin(err); err != nil {
		return Page[Job]{}, err
	}
	rows, err := d.store.ListJobs(ctx, before, q.Open, p.ask())
	if err != nil {
		return Page[Job]{}, err
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return Page[Job]{}, err
	}
	return pageOf(p, rows, func(j eventstore.Job) Job { return d.jobOf(j, owner) }, func(j eventstore.Job) any { return j.ID }), nil
}

// PauseJob has a running job take no further rows.
func (d *Desk) PauseJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return d.onJob(ctx, id, eventstore.ActPauseJob, actor, reason)
}

// ResumeJob has a paused job go on.
func (d *Desk) ResumeJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return d.onJob(ctx, id, eventstore.ActResumeJob, actor, reason)
}

// CancelJob ends a job that is not over. What it has done stays done; what it has handed out and is not applied yet stays a dead letter.
func (d *Desk) CancelJob(ctx context.Context, id int64, actor, reason string) (Job, error) {
	return d.onJob(ctx, id, eventstore.ActCancelJob, actor, reason)
}

func (d *Desk) onJob(ctx context.Context, id int64, kind eventstore.ActKind, actor, reason string) (Job, error) {
	if actor == "" {
		actor = d.opts.Actor
	}
	var faults []string
	if actor == "" {
		faults = append(faults, "nobody is named who acts: give a name")
	}
	if err := d.begin(usage(faults)); err != nil {
		return Job{}, err
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return Job{}, err
	}
	j, err := d.store.ActOnJob(ctx, id, kind, actor, reason)
	if moved, ok := errors.AsType[*eventstore.JobMovedError](err); ok {
		now := d.jobOf(moved.Now, owner)
		return Job{}, &MovedError{Act: fmt.Sprintf("%s %d", kind, id), Why: fmt.Sprintf("it is %s", moved.Now.State), Job: &now, err: err}
	}
	if err != nil {
		return Job{}, d.jobError(id, err)
	}
	d.acted(eventstore.ActRecord{Kind: kind, Job: id})
	return d.jobOf(j, owner), nil
}
