package redis

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/ebb"
	"github.com/keyhold/keyhold/partitions"
)

// port is the [partitions.Port] of one connection. What it remembers of units are conveniences, which a call that knows nothing of the unit does without: names,
// and what needs no second acknowledgement.
type port struct {
	t       *Transport
	c       *connection
	orphans lines // for slots that no server is known to have

	mu struct {
		sync.Mutex
		tenures ebb.Map[event.Unit, *tenure]
		kept    int // how many there were after the last look for those that are over
	}
}

var _ partitions.Port = (*port)(nil)

// tenure is one unit in the time between Acquire and Release. Whoever calls for the unit has it to itself, but for what never changes.
type tenure struct {
	unit       event.Unit
	generation event.Generation
	owner      string // never changes, nor do holder and the names
	holder     string
	lease      string // of a part the hash of all parts of its store
	counter    string // of generations; of a part the same hash
	field      string // of a part in that hash; "" = no part
	busy       string
	proven     atomic.Int64 // when the lease was last known to be held, as time.Time.UnixNano
	kept       atomic.Int64 // likewise, when it was last said for how long the generation is kept

	lanes []laneTenure
	tidy  tidying
}

// laneTenure is one lane of the unit.
type laneTenure struct {
	ref    event.LaneRef
	stream string
	newest string         // of a category that another store produces; "" = of none
	acked  event.Sequence // the durable checkpoint, as far as it was told
	sure   bool           // nothing at or below acked is pending
	agreed bool           // the stream was seen to have the unit's history
	lost   event.Sequence // the stream has nothing below this, but the caller is there; 0 = it is not so
}

// tidying says when consumers that own nothing are to be removed from the unit's groups.
type tidying int

const (
	tidyNever   tidying = iota
	tidyAtOnce          // the last owner's, unless it left something pending
	tidyDrained         // when nothing is pending any more
)

func newPort(t *Transport, c *connection) *port { return &port{t: t, c: c} }

// Port is how units are leased and read. It belongs to the connection: ask for it after each Connect.
func (t *Transport) Port() partitions.Port {
	c := t.conn.Load()
	if c == nil {
		return unconnected{t}
	}
	return c.port
}

// Traits say that units are leased.
func (p *port) Traits() partitions.Traits { return p.t.cfg.traits() }

func (c *Config) traits() partitions.Traits {
	return partitions.Traits{Leased: true, TTL: c.TTL, Heartbeat: c.Heartbeat, Margin: c.Margin}
}

// tenure gives what is known of a unit at a generation, or begins anew: whether it is held is for the script to say.
func (p *port) tenure(h partitions.Held) (*tenure, error) {
	p.mu.Lock()
	known := p.mu.tenures.Get(h.Unit)
	p.mu.Unlock()
	if known != nil && known.generation == h.Generation {
		return known, nil
	}
	return p.newTenure(h)
}

func (p *port) newTenure(h partitions.Held) (*tenure, error) {
	t := &tenure{unit: h.Unit, generation: h.Generation, owner: p.c.owner, tidy: tidyAtOnce}
	t.holder = event.Holder{Owner: t.owner, Generation: h.Generation}.String()
	if store, field, is := partField(h.Unit); is {
		hash, err := p.c.name(event.NameParts, store)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", h.Unit, err)
		}
		t.lease, t.counter, t.field = hash, hash, field
		return t, nil
	}
	for _, n := range []struct {
		into *string
		name event.Name
	}{
		{&t.lease, event.Name{Kind: event.NameLease, Owner: h.Unit.Name, Key: h.Unit.Key}},
		{&t.counter, event.Name{Kind: event.NameGeneration, Owner: h.Unit.Name, Key: h.Unit.Key}},
		{&t.busy, event.Name{Kind: event.NameBusy, Owner: h.Unit.Name}},
	} {
		text, err := p.c.names.Build(n.name)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", h.Unit, err)
		}
		*n.into = text
	}
	return t, nil
}

// begin remembers a unit that was granted.
func (p *port) begin(t *tenure) {
	now := time.Now()
	t.proven.Store(now.UnixNano())
	t.kept.Store(now.UnixNano())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.tenures.Set(t.unit, t)
	if p.mu.tenures.Len() < 2*p.mu.kept+1024 {
		return
	}
	// Units whose lease lapsed without anybody asking again are not told to the port.
	over := now.Add(-p.t.cfg.TTL).UnixNano()
	for unit, t := range p.mu.tenures.All() {
		if t.proven.Load() < over {
			p.mu.tenures.Delete(unit)
		}
	}
	p.mu.kept = p.mu.tenures.Len()
}

// end forgets a unit that is not held at that generation any more.
func (p *port) end(h partitions.Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.mu.tenures.Get(h.Unit); t != nil && t.generation == h.Generation {
		p.mu.tenures.Delete(h.Unit)
	}
}

// lane gives what is known of a lane of the unit; at is where its reader is.
func (p *port) lane(t *tenure, at event.Position) (*laneTenure, error) {
	for i := range t.lanes {
		if t.lanes[i].ref == at.Lane {
			return &t.lanes[i], nil
		}
	}
	keys, err := p.c.lane(at.Lane)
	if err != nil {
		return nil, err
	}
	if !p.t.elsewhere(at.Lane.Category) {
		keys.newest = ""
	}
	t.lanes = append(t.lanes, laneTenure{ref: at.Lane, stream: keys.stream, newest: keys.newest, acked: at.Sequence})
	return &t.lanes[len(t.lanes)-1], nil
}

// lines are those of the server that has the unit.
func (p *port) lines(t *tenure) *lines {
	if s := p.c.servers.of(t.lease); s != nil {
		return &s.lines
	}
	return &p.orphans
}

// fenced is the error of a call for a unit that is not held.
func (p *port) fenced(h partitions.Held) error {
	p.end(h)
	return fmt.Errorf("%s at generation %d: %w", h.Unit, h.Generation, partitions.ErrFenced)
}
