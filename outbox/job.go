package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// job is a course under way, with what it takes to carry it out.
type job struct {
	course
	generation event.Generation // of its part, when it began
	names      []string         // subscribers; known says whether they are
	known      bool
	done       event.Sequence // noted as published by this relay
	gone       bool           // discarded
	then       *glance        // the look to be set when the lane has been offered; nil = it is set already
}

// seek asks the store for lanes with unpublished records, in the parts that are to be looked through.
func (r *Relay) seek(ctx context.Context) {
	room := r.cfg.Lanes - r.sending()
	if room <= 0 {
		return // when some are over
	}
	r.mu.Lock()
	of := r.mu.look & r.holding()
	r.mu.look = 0
	r.mu.Unlock()
	if of == 0 {
		return
	}
	limit := min(room+len(r.jobs)+len(r.resting), eventstore.MaxLimit) // those at work and at rest may be among them
	var found []eventstore.Unpublished
	err := r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) (err error) {
		found, err = r.cfg.Store.Unpublished(ctx, partsOf(held), limit)
		return err
	})
	if err != nil {
		r.lookAgain(of)
		r.trouble(ctx, "look for what is unpublished", err)
		return
	}
	fresh := 0
	for _, u := range found {
		delete(r.diverged, u.Lane) // else it would not be found
		if fresh < room && r.begin(newCourse(u.Lane, u.Published, u.Tail), nil) {
			fresh++
		}
	}
	if fresh > 0 && (fresh == room || len(found) == limit) {
		r.lookAgain(of)
	}
}

func (r *Relay) lookAgain(of parts) {
	r.mu.Lock()
	r.mu.look |= of
	r.mu.Unlock()
}

func partsOf(held []eventstore.PartFence) []event.Part {
	all := make([]event.Part, len(held))
	for i := range held {
		all[i] = held[i].Part
	}
	return all
}

// begin makes a job of a course, unless its lane is at work already, rests, or is not held. Without names it is for everybody who subscribes.
func (r *Relay) begin(c course, names []string) bool {
	if r.resting[c.lane].resting(r.cfg.Now()) {
		return false
	}
	if j := r.work[c.lane]; j != nil {
		j.tail = max(j.tail, c.tail)
		return false
	}
	r.mu.Lock()
	g := r.mu.held[c.lane.Part()]
	r.mu.Unlock()
	if g == 0 {
		return false
	}
	j := &job{course: c, generation: g, names: names, known: names != nil, done: c.noted}
	r.work[c.lane], r.jobs = j, append(r.jobs, j)
	return true
}

// share gives half of the room to what commits of this process have grown, before the rest goes to what the store is asked for: neither waits until there is nothing
// left of the other.
func (r *Relay) share(context.Context) { r.admit((r.sending() + r.cfg.Lanes + 1) / 2) }

// healing is how many of the lanes at work are offered again what was published, sending how many are not: neither is in the way of the other.
func (r *Relay) healing() (n int) {
	for _, j := range r.jobs {
		if j.offer {
			n++
		}
	}
	return n
}

func (r *Relay) sending() int { return len(r.jobs) - r.healing() }

// admit begins what commits of this process have grown, until so many lanes are at work.
func (r *Relay) admit(most int) {
	type grown struct {
		lane event.LaneRef
		span span
	}
	var some []grown
	sending := r.sending()
	r.mu.Lock()
	for lane, s := range r.mu.pending.All() {
		if len(some)+sending >= most {
			break
		}
		r.mu.pending.Delete(lane)
		some = append(some, grown{lane, s})
	}
	r.mu.Unlock()
	for _, g := range some {
		if _, stopped := r.diverged[g.lane]; !stopped {
			r.begin(newCourse(g.lane, g.span.first-1, g.span.last), nil)
		}
	}
}

// sweep takes away the jobs that are over, and those of parts that are not held any more.
func (r *Relay) sweep() {
	now := r.cfg.Now()
	r.mu.Lock()
	held := r.mu.held
	r.mu.Unlock()
	kept := r.jobs[:0]
	for _, j := range r.jobs {
		lost := j.gone || held[j.lane.Part()] != j.generation
		if !lost && (!j.over() || j.has > j.done && j.next == stepDone) {
			kept = append(kept, j)
			continue
		}
		delete(r.work, j.lane)
		if lost {
			continue
		}
		r.ended(j, now)
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
	if len(r.resting) > mostResting {
		clear(r.resting)
		r.pause = r.pause.longer(now, longestPause, longestPause)
	}
}

// ended takes note of how a job ended.
func (r *Relay) ended(j *job, now time.Time) {
	if j.next == stepRest {
		before := r.resting[j.lane]
		r.resting[j.lane] = before.longer(now, firstRest, longestRest)
		r.cfg.Logger.Debug("a lane rests", "lane", j.lane, "error", j.err)
		if r.resting[j.lane].gap == longestRest && before.gap < longestRest {
			r.stuck(j)
		}
		return
	}
	delete(r.resting, j.lane)
	if j.then != nil {
		r.done = append(r.done, *j.then)
	}
	r.mu.Lock()
	if s, more := r.mu.pending.Find(j.lane); more && s.last <= j.has {
		r.mu.pending.Delete(j.lane)
	}
	r.mu.Unlock()
	if j.mends && j.has >= j.noted {
		if f := r.cfg.Observer.Healed; f != nil {
			f(j.lane)
		} else {
			r.cfg.Logger.Warn("the broker had lost events of a lane, and has them again", "lane", j.lane)
		}
	}
}

// stuck tells of a lane that has failed again and again, while others go on.
func (r *Relay) stuck(j *job) {
	if f := r.cfg.Observer.Trouble; f != nil {
		f("send what a lane has", fmt.Errorf("%s: %w", j.lane, j.err))
		return
	}
	r.cfg.Logger.Warn("a lane cannot be sent: tried again", "lane", j.lane, "error", j.err)
}
