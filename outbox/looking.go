package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

const mostDiverged = 1_000 // of one page

// forgotten makes every look due of the parts held, once for each loss of memory.
func (r *Relay) forgotten(ctx context.Context) {
	r.mu.Lock()
	of := r.mu.forgot & r.holding()
	r.mu.forgot &^= of
	r.mu.Unlock()
	for of != 0 { // part by part, because one that is another's by now must not be in the way of the others
		part := of.list()[0]
		of &^= 1 << part
		var g event.Generation
		err := r.during(ctx, 1<<part, func(ctx context.Context, held []eventstore.PartFence) error {
			g = held[0].Generation
			return r.cfg.Store.AllLooksDue(ctx, held, r.cfg.Now())
		})
		switch {
		case errors.Is(err, errDropped) || r.stale(err, part, g):
			r.forget(1 << part)
		case err != nil:
			r.forget(of | 1<<part)
			r.trouble(ctx, "have all lanes looked at", err)
			return
		default:
			r.again = true
			r.mu.Lock()
			r.mu.spells[part]++
			r.mu.Unlock()
		}
	}
}

// forget keeps in mind that the looks of parts are to be made due when they are held.
func (r *Relay) forget(of parts) {
	r.mu.Lock()
	r.mu.forgot |= of
	r.mu.Unlock()
}

// glance is one lane that is looked at.
type glance struct {
	look  eventstore.Look
	spell uint64
	verdict
}

// look goes through looks that are due.
func (r *Relay) look(ctx context.Context) {
	now := r.cfg.Now()
	if !r.again && now.Sub(r.looked) < looksEvery {
		return
	}
	room := r.cfg.Lanes - r.healing()
	if room <= 0 {
		return
	}
	r.mu.Lock()
	of := r.holding()
	r.mu.Unlock()
	if r.showing&^of != 0 {
		maps.DeleteFunc(r.shown, func(l event.LaneRef, _ uint64) bool { return !of.has(l.Part()) })
	}
	r.showing = of
	if of == 0 {
		r.again = false
		return
	}
	limit := min(room+r.healing(), eventstore.MaxLimit) // those that are offered may be among them
	var due []eventstore.Look
	err := r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) (err error) {
		due, err = r.cfg.Store.DueLooks(ctx, partsOf(held), now, limit)
		return err
	})
	if err != nil {
		r.trouble(ctx, "ask which lanes to look at", err)
		return
	}
	full := len(due) == limit
	due = slices.DeleteFunc(due, func(l eventstore.Look) bool { j := r.work[l.Lane]; return j != nil && j.offer })
	due = due[:min(len(due), room)]
	r.looked, r.again = now, full && len(due) > 0
	if len(due) == 0 {
		return
	}
	if err := r.lookAt(ctx, of, due); err != nil {
		r.trouble(ctx, "look at lanes", err)
	}
}

func (r *Relay) lookAt(ctx context.Context, of parts, due []eventstore.Look) error {
	lanes := make([]event.LaneRef, len(due))
	for i := range due {
		lanes[i] = due[i].Lane
	}
	passing, err := r.passing(ctx, of, lanes)
	if err != nil {
		return err
	}
	if err := r.stillDiverged(ctx, of, lanes); err != nil {
		return err
	}
	now := r.cfg.Now()
	r.mu.Lock()
	spells := r.mu.spells
	r.mu.Unlock()
	var all, leaving []glance
	for i, l := range due {
		spell := spells[l.Lane.Part()]
		g := glance{look: l, spell: spell, verdict: r.terms.judge(l, &passing[i], now, r.shown[l.Lane] == spell)}
		if !g.stopped {
			delete(r.shown, l.Lane)
		}
		if _, stopped := r.diverged[l.Lane]; stopped || r.nameable(l.Lane) != nil {
			g.verdict = verdict{look: eventstore.Look{Lane: l.Lane, Published: l.Published, Due: now.Add(r.cfg.HealAfter), Gap: r.cfg.HealAfter}}
		}
		if g.retire {
			leaving = append(leaving, g)
			continue
		}
		all = append(all, g)
	}
	r.trim(ctx, all)
	if err := r.conclude(ctx, all); err != nil {
		return err
	}
	return r.leave(ctx, leaving)
}

