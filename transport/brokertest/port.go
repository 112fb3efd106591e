package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// lease is what the server knows of a unit.
type lease struct {
	owner      string
	generation event.Generation
	until      time.Duration
	unclean    bool                       // not released since it was last granted
	lanes      map[event.LaneRef]struct{} // that were read
}

// port is how the units of a node own and read.
type port struct{ *Broker }

var _ partitions.Port = (*port)(nil)

// errAsked: what is next was asked of the producer.
var errAsked = errors.New("broker in memory: entries are missing, and the producer was asked for them")

// errShort: a stream has lost its end, or another history than the reader has applied.
var errShort = errors.New("broker in memory: the stream ends below what was applied")

func (s *Server) unit(u event.Unit) *lease {
	l := s.mu.units[u]
	if l == nil || s.now() >= l.until+s.limits.RetireAfter {
		l = &lease{lanes: make(map[event.LaneRef]struct{})}
		s.mu.units[u] = l
	}
	return l
}

func (p *port) Traits() partitions.Traits { return p.traits }

func (p *port) Acquire(ctx context.Context, u event.Unit, floor event.Generation) (partitions.Acquired, error) {
	var got partitions.Acquired
	owner := p.OwnerID()
	err := p.do(ctx, Call{Op: "acquire", Unit: u}, func() error {
		now := p.now()
		if now < p.mu.amnesty && !p.trusts() {
			got.Forgot = true
			return nil
		}
		l := p.unit(u)
		if l.owner != "" && l.owner != owner && now < l.until {
			got.HeldFor, got.Holder, got.HeldAt = l.until-now, l.owner, l.generation
			return nil
		}
		got = partitions.Acquired{Granted: true, Generation: max(l.generation, floor) + 1, Unclean: l.unclean && l.owner != owner}
		l.owner, l.generation, l.until, l.unclean = owner, got.Generation, now+p.traits.TTL, true
		return nil
	})
	if err != nil {
		return partitions.Acquired{}, err
	}
	return got, nil
}

// holds is the fence.
func (p *port) holds(h partitions.Held, owner string) (*lease, error) {
	l := p.mu.units[h.Unit]
	if l == nil || l.owner != owner || l.generation != h.Generation || p.now() >= l.until {
		return nil, fmt.Errorf("%s at generation %d: %w", h.Unit, h.Generation, partitions.ErrFenced)
	}
	return l, nil
}

func (p *port) Renew(ctx context.Context, held []partitions.Held) []error {
	errs := make([]error, len(held))
	owner := p.OwnerID()
	for i, h := range held {
		errs[i] = p.do(ctx, Call{Op: "renew", Unit: h.Unit}, func() error {
			l, err := p.holds(h, owner)
			if err == nil {
				l.until = p.now() + p.traits.TTL
			}
			return err
		})
	}
	return errs
}

func (p *port) Release(ctx context.Context, h partitions.Held, ifIdle bool) error {
	owner := p.OwnerID()
	return p.do(ctx, Call{Op: "release", Unit: h.Unit}, func() error {
		l, err := p.holds(h, owner)
		if err != nil {
			return err
		}
		unread := p.unread(h.Unit, l)
		if ifIdle && unread {
			return fmt.Errorf("release %s: %w", h.Unit, partitions.ErrBusy)
		}
		if !unread && ifIdle {
			delete(p.mu.busy[h.Unit.Name], h.Unit.Key)
		}
		l.owner, l.until, l.unclean = "", p.now(), false
		return nil
	})
}

func (s *Server) unread(u event.Unit, l *lease) bool {
	for lane := range l.lanes {
		if st := s.mu.streams[lane]; st.newest() > 0 {
			if passed, read := st.passed[u.Name]; !read || passed < st.newest() {
				return true
			}
		}
	}
	return false
}

func (p *port) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	return p.read(ctx, "fetch", h, above, max)
}

func (p *port) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.read(ctx, "advance", h, done, max)
}

// part is what one lane has above a position: first what its stream lost, which may be elsewhere.
type part struct {
	lane    event.LaneRef
	after   event.Sequence
	lost    event.Sequence // up to here
	foreign bool
	other   string         // event at the place of the unit, which has applied another one there
	short   bool           // the stream ends below the place of the unit
	asked   bool           // of the producer, who did not answer yet
	place   event.Sequence // where the unit begins, which had none; 0 = it has one
	entries []event.Envelope
}

func (p *port) read(ctx context.Context, op string, h partitions.Held, above []event.Position, most int) (partitions.Fetched, error) {
	var parts []part
	owner := p.OwnerID()
	_, own := p.bound()
	err := p.do(ctx, Call{Op: op, Unit: h.Unit}, func() error {
		l, err := p.holds(h, owner)
		if err != nil {
			return err
		}
		for _, kind := range []event.Lane{event.Primary, event.Backfill} {
			for _, pos := range above {
				if pos.Lane.Lane == kind {
					l.lanes[pos.Lane] = struct{}{}
					parts = p.take(parts, h.Unit, pos, op == "advance", own)
				}
			}
		}
		if op == "advance" && len(parts) == 0 {
			delete(p.mu.busy[h.Unit.Name], h.Unit.Key)
		}
		return nil
	})
	if err != nil {
		return partitions.Fetched{}, err
	}
	for i := range parts {
		switch next := &parts[i]; {
		case next.short:
			return partitions.Fetched{}, fmt.Errorf("%s ends below %d: %w", next.lane, next.after, errShort)
		case next.other != "":
			return partitions.Fetched{Diverged: true, Found: event.Position{Lane: next.lane, Sequence: next.after, EventID: next.other}}, nil
		}
	}
	if err := p.begin(ctx, h, parts); err != nil {
		return partitions.Fetched{}, err
	}
	return p.join(ctx, parts, most)
}

