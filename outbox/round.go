package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

const (
	mostEntries  = 256     // of a run
	mostBytes    = 1 << 20 // of the data of a run, but for one entry that is larger
	callEntries  = 2_000   // of all runs of a call
	callBytes    = 4 << 20 // likewise
	roundEntries = 4_096   // that a round reads, shared among its lanes
	fewest       = 16      // of a lane's share
	roundBytes   = 16 << 20
	fewestBytes  = 64 << 10
)

// round takes each job one step further, or several, and notes what came of it. What is done lane by lane comes last: where it fails, nothing else is to wait for it.
func (r *Relay) round(ctx context.Context) {
	for _, phase := range []func(context.Context){r.listen, r.read, r.append, r.ask, r.replace, r.note, r.diverge, r.abandon} {
		if ctx.Err() != nil || r.pause.resting(r.cfg.Now()) {
			break
		}
		phase(ctx)
	}
	r.sweep()
	r.offered(ctx)
}

// at gives the jobs that are at a step and whose parts are held as they were.
func (r *Relay) at(is func(*job) bool) (jobs []*job, of parts) {
	r.mu.Lock()
	held := r.mu.held
	r.mu.Unlock()
	for _, j := range r.jobs {
		part := j.lane.Part()
		if is(j) && !j.gone && held[part] == j.generation {
			jobs = append(jobs, j)
			of |= 1 << part
		}
	}
	return jobs, of
}

func at(s step) func(*job) bool { return func(j *job) bool { return j.known && j.next == s } }

func (r *Relay) read(ctx context.Context) {
	jobs, of := r.at(at(stepRead))
	if len(jobs) == 0 {
		return
	}
	share := min(max(roundEntries/len(jobs), fewest), mostEntries)
	asked := make([]eventstore.LaneRead, len(jobs))
	for i, j := range jobs {
		asked[i] = eventstore.LaneRead{Lane: j.lane, After: j.reading(), Limit: share, Bytes: min(max(roundBytes/len(jobs), fewestBytes), mostBytes)}
		if j.offer && j.newest.Sequence == 0 && j.has+1 == j.noted {
			asked[i].Limit = 1
		}
	}
	var runs [][]event.Envelope
	err := r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) (err error) {
		runs, err = r.cfg.Store.ReadLanes(ctx, asked)
		return err
	})
	if err == nil && len(runs) != len(jobs) {
		err = fmt.Errorf("%d answers for %d lanes", len(runs), len(jobs))
	}
	if err != nil {
		r.trouble(ctx, "read records", err)
		return
	}
	for i, j := range jobs {
		j.read(within(runs[i]))
	}
}

// within cuts a run to what goes in one call.
func within(run []event.Envelope) []event.Envelope {
	size := 0
	for i := range run {
		if size += len(run[i].Data); size > mostBytes && i > 0 {
			return run[:i]
		}
	}
	return run
}

func (r *Relay) append(ctx context.Context) {
	jobs, _ := r.at(at(stepAppend))
	for len(jobs) > 0 && ctx.Err() == nil && !r.pause.resting(r.cfg.Now()) {
		entries, size, n := 0, 0, 0
		var of parts
		runs := make([]transport.Append, 0, len(jobs))
		for _, j := range jobs {
			for i := range j.run {
				size += len(j.run[i].Data)
			}
			if entries += len(j.run); n > 0 && (entries > callEntries || size > callBytes) {
				break
			}
			runs = append(runs, transport.Append{Lane: j.lane, Entries: j.run, Start: j.start, Subscribers: j.names})
			of |= 1 << j.lane.Part()
			n++
		}
		r.appendSome(ctx, jobs[:n], of, runs)
		jobs = jobs[n:]
	}
}

// appendSome makes one call. A lane that no broker can hold is not in it.
func (r *Relay) appendSome(ctx context.Context, jobs []*job, of parts, runs []transport.Append) {
	var sent []*job
	calls := runs[:0]
	for i, j := range jobs {
		if err := r.nameable(j.lane); err != nil {
			j.appended(transport.Appended{Err: err})
			continue
		}
		sent, calls = append(sent, j), append(calls, runs[i])
	}
	if len(sent) == 0 {
		return
	}
	var answers []transport.Appended
	err := r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		answers = r.cfg.Broker.Append(ctx, calls)
		return nil
	})
	if err == nil && len(answers) != len(sent) {
		err = fmt.Errorf("%d answers for %d lanes", len(answers), len(sent))
	}
	if err != nil {
		r.trouble(ctx, "append to streams", err)
		return
	}
	failed := 0
	for i, j := range sent {
		records := len(j.run)
		if answers[i].Err != nil {
			failed++
			err = answers[i].Err
		} else if f := r.cfg.Observer.Relayed; f != nil && answers[i].Outcome == transport.AppendOK && records > 0 {
			f(j.lane.Category, records)
		}
		j.appended(answers[i])
	}
	switch {
	case failed < len(sent):
		r.pause = rest{}
	case failed > 1 || r.othersRest(sent[0].lane):
		r.trouble(ctx, "append to streams", err)
	default:
		r.tell("append to streams", err) // it may be of this lane alone, which rests by itself
	}
}

// othersRest reports whether another lane has failed.
func (r *Relay) othersRest(lane event.LaneRef) bool {
	_, is := r.resting[lane]
	return len(r.resting) > 1 || len(r.resting) == 1 && !is
}