// conclude sets what was judged, and begins to offer lanes. A look that is the last for long is set when the lane has been offered, and not before: one that is cut short, by the loss of the
// part or of the process, must be found due by whoever comes next.
func (r *Relay) conclude(ctx context.Context, all []glance) error {
	now := r.cfg.Now()
	set := make([]glance, 0, len(all))
	for i := range all {
		g := &all[i]
		if g.after {
			if r.work[g.look.Lane] == nil && !r.resting[g.look.Lane].resting(now) {
				continue
			}
			g.verdict.look = r.terms.soon(g.look, now)
		}
		set = append(set, *g)
	}
	if err := r.setLooks(ctx, set); err != nil {
		return err
	}
	for i := range all {
		g := &all[i]
		if len(g.offer) > 0 && g.look.Published > 0 && r.begin(newOffer(g.look.Lane, g.look.Published), g.offer) && g.after {
			r.work[g.look.Lane].then = g
		}
	}
	return nil
}

// offered sets the looks of the lanes that have been offered.
func (r *Relay) offered(ctx context.Context) {
	done := r.done
	r.done = nil
	if err := r.setLooks(ctx, done); err != nil {
		r.trouble(ctx, "set when to look again", err)
	}
	for i := range done {
		if g := &done[i]; g.stopped {
			r.shown[g.look.Lane] = g.spell
		}
	}
}

// stillDiverged finds out whether those of the lanes that had diverged still are.
func (r *Relay) stillDiverged(ctx context.Context, of parts, lanes []event.LaneRef) error {
	if !slices.ContainsFunc(lanes, func(l event.LaneRef) bool { _, is := r.diverged[l]; return is }) {
		return nil
	}
	now := make(map[event.LaneRef]struct{})
	var last event.LaneRef
	for page := mostDiverged; page == mostDiverged; {
		var some []eventstore.Divergence
		err := r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) (err error) {
			some, err = r.cfg.Store.ListDiverged(ctx, last, mostDiverged)
			return err
		})
		if err != nil {
			return err
		}
		for i := range some {
			last = some[i].Lane
			now[last] = struct{}{}
		}
		page = len(some)
	}
	r.diverged = now
	return nil
}