// take notes how far the unit is with a lane, and adds what is above.
func (p *port) take(parts []part, u event.Unit, pos event.Position, ack bool, own string) []part {
	st := p.mu.streams[pos.Lane]
	producer := p.mu.categories[pos.Lane.Category].StoreID
	next := part{lane: pos.Lane, after: pos.Sequence, foreign: producer != "" && producer != own}
	if st.newest() == 0 {
		if newest := p.mu.newest[pos.Lane]; next.foreign && newest > pos.Sequence {
			next.lost = newest
			p.missing(&next, u)
			return append(parts, next)
		}
		return parts
	}
	if passed, read := st.passed[u.Name]; !read || ack && passed < pos.Sequence {
		st.passed[u.Name] = pos.Sequence
	}
	if known := next.foreign && pos.Sequence > 0 && pos.EventID != ""; known && pos.Sequence > st.newest() {
		next.short = true
		return append(parts, next)
	} else if there := st.at(pos.Sequence); known && there != nil && there.ID != pos.EventID && !there.Void() {
		next.other = there.ID
		return append(parts, next)
	}
	if pos.Sequence >= st.newest() {
		return parts
	}
	if first := st.entries[0].Sequence; pos.Sequence+1 < first {
		next.lost = first - 1
		if next.foreign {
			p.missing(&next, u)
		}
		next.entries = append(next.entries, st.entries...)
	} else {
		next.entries = st.entries[pos.Sequence+1-first:]
		if from, begins := p.begins(u.Name, &next); next.foreign && begins && !next.entries[0].Time.IsZero() && next.entries[0].Time.Before(from) {
			next.lost = first
			p.missing(&next, u)
		}
	}
	return append(parts, next)
}

// missing takes the run that the producer wrote, or asks for it.
func (p *port) missing(next *part, u event.Unit) {
	at := place{u, next.lane}
	from, begins := p.begins(u.Name, next)
	got := p.mu.served[at]
	if got != nil && got.begin && begins && got.after > 0 {
		next.place = got.after
		return
	}
	if got != nil && got.after == next.after && (!got.begin || len(got.entries) > 0) {
		for i := range got.entries {
			if got.entries[i].Sequence <= next.lost {
				next.entries = append(next.entries, got.entries[i])
			}
		}
		return
	}
	next.asked = true
	if w, open := p.mu.wanted[at]; !open || w.After != next.after {
		p.mu.asked++
		p.mu.wanted[at] = transport.Wanted{Unit: u, Lane: next.lane, After: next.after, Begin: begins, From: from, ID: strconv.Itoa(p.mu.asked)}
	}
}

// begins tells from when on a unit begins that has no place in a lane.
func (p *port) begins(name string, next *part) (from time.Time, begins bool) {
	p.own.Lock()
	defer p.own.Unlock()
	from, begins = p.own.begins[subscription{name, next.lane.Category}]
	return from, begins && next.after == 0
}

// begin sets the places of a unit in its store, and gives it up.
func (p *port) begin(ctx context.Context, h partitions.Held, parts []part) error {
	records, _ := p.bound()
	for i := range parts {
		if parts[i].place == 0 {
			continue
		}
		store, ok := records.(eventstore.Beginner)
		if !ok {
			return errors.New("broker in memory: the store that is bound takes no places")
		}
		_, err := store.Begin("broker in memory").Commit(ctx, eventstore.Changes{
			Fence: eventstore.Fence{Unit: h.Unit, Generation: h.Generation}, Advance: []eventstore.Advance{{Lane: parts[i].lane, To: parts[i].place}},
		})
		if err != nil {
			return err
		}
		return errors.Join(p.Release(ctx, h, false), fmt.Errorf("%s begins anew: %w", h.Unit, partitions.ErrFenced))
	}
	return nil
}

// join makes one answer of the parts, reading from the store what streams lost.
func (p *port) join(ctx context.Context, parts []part, most int) (partitions.Fetched, error) {
	got := partitions.Fetched{Drained: true}
	for i := range parts {
		next := &parts[i]
		room := most - len(got.Entries)
		if room == 0 {
			got.Drained = false
			break
		}
		if next.asked {
			return partitions.Fetched{}, fmt.Errorf("read %s above %d: %w", next.lane, next.after, errAsked)
		}
		if next.lost > 0 && !next.foreign {
			if err := p.fromStore(ctx, next, room); err != nil {
				return partitions.Fetched{}, err
			}
		}
		run := follows(next.entries, next.after)
		if len(run) == 0 {
			return partitions.Fetched{Gap: true, Lane: next.lane}, nil
		}
		n := min(room, len(run))
		got.Entries = append(got.Entries, run[:n]...)
		got.Drained = got.Drained && n == len(next.entries)
	}
	return got, nil
}

// follows gives the run that begins right above a sequence.
func follows(entries []event.Envelope, after event.Sequence) []event.Envelope {
	for i := range entries {
		if entries[i].Sequence != after+event.Sequence(i)+1 {
			return entries[:i]
		}
	}
	return entries
}

func (p *port) fromStore(ctx context.Context, next *part, most int) error {
	records, _ := p.bound()
	if records == nil {
		return nil
	}
	kept, err := records.ReadLane(ctx, next.lane, next.after, most)
	if err != nil {
		return fmt.Errorf("read %s from the store: %w", next.lane, err)
	}
	for len(kept) > 0 && kept[len(kept)-1].Sequence > next.lost {
		kept = kept[:len(kept)-1]
	}
	next.entries = append(kept, next.entries...)
	return nil
}
