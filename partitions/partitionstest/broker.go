package partitionstest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// Broker keeps leases and streams in memory, on a clock that only moves with [Broker.Pass]. All methods may be called
// concurrently.
type Broker struct {
	traits partitions.Traits

	mu struct {
		sync.Mutex
		now     time.Duration
		amnesty time.Duration // nothing is granted before
		owners  int
		units   map[event.Unit]*lease
		streams map[event.LaneRef]*stream
	}
}

// lease is what the broker knows of a unit.
type lease struct {
	owner      int
	generation event.Generation
	until      time.Duration
	unclean    bool // not released since it was last granted
	acked      map[event.LaneRef]event.Sequence
}

// stream is a lane: its first entry is at sequence lost+1.
type stream struct {
	lost    event.Sequence
	entries []event.Envelope
}

// NewBroker makes an empty broker. traits.Leased is taken for granted.
func NewBroker(traits partitions.Traits) *Broker {
	traits.Leased = true
	b := &Broker{traits: traits}
	b.mu.units = make(map[event.Unit]*lease)
	b.mu.streams = make(map[event.LaneRef]*stream)
	return b
}

// Port gives the port of a new owner. The owners are 1, 2, 3, as they come.
func (b *Broker) Port() partitions.Port {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.owners++
	return &brokerPort{Broker: b, owner: b.mu.owners}
}

// Append adds n entries of a type to a lane.
func (b *Broker) Append(ref event.LaneRef, n int, wireName string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stream(ref)
	for range n {
		seq := s.tail() + 1
		s.entries = append(s.entries, event.Envelope{
			ID: ref.String() + "#" + strconv.FormatUint(uint64(seq), 10), Type: wireName, Version: 1, Encoding: event.JSON, Data: []byte("{}"),
			Category: ref.Category, Key: ref.Key, Lane: ref.Lane, Sequence: seq,
		})
	}
}

// Purge removes the entries of a lane up to seq.
func (b *Broker) Purge(ref event.LaneRef, seq event.Sequence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stream(ref)
	n := min(seq, s.tail()) - s.lost
	s.lost, s.entries = s.lost+n, s.entries[n:]
}

// Pass lets time pass.
func (b *Broker) Pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.now += d
}

// Forget loses all leases, generations and acknowledgements.
func (b *Broker) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.mu.units)
	b.mu.amnesty = b.mu.now + b.traits.TTL
}

func (s *stream) tail() event.Sequence { return s.lost + event.Sequence(len(s.entries)) }

// stream is called with the lock held, as are all methods below that are not the port's.
func (b *Broker) stream(ref event.LaneRef) *stream {
	s := b.mu.streams[ref]
	if s == nil {
		s = &stream{}
		b.mu.streams[ref] = s
	}
	return s
}

func (b *Broker) unit(u event.Unit) *lease {
	l := b.mu.units[u]
	if l == nil {
		l = &lease{acked: make(map[event.LaneRef]event.Sequence)}
		b.mu.units[u] = l
	}
	return l
}

// brokerPort is the port of one owner.
type brokerPort struct {
	*Broker
	owner int
}

var _ partitions.Port = (*brokerPort)(nil)

func (p *brokerPort) Traits() partitions.Traits { return p.traits }

func (p *brokerPort) Acquire(ctx context.Context, u event.Unit, floor event.Generation) (partitions.Acquired, error) {
	if err := ctx.Err(); err != nil {
		return partitions.Acquired{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.now < p.mu.amnesty {
		return partitions.Acquired{Forgot: true}, nil
	}
	l := p.unit(u)
	if l.owner != 0 && l.owner != p.owner && p.mu.now < l.until {
		return partitions.Acquired{HeldFor: l.until - p.mu.now, Holder: strconv.Itoa(l.owner), HeldAt: l.generation}, nil
	}
	unclean := l.unclean && l.owner != p.owner
	l.owner, l.generation, l.until, l.unclean = p.owner, max(l.generation, floor)+1, p.mu.now+p.traits.TTL, true
	return partitions.Acquired{Granted: true, Generation: l.generation, Unclean: unclean}, nil
}

// holds is the fence.
func (p *brokerPort) holds(h partitions.Held) (*lease, error) {
	l := p.unit(h.Unit)
	if l.owner != p.owner || l.generation != h.Generation || p.mu.now >= l.until {
		return nil, fmt.Errorf("%s at generation %d: %w", h.Unit, h.Generation, partitions.ErrFenced)
	}
	return l, nil
}

func (p *brokerPort) Renew(ctx context.Context, held []partitions.Held) []error {
	errs := make([]error, len(held))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range held {
		l, err := p.holds(h)
		if err == nil && ctx.Err() == nil {
			l.until = p.mu.now + p.traits.TTL
		}
		if errs[i] = err; err == nil {
			errs[i] = ctx.Err()
		}
	}
	return errs
}

func (p *brokerPort) Release(ctx context.Context, h partitions.Held, ifIdle bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.holds(h)
	if err != nil {
		return err
	}
	if ifIdle {
		for ref, acked := range l.acked {
			if acked < p.stream(ref).tail() {
				return fmt.Errorf("release %s: %w", h.Unit, partitions.ErrBusy)
			}
		}
	}
	l.owner, l.until, l.unclean = 0, 0, false
	return nil
}

func (p *brokerPort) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	return p.read(ctx, h, above, max, false)
}

func (p *brokerPort) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.read(ctx, h, done, max, true)
}

func (p *brokerPort) read(ctx context.Context, h partitions.Held, above []event.Position, max int, ack bool) (partitions.Fetched, error) {
	if err := ctx.Err(); err != nil {
		return partitions.Fetched{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.holds(h)
	if err != nil {
		return partitions.Fetched{}, err
	}
	got := partitions.Fetched{Drained: true}
	for _, kind := range []event.Lane{event.Primary, event.Backfill} {
		for _, pos := range above {
			if pos.Lane.Lane != kind {
				continue
			}
			if ack || l.acked[pos.Lane] == 0 {
				l.acked[pos.Lane] = acknowledged(l.acked[pos.Lane], pos.Sequence, ack)
			}
			s := p.stream(pos.Lane)
			if pos.Sequence < s.lost {
				return partitions.Fetched{Gap: true, Lane: pos.Lane}, nil
			}
			if pos.Sequence >= s.tail() {
				continue
			}
			rest := s.entries[pos.Sequence-s.lost:]
			n := min(len(rest), max-len(got.Entries))
			got.Entries = append(got.Entries, rest[:n]...)
			got.Drained = got.Drained && n == len(rest)
		}
	}
	return got, nil
}

// acknowledged gives how far a lane is acknowledged now. A lane that is only read becomes known, so that what is unread in
// it counts.
func acknowledged(was, pos event.Sequence, ack bool) event.Sequence {
	if ack {
		return max(was, pos)
	}
	return was
}
