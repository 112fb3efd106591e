package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// note has the store know what the broker has.
func (r *Relay) note(ctx context.Context) {
	jobs, of := r.at(func(j *job) bool { return j.known && j.has > j.done && j.next != stepDiverge })
	if len(jobs) == 0 {
		return
	}
	now := r.cfg.Now()
	notes := make([]eventstore.Published, len(jobs))
	for i, j := range jobs {
		notes[i] = eventstore.Published{Lane: j.lane, Through: j.has, Look: now.Add(r.firstLook(j))}
	}
	err := r.noteAll(ctx, of, notes)
	if errors.Is(err, eventstore.ErrStale) {
		err = r.noteEach(ctx, jobs, notes)
	}
	if err != nil {
		r.discard(jobs)
		r.trouble(ctx, "note what was published", err)
		return
	}
	r.pause = rest{}
	for i, j := range jobs {
		j.done = notes[i].Through
	}
}

// discard forgets jobs: what they are about is in the store, and is found there as it is then.
func (r *Relay) discard(jobs []*job) {
	var of parts
	for _, j := range jobs {
		j.gone = true
		of |= 1 << j.lane.Part()
	}
	r.lookAgain(of)
}

// firstLook is how long after it was published a lane is looked at. One that nobody subscribes to is looked at as well: somebody may have subscribed
// while it was published, and the relay that did not send it did not know.
func (r *Relay) firstLook(j *job) time.Duration {
	if len(j.names) == 0 {
		return r.cfg.HealAfter
	}
	return min(settle, r.cfg.HealAfter)
}

func (r *Relay) noteAll(ctx context.Context, of parts, notes []eventstore.Published) error {
	return r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) error {
		return r.cfg.Store.NotePublished(ctx, held, notes)
	})
}

// noteEach finds the parts that are held by others, and notes what there is of the rest.
func (r *Relay) noteEach(ctx context.Context, jobs []*job, notes []eventstore.Published) error {
	var byPart [event.Parts][]eventstore.Published
	var generations [event.Parts]event.Generation
	for i, j := range jobs {
		part := j.lane.Part()
		byPart[part], generations[part] = append(byPart[part], notes[i]), j.generation
	}
	var errs []error
	for p, some := range byPart {
		if len(some) == 0 {
			continue
		}
		err := r.noteAll(ctx, 1<<p, some)
		if err != nil && !errors.Is(err, errDropped) && !r.stale(err, event.Part(p), generations[p]) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stale gives up a part that is another one's by now, or of which the store has lost that it was raised, and has its lease given back. It reports whether err says so.
func (r *Relay) stale(err error, p event.Part, g event.Generation) bool {
	if !errors.Is(err, eventstore.ErrStale) {
		return false
	}
	r.mu.Lock()
	held := r.mu.held[p] == g
	if held {
		r.mu.held[p] = 0
	}
	r.mu.Unlock()
	if held && r.cfg.GiveBack != nil {
		r.cfg.GiveBack(p)
	}
	if f := r.cfg.Observer.Stale; f != nil {
		f(p)
	} else {
		r.cfg.Logger.Warn("a part is another node's by now, and is relayed there", "part", p, "generation", g)
	}
	return true
}
