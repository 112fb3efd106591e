package keyholdtest

import (
	"context"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// jobs knows which jobs are over, from the steps that the application takes.
type jobs struct {
	mu struct {
		sync.Mutex
		over    map[int64]bool
		changed chan struct{} // closed and forgotten when a job is over
	}
}

func (j *jobs) stepped(job eventstore.Job) {
	if job.State == eventstore.JobRunning || job.State == eventstore.JobPaused {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.over == nil {
		j.mu.over = map[int64]bool{}
	}
	j.mu.over[job.ID] = true
	if j.mu.changed != nil {
		close(j.mu.changed)
		j.mu.changed = nil
	}
}

// look reports whether a job is over, and when to look again.
func (j *jobs) look(id int64) (over bool, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.changed == nil {
		j.mu.changed = make(chan struct{})
	}
	return j.mu.over[id], j.mu.changed
}

// StepJob tells jobs.
func (r *recorder) StepJob(ctx context.Context, id int64, max int) (eventstore.Job, []event.Unit, error) {
	job, units, err := r.Store.StepJob(ctx, id, max)
	if err == nil {
		r.jobs.stepped(job)
	}
	return job, units, err
}

// awaitJob returns when the application is through with a job.
func (r *recorder) awaitJob(ctx context.Context, id int64) error {
	for {
		over, changed := r.jobs.look(id)
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
