package sim

import (
	"strconv"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// The broker: streams, leases and busy marks. All of its calls are atomic.

// produce commits a record and has it published.
func (w *world) produce(u *unit, l *lane, r *record) {
	l.records = append(l.records, r)
	seq := event.Sequence(len(l.records))
	w.tell("produced %s #%d %s", l.ref, seq, r.kind)
	if !w.scene.Leased {
		w.wake(u) // a call that follows the commit
		return
	}
	w.publish(u, l)
}

// publish appends what is new to the stream, marks the unit busy and wakes.
func (w *world) publish(u *unit, l *lane) {
	newest := event.Sequence(len(l.records))
	switch {
	case l.hi >= newest:
		return
	case l.hi == 0 && !l.foreign && w.rng.IntN(2) == 0:
		l.lo = newest // a stream that was lost begins anew with a hole below, until it is healed
	case l.hi == 0:
		l.lo = max(l.acked, l.checkpoint) + 1
		if l.foreign {
			l.lo = l.acked + 1
		}
	}
	l.hi = newest
	if w.chance(6) && !l.foreign {
		l.lo = newest // a stream that had grown too long lost what was not read yet
	}
	u.busy = true
	if !w.chance(4) { // else the wake is lost, and only the next scan finds it
		w.wake(u)
	}
}

// wake has a wake delivered to every node.
func (w *world) wake(u *unit) {
	for _, n := range w.nodes {
		if n.up {
			n.deliver(func() { n.wake(u) })
		}
	}
}

// heal offers again what the store knows and nobody has passed.
func (w *world) heal() {
	for _, u := range w.units {
		for _, l := range u.lanes {
			if tail := event.Sequence(len(l.records)); l.checkpoint < tail && !l.foreign {
				l.lo, l.hi, l.acked = l.checkpoint+1, tail, l.checkpoint
				u.busy = true
			}
			if l.foreign && l.checkpoint < l.hi {
				u.busy = true
			}
		}
		u.busy = u.busy || u.isDue()
		if u.busy && u.reads() {
			w.wake(u)
		}
	}
}

// flush empties the broker, but for the streams of other producers, which nobody could bring back.
func (w *world) flush() {
	w.tell("broker: flushed")
	for _, u := range w.units {
		w.forgetLease(u)
		u.counter, u.busy = 0, false
		for _, l := range u.lanes {
			if !l.foreign {
				l.lo, l.hi, l.acked = 0, 0, 0
			}
		}
	}
	w.amnesty = w.now.Add(ttl)
}

// loseTail is a failover to a replica that was a little behind.
func (w *world) loseTail(u *unit) {
	w.tell("broker: lost the tail of %s", u.id)
	for _, v := range w.units {
		if v.owner != 0 { // a lease and its generation are written together, and are lost together
			v.counter = v.gen - 1
		}
		w.forgetLease(v)
	}
	for _, l := range u.lanes {
		if l.hi > 0 && !l.foreign {
			if l.hi--; l.hi < l.lo {
				l.lo, l.hi = 0, 0
			}
			l.acked = min(l.acked, l.hi)
		}
	}
	u.busy = false
	w.amnesty = w.now.Add(ttl)
}

func (w *world) forgetLease(u *unit) { u.owner, u.gen, u.until, u.clean = 0, 0, 0, true }

func (w *world) leased(u *unit) bool { return u.owner != 0 && w.now < u.until }

// holds is the fence: does the owner hold the unit at this generation?
func (w *world) holds(u *unit, owner int, gen event.Generation) bool {
	return w.leased(u) && u.owner == owner && u.gen == gen
}

func (w *world) acquire(u *unit, owner int, floor event.Generation) partitions.Acquired {
	switch {
	case !w.scene.Leased:
		first := owner > u.begun // what a process asked for that is no more may come late
		u.begun = max(u.begun, owner)
		return partitions.Acquired{Granted: true, Generation: w.storeGen, Unclean: first && !w.stopped}
	case w.now < w.amnesty && w.scene.Without != Amnesty:
		// To units that were never raised as well: the answer to an acquisition from before may still be on its way.
		return partitions.Acquired{Forgot: true}
	case w.leased(u) && u.owner != owner:
		return partitions.Acquired{HeldFor: duration(u.until - w.now), Holder: strconv.Itoa(u.owner), HeldAt: u.gen}
	}
	unclean := !u.clean && u.owner != owner
	u.counter = max(u.counter, floor) + 1
	u.owner, u.gen, u.until, u.clean = owner, u.counter, w.now.Add(ttl), false
	return partitions.Acquired{Granted: true, Generation: u.gen, Unclean: unclean}
}

func (w *world) renew(u *unit, owner int, gen event.Generation) bool {
	if !w.holds(u, owner, gen) {
		return false
	}
	u.until = w.now.Add(ttl)
	return true
}

func (w *world) release(u *unit, owner int, gen event.Generation, ifIdle bool) partitions.Outcome {
	switch {
	case !w.scene.Leased:
		return partitions.OK
	case !w.holds(u, owner, gen):
		return partitions.Stale
	case ifIdle && u.busy:
		return partitions.Busy
	}
	u.owner, u.gen, u.until, u.clean = 0, 0, 0, true
	return partitions.OK
}

// fetch is the fenced read, and with ack the fenced advance.
func (w *world) fetch(u *unit, owner int, e *partitions.Fetch) partitions.FetchDone {
	if w.scene.Leased && !w.holds(u, owner, e.Generation) || !w.scene.Leased && e.Generation != w.storeGen {
		return partitions.FetchDone{Outcome: partitions.Stale}
	}
	var in partitions.FetchDone
	found := false
	for _, kind := range []event.Lane{event.Primary, event.Backfill} {
		for i, l := range u.lanes {
			pos := e.Positions[i].Sequence
			if l.ref.Lane != kind {
				continue
			}
			if e.Ack && w.scene.Leased {
				w.acknowledge(l, pos)
			}
			got, gap := w.read(l, pos, e.Max-len(in.Entries))
			if gap && !found {
				in.Gap, in.Lane, in.Entries = true, l.ref, nil
				return in
			}
			found = found || len(got) > 0 || gap
			in.Entries = append(in.Entries, got...)
		}
	}
	if e.Ack && !found && !u.isDue() {
		u.busy = false
	}
	if !found || !w.scene.Leased && len(in.Entries) < e.Max {
		in.Drained = w.rng.IntN(2) == 0
	}
	return in
}

func (w *world) acknowledge(l *lane, pos event.Sequence) {
	if pos > l.checkpoint {
		w.fail("%s is acknowledged up to #%d, the checkpoint is %d", l.ref, pos, l.checkpoint)
	}
	w.trim(l, pos)
}

// trim removes what was acknowledged, but for the newest entry.
func (w *world) trim(l *lane, pos event.Sequence) {
	l.acked = max(l.acked, min(pos, l.hi))
	if l.hi > 0 {
		l.lo = max(l.lo, min(l.acked+1, l.hi))
	}
}

// read gives what follows pos in a lane.
func (w *world) read(l *lane, pos event.Sequence, most int) (got []event.Envelope, gap bool) {
	tail := event.Sequence(len(l.records))
	if w.scene.Leased {
		tail = l.hi
	}
	from := pos + 1
	if w.scene.Leased && from < l.lo {
		switch {
		case l.foreign:
			return nil, true
		case w.rng.IntN(3) == 0:
			from = l.lo // a careless port, that does not look in the store
		}
	}
	for seq := from; seq <= tail && len(got) < most; seq++ {
		got = append(got, l.envelope(seq))
	}
	return got, false
}

func (l *lane) envelope(seq event.Sequence) event.Envelope {
	kind := l.records[seq-1].kind
	if kind == "void" {
		kind = ""
	}
	return event.Envelope{Type: kind, Category: l.ref.Category, Key: l.ref.Key, Lane: l.ref.Lane, Sequence: seq}
}
