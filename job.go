package keyhold

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

const (
	jobBeat     = 100 * time.Millisecond // between batches of a job that is faster than that
	jobRest     = 250 * time.Millisecond // while a job waits for what it has handed out
	jobWaiting  = 1000                   // rows of a job that are handed out and have no outcome, at most
	jobStuck    = 2 * time.Second        // without an outcome: what was handed out belongs to keys that are stopped, and others go on beside it
	jobBatch    = 1000                   // rows in one commit, at most
	jobFirst    = 16                     // rows in the first commit
	jobSlow     = 50 * time.Millisecond  // a commit that takes longer is too large: others wait for it
	jobReported = 10 * time.Second       // between lines in the log
)

// jobs does what people began for many rows, at the rate they asked for. While no job is open it does nothing.
type jobs struct {
	r      *running
	wanted chan struct{} // holds a token when somebody acted on a job
	work   map[int64]*job
}

// job is an open job that runs.
type job struct {
	eventstore.Job
	batch    int       // rows that a commit may take now
	room     int       // rows that may be handed out and have no outcome
	outcomes int       // as last seen
	since    time.Time // they are so many
	next     time.Time // the next commit, not before that
	reported time.Time
}

func newJobs(r *running) *jobs {
	return &jobs{r: r, wanted: make(chan struct{}, 1), work: map[int64]*job{}}
}

// look has the jobs that are open read again. It does not block.
func (j *jobs) look() {
	select {
	case j.wanted <- struct{}{}:
	default:
	}
}

func (j *jobs) run(ctx context.Context) {
	log := j.r.app.cfg.Logger
	timer := time.NewTimer(0)
	defer timer.Stop()
	reread, failed, pause := true, 0, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wanted:
			reread = true
			if failed > 0 {
				continue // the timer says when the store is asked again
			}
		case <-timer.C:
		}
		var err error
		if failed > 0 { // a step may have been committed whose answer was lost
			err = j.r.wakeDue(ctx)
		}
		if err == nil {
			err = j.turn(ctx, reread)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 1 {
				log.Warn("jobs wait for the store", "error", err)
			}
			pause = min(max(2*pause, jobBeat), longestGap)
			reread = true
			timer.Reset(pause)
			continue
		case failed > 0:
			log.Info("jobs go on", "failed", failed)
		}
		reread, failed, pause = false, 0, 0
		if due, ok := j.due(); ok {
			timer.Reset(time.Until(due))
		} else {
			timer.Stop()
		}
	}
}

// turn does one batch of each job that is due.
func (j *jobs) turn(ctx context.Context, reread bool) error {
	if !j.r.carrier.does(dutyJobs) { // another node takes the steps; this one begins when it takes over
		clear(j.work)
		return nil
	}
	if reread {
		if err := j.read(ctx); err != nil {
			return err
		}
	}
	for _, w := range j.work {
		if time.Now().Before(w.next) {
			continue
		}
		if err := j.step(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// read finds out which jobs run.
func (j *jobs) read(ctx context.Context) error {
	open, err := j.r.app.cfg.Store.ListJobs(ctx, 0, true, eventstore.MaxLimit)
	if err != nil {
		return err
	}
	runs := map[int64]bool{}
	for _, o := range open {
		if o.State != eventstore.JobRunning {
			continue
		}
		runs[o.ID] = true
		if w := j.work[o.ID]; w != nil {
			w.Job = o
			continue
		}
		w := &job{Job: o, batch: jobFirst, room: jobWaiting, since: time.Now(), reported: time.Now()}
		j.work[o.ID] = w
		what := "job begins"
		if o.Handed > 0 {
			what = "job goes on"
		}
		j.report(what, w)
	}
	for id := range j.work {
		if !runs[id] { // paused or cancelled by a person, which the log says already
			delete(j.work, id)
		}
	}
	return nil
}

// step takes the next rows of a job.
func (j *jobs) step(ctx context.Context, w *job) error {
	store := j.r.app.cfg.Store
	began := time.Now()
	rate := w.Rate
	if rate == 0 {
		rate = eventstore.DefaultRate
	}
	w.makeRoom(began)
	most := min(w.batch, max(1, int(int64(rate)*int64(jobBeat)/int64(time.Second))), w.room-w.Waiting())
	if most < 1 { // enough is handed out
		now, err := store.ReadJob(ctx, w.ID)
		if err != nil {
			return err
		}
		w.Job, w.next = now, began.Add(jobRest)
		return nil
	}
	now, units, err := store.StepJob(ctx, w.ID, most)
	if err != nil {
		return err
	}
	for _, u := range units {
		j.r.carrier.resume(u)
	}
	taken := now.Handed - w.Handed
	w.Job = now
	w.adapt(time.Since(began), taken == most)
	w.next = began.Add(time.Duration(taken) * time.Second / time.Duration(rate))
	if taken < most || now.Handed >= now.Total { // all that is left is to wait for what is handed out
		w.next = began.Add(jobRest)
	}
	switch {
	case now.State == eventstore.JobDone:
		j.report("job is done", w)
		delete(j.work, w.ID)
	case now.State != eventstore.JobRunning:
		delete(j.work, w.ID)
	case began.Sub(w.reported) >= jobReported:
		w.reported = began
		j.report("job runs", w)
	}
	return nil
}

// makeRoom lets a job go on that has handed out all it may, to keys that are halted or paused: it would wait for them for ever, and other keys with it.
func (w *job) makeRoom(now time.Time) {
	switch outcomes := w.Through + w.Failed; {
	case outcomes != w.outcomes:
		w.outcomes, w.since = outcomes, now
	case w.Waiting() >= w.room && now.Sub(w.since) >= jobStuck:
		w.room += jobWaiting
		w.since = now
	}
}

// adapt has the next batch be smaller where others had to wait for this one.
func (w *job) adapt(took time.Duration, full bool) {
	switch {
	case took > jobSlow:
		w.batch = max(w.batch/2, 1)
	case full:
		w.batch = min(2*w.batch, jobBatch)
	}
}

// due is when the next batch of any job is.
func (j *jobs) due() (first time.Time, ok bool) {
	for _, w := range j.work {
		if !ok || w.next.Before(first) {
			first, ok = w.next, true
		}
	}
	return first, ok
}

func (j *jobs) report(what string, w *job) {
	attrs := []any{"job", w.ID, "kind", w.Kind, "handler", w.Filter.Handler, "total", w.Total, "through", w.Through}
	if w.Failed > 0 {
		attrs = append(attrs, "failed", w.Failed)
	}
	if n := w.Waiting(); n > 0 {
		attrs = append(attrs, "in_hand", n)
	}
	j.r.app.cfg.Logger.Info(what, append(attrs, "by", w.Actor)...)
}