// nameable tells whether a broker can have a stream of that name.
func (r *Relay) nameable(lane event.LaneRef) error {
	if err := event.CheckName(lane.Category); err != nil {
		return err
	}
	return r.cfg.Keys.Check(lane.Key)
}

func (r *Relay) ask(ctx context.Context) {
	jobs, of := r.at(at(stepAsk))
	if len(jobs) == 0 {
		return
	}
	passing, err := r.passing(ctx, of, lanesOf(jobs))
	if err != nil {
		r.trouble(ctx, "ask how far subscribers are", err)
		return
	}
	for i, j := range jobs {
		j.asked(&passing[i], event.Sequence(r.cfg.MaxAhead))
	}
}

func lanesOf(jobs []*job) []event.LaneRef {
	lanes := make([]event.LaneRef, len(jobs))
	for i, j := range jobs {
		lanes[i] = j.lane
	}
	return lanes
}

func (r *Relay) passing(ctx context.Context, of parts, lanes []event.LaneRef) (passing []eventstore.Passing, err error) {
	err = r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) (err error) {
		passing, err = r.cfg.Store.Passing(ctx, lanes)
		return err
	})
	if err == nil && len(passing) != len(lanes) {
		err = fmt.Errorf("%d answers for %d lanes", len(passing), len(lanes))
	}
	return passing, err
}

func (r *Relay) replace(ctx context.Context) {
	jobs, of := r.at(at(stepReplace))
	if len(jobs) == 0 {
		return
	}
	gone := make([]transport.Retire, len(jobs))
	for i, j := range jobs {
		gone[i] = transport.Retire{Lane: j.lane, Through: j.has}
	}
	errs, err := r.retire(ctx, of, gone)
	if err != nil {
		r.trouble(ctx, "take streams away", err)
		return
	}
	for i, err := range errs {
		jobs[i].replaced(err)
	}
}

func (r *Relay) retire(ctx context.Context, of parts, lanes []transport.Retire) (errs []error, err error) {
	err = r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		errs = r.cfg.Broker.Retire(ctx, lanes)
		return nil
	})
	if err == nil && len(errs) != len(lanes) {
		err = fmt.Errorf("%d answers for %d lanes", len(errs), len(lanes))
	}
	return errs, err
}

func (r *Relay) diverge(ctx context.Context) {
	jobs, _ := r.at(at(stepDiverge))
	for _, j := range jobs {
		d := j.divergence
		d.Since = r.cfg.Now()
		err := r.during(ctx, 1<<j.lane.Part(), func(ctx context.Context, held []eventstore.PartFence) error {
			return r.cfg.Store.Diverge(ctx, held, d)
		})
		if err != nil {
			if r.stale(err, j.lane.Part(), j.generation) || errors.Is(err, errDropped) {
				continue
			}
			r.failed(ctx, j, "note a divergence", err)
			return // the next one is next, in another round: each may take as long
		}
		r.diverged[j.lane] = struct{}{}
		j.next, j.has = stepDone, j.done
		if f := r.cfg.Observer.Diverged; f != nil {
			f(d)
			continue
		}
		r.cfg.Logger.Error("the broker has events that the store has not: the store has gone back in time. Nothing of this lane is sent until somebody adopts it",
			"lane", d.Lane, "sequence", d.Sequence, "broker", d.EventID, "store", d.StoredEventID)
	}
}

func (r *Relay) abandon(ctx context.Context) {
	jobs, _ := r.at(at(stepAbandon))
	for _, j := range jobs {
		reason := j.err.Error()
		err := r.during(ctx, 1<<j.lane.Part(), func(ctx context.Context, _ []eventstore.PartFence) error {
			for i := range j.run {
				if j.run[i].Void() {
					continue
				}
				if err := r.cfg.Store.Abandon(ctx, j.lane, j.run[i].Sequence, reason); err != nil && !errors.Is(err, eventstore.ErrNotFound) {
					return err
				}
				if f := r.cfg.Observer.Abandoned; f != nil {
					f(j.lane, j.run[i].Sequence, reason)
				} else {
					r.cfg.Logger.Error("an event cannot be sent: no broker can hold its lane. It is abandoned", "lane", j.lane, "sequence", j.run[i].Sequence, "reason", reason)
				}
			}
			return nil
		})
		if err != nil {
			if errors.Is(err, errDropped) {
				continue
			}
			r.failed(ctx, j, "abandon what cannot be sent", fmt.Errorf("%s: %w", j.lane, err))
			return // likewise
		}
		j.abandoned()
	}
}

// failed has a lane rest for which a call of its own has failed; everything, when it is not the only one.
func (r *Relay) failed(ctx context.Context, j *job, what string, err error) {
	if j.rest(err); r.othersRest(j.lane) {
		r.trouble(ctx, what, err)
	} else if ctx.Err() == nil {
		r.tell(what, err)
	}
}

// trouble has everything wait a little: a call for many lanes has failed.
func (r *Relay) trouble(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || errors.Is(err, errDropped) {
		return
	}
	if r.pause.gap == 0 || r.cfg.Observer.Trouble != nil {
		r.tell(what, err)
	}
	r.pause = r.pause.longer(r.cfg.Now(), firstPause, longestPause)
}

// tell tells of something that is tried again.
func (r *Relay) tell(what string, err error) {
	if f := r.cfg.Observer.Trouble; f != nil {
		f(what, err)
		return
	}
	r.cfg.Logger.Warn("relay: "+what+": tried again", "error", err)
}