// setLooks sets what was judged; those of parts that are another's by now are that one's to set.
func (r *Relay) setLooks(ctx context.Context, all []glance) error {
	if len(all) == 0 {
		return nil
	}
	set := func(of parts, which func(event.Part) bool) error {
		return r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) error {
			var looks []eventstore.Look
			for i := range all {
				if l := all[i].verdict.look; which(l.Lane.Part()) && eventstore.Holds(held, l.Lane) {
					looks = append(looks, l)
				}
			}
			if len(looks) == 0 {
				return nil
			}
			return r.cfg.Store.SetLooks(ctx, held, looks)
		})
	}
	of := partsIn(all)
	err := set(of, func(event.Part) bool { return true })
	if !errors.Is(err, eventstore.ErrStale) {
		return err
	}
	var errs []error
	for _, p := range of.list() {
		r.mu.Lock()
		g := r.mu.held[p]
		r.mu.Unlock()
		err := set(1<<p, func(q event.Part) bool { return p == q })
		if err != nil && !errors.Is(err, errDropped) && !r.stale(err, p, g) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func partsIn(all []glance) (of parts) {
	for i := range all {
		of |= 1 << all[i].look.Lane.Part()
	}
	return of
}

// trim takes from streams what everybody has passed. What goes wrong is done at the next look.
func (r *Relay) trim(ctx context.Context, all []glance) {
	var trims []transport.Trim
	for i := range all {
		if all[i].trim > 0 {
			trims = append(trims, transport.Trim{Lane: all[i].look.Lane, Through: all[i].trim, Subscribers: all[i].remote})
		}
	}
	if len(trims) == 0 {
		return
	}
	_ = r.during(ctx, partsIn(all), func(ctx context.Context, _ []eventstore.PartFence) error {
		for i, err := range r.cfg.Broker.Trim(ctx, trims) {
			if err != nil {
				r.cfg.Logger.Debug("a stream is not trimmed", "lane", trims[i].Lane, "error", err)
			}
		}
		return nil
	})
}

// leave takes lanes off the broker that everybody has passed, and deletes their looks. Those that somebody has not passed after all, as far as the
// broker knows, are marked, so that it goes on, and looked at again.
func (r *Relay) leave(ctx context.Context, leaving []glance) error {
	if len(leaving) == 0 {
		return nil
	}
	leaving, lost, err := r.stillThere(ctx, leaving)
	if err != nil {
		return err
	}
	lanes := make([]transport.Retire, len(leaving))
	for i := range leaving {
		lanes[i] = transport.Retire{Lane: leaving[i].look.Lane, Through: leaving[i].look.Published, Subscribers: leaving[i].names}
	}
	now := r.cfg.Now()
	retired := make(map[string]int)
	var busy []transport.Append
	errs, err := r.retire(ctx, partsIn(leaving), lanes)
	if err != nil {
		return err
	}
	for i, err := range errs {
		g := &leaving[i]
		switch {
		case err == nil:
			retired[g.look.Lane.Category]++
		case errors.Is(err, transport.ErrBusy):
			busy = append(busy, transport.Append{Lane: g.look.Lane, Subscribers: g.names})
			g.verdict.look = r.terms.again(g.look, now, r.cfg.RetireAfter)
		default:
			r.cfg.Logger.Debug("a lane is not retired", "lane", g.look.Lane, "error", err)
			g.verdict.look = r.terms.again(g.look, now, r.cfg.HealAfter)
		}
	}
	if f := r.cfg.Observer.Retired; f != nil {
		for category, n := range retired {
			f(category, n)
		}
	}
	if len(busy) > 0 {
		_ = r.during(ctx, partsIn(leaving), func(ctx context.Context, _ []eventstore.PartFence) error {
			r.cfg.Broker.Append(ctx, busy) // a mark that is lost is made at the next look
			return nil
		})
	}
	return r.conclude(ctx, append(leaving, lost...))
}

// stillThere finds the lanes that a subscriber of another application may have lost: nobody here knows whether it had passed them. They are offered to
// it again, and leave later.
func (r *Relay) stillThere(ctx context.Context, leaving []glance) (there, lost []glance, err error) {
	var asked []transport.Append
	var remote []glance
	for _, g := range leaving {
		if len(g.remote) == 0 {
			there = append(there, g)
			continue
		}
		asked = append(asked, transport.Append{Lane: g.look.Lane, Subscribers: g.remote})
		remote = append(remote, g)
	}
	if len(asked) == 0 {
		return there, nil, nil
	}
	var answers []transport.Appended
	err = r.during(ctx, partsIn(remote), func(ctx context.Context, _ []eventstore.PartFence) error {
		answers = r.cfg.Broker.Append(ctx, asked)
		return nil
	})
	if err == nil && len(answers) != len(asked) {
		err = fmt.Errorf("%d answers for %d lanes", len(answers), len(asked))
	}
	if err != nil {
		return nil, nil, err
	}
	for i, a := range answers {
		switch {
		case a.Err != nil: // it stays, and fails by itself when it is offered: what else was looked at is not to wait for it
			remote[i].verdict.look, remote[i].offer = r.terms.again(remote[i].look, r.cfg.Now(), r.cfg.HealAfter), remote[i].names
			lost = append(lost, remote[i])
		case a.Outcome == transport.AppendOK && a.Newest >= remote[i].look.Published:
			there = append(there, remote[i])
		default:
			remote[i].verdict.look, remote[i].offer, remote[i].after = r.terms.again(remote[i].look, r.cfg.Now(), r.cfg.RetireAfter), remote[i].names, true
			lost = append(lost, remote[i])
		}
	}
	return there, lost, nil
}
