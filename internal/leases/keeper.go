package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
)

// Port is what a keeper needs of a [partitions.Port].
type Port interface {
	Traits() partitions.Traits
	Renew(ctx context.Context, held []partitions.Held) []error
}

// Holder is told what becomes of a lease. It is called in goroutines of the keeper, or of whoever calls [Keeper.Add] or [Keeper.Look], and must not
// block. What was on its way may still come after a Lost or a Remove, and means nothing then: a holder compares the generation.
type Holder interface {
	// Renewed: a renewal that was sent at this time has succeeded, before the deadline.
	Renewed(h partitions.Held, sent time.Time)
	// Lost: the lease must not be relied on any more. The keeper has forgotten it.
	Lost(h partitions.Held, why Loss)
}

// Loss is why a lease is lost.
type Loss uint8

const (
	Fenced    Loss = iota // a renewal was refused: somebody else has it, or nobody
	Expired               // its deadline has passed
	Suspended             // the host stood still for longer than is safe
)

var losses = [...]string{"renewal was fenced", "deadline passed", "host was suspended"}

func (l Loss) String() string { return losses[l] }

// Config is what a keeper is made of.
type Config struct {
	Port Port
	// Trouble is told of renewals that did not work out and are made again, once for each call. It must not block; nil = nobody is.
	Trouble func(error)
	// Wall reads the wall clock; default time.Now. It is compared with the monotonic clock.
	Wall func() time.Time
	// Seldom has leases renewed every other heartbeat where that leaves time for another try: for those that are held for long and by the dozen.
	Seldom bool
}

// Keeper keeps leases. Make it with [New]; all methods may be called concurrently.
type Keeper struct {
	cfg    Config
	traits partitions.Traits
	life   time.Duration // from when a lease was asked for to its deadline
	every  time.Duration // between renewals, less jitter
	jitter time.Duration
	clock  clock
	loop   lifecycle.Loop
	calls  lifecycle.Group
	poke   chan struct{} // holds one token when there may be something earlier to do

	mu struct {
		sync.Mutex
		held      map[event.Unit]*entry
		due       queue // for renewal; one whose renewal is under way is neither here nor in again
		again     queue // likewise, after a renewal that failed: what fails is not to drag along what does not
		deadlines queue // a place may be earlier than the deadline: renewals do not move it
		inFlight  int   // calls
	}
}

// entry is one lease that is held.
type entry struct {
	held   partitions.Held
	holder Holder
	sent   time.Duration // when it was last asked for with success, on the keeper's clock
	places [3]place      // in due, again and deadlines
}

// New makes a keeper for a port that leases. It starts nothing.
func New(cfg Config) *Keeper {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	t := cfg.Port.Traits()
	k := &Keeper{cfg: cfg, traits: t, life: t.TTL - t.Margin, poke: make(chan struct{}, 1)}
	k.every, k.jitter = t.Heartbeat, t.Heartbeat/4
	if cfg.Seldom && 4*t.Heartbeat <= k.life {
		k.every, k.jitter = 2*t.Heartbeat, t.Heartbeat/16
	}
	k.clock.init(cfg.Wall, t)
	k.mu.held = map[event.Unit]*entry{}
	k.mu.due.which, k.mu.again.which, k.mu.deadlines.which = 0, 1, 2
	return k
}

// Start lets the keeper work.
func (k *Keeper) Start(ctx context.Context) error {
	if err := k.calls.Start(ctx); err != nil {
		return err
	}
	if err := k.loop.Start(ctx, k.run); err != nil {
		return errors.Join(err, k.calls.Stop(ctx))
	}
	return nil
}

// Stop ends it: nothing is renewed or told any more once it has returned. What is held lapses, or was released before.
func (k *Keeper) Stop(ctx context.Context) error {
	return errors.Join(k.loop.Stop(ctx), k.calls.Stop(ctx))
}

// Add has the keeper keep a lease that was asked for at sent, a reading of time.Now. It takes the place of an earlier lease of the unit. [Keeper.Look] must
// have been called before the lease was asked for: time that the host stood still since then counts.
func (k *Keeper) Add(h partitions.Held, sent time.Time, to Holder) {
	e := &entry{held: h, holder: to, sent: k.clock.at(sent)}
	now := k.clock.now()
	suspended := k.clock.diverged(now)
	k.mu.Lock()
	if old := k.mu.held[h.Unit]; old != nil {
		k.forgetLocked(old)
	}
	k.mu.held[h.Unit] = e
	k.clock.holding.Store(int64(len(k.mu.held)))
	k.mu.due.put(e, k.dueAt(e.sent))
	k.mu.deadlines.put(e, e.sent+k.life)
	first := e.places[0].i == 1 || e.places[2].i == 1
	k.mu.Unlock()
	if suspended {
		k.loseAll(now)
	}
	if first {
		k.wake()
	}
}

// Remove has the keeper forget a lease: it was given back, or is left to lapse. One of another generation stays.
func (k *Keeper) Remove(h partitions.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.mu.held[h.Unit]; e != nil && e.held == h {
		k.forgetLocked(e)
	}
}

// Len tells how many leases are kept.
func (k *Keeper) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.mu.held)
}

// Look tells the holders of all leases that they are lost when the host stood still. It costs two readings of a clock, and is to be called right before
// a lease is asked for or relied on.
func (k *Keeper) Look() {
	now := k.clock.now()
	switch {
	case k.clock.diverged(now):
		k.loseAll(now)
	default:
		k.clock.renew(now)
	}
}

func (k *Keeper) forgetLocked(e *entry) {
	delete(k.mu.held, e.held.Unit)
	k.clock.holding.Store(int64(len(k.mu.held)))
	k.mu.due.remove(e)
	k.mu.again.remove(e)
	k.mu.deadlines.remove(e)
	if len(k.mu.held) == 0 && k.mu.due.room() > smallRoom {
		k.mu.held = map[event.Unit]*entry{}
		k.mu.due.list.all, k.mu.again.list.all, k.mu.deadlines.list.all = nil, nil, nil
	}
}

// smallRoom is for how many leases room is kept when none is held: what was needed once, by very many units, is given back.
const smallRoom = 1024

// keptLocked reports whether a lease is still there.
func (k *Keeper) keptLocked(e *entry) bool { return k.mu.held[e.held.Unit] == e }

// loseAll is for when the host stood still.
func (k *Keeper) loseAll(now time.Duration) {
	k.mu.Lock()
	lost := make([]*entry, 0, len(k.mu.held))
	for _, e := range k.mu.held {
		lost = append(lost, e)
	}
	for _, e := range lost {
		k.forgetLocked(e)
	}
	k.clock.anchor(now)
	k.mu.Unlock()
	for _, e := range lost {
		e.holder.Lost(e.held, Suspended)
	}
}

func (k *Keeper) wake() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}
