package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/ebb"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

const (
	// mostPending is how many lanes are kept in mind that commits of this process have grown. Beyond that the store is asked, which knows them as well.
	mostPending = 10_000
	looksEvery  = time.Second     // the store is asked for looks that are due
	wantedEvery = 3 * time.Second // the broker is asked what subscribers miss
)

// Relay takes what was committed to the lanes of the parts it holds to the broker. Make it with [New]. All methods may be called concurrently; none blocks but
// Start, Stop and Drop.
type Relay struct {
	cfg   Config
	terms terms
	loop  lifecycle.Loop
	wake  chan struct{} // holds one token when there is something to do

	mu struct {
		sync.Mutex
		held    [event.Parts]event.Generation // 0: not held
		pending ebb.Map[event.LaneRef, span]  // grown by commits of this process
		look    parts                         // to be looked through for what is unpublished
		forgot  parts                         // the broker lost its memory since their looks were made due
		spells  [event.Parts]uint64           // each begins when it is held, and when its looks are made due for a loss: before, the broker may have lost anything
		under   parts                         // that the call under way is for
		done    chan struct{}                 // closed when that call is over
	}

	// What follows belongs to the goroutine of the loop.
	work     map[event.LaneRef]*job
	resting  map[event.LaneRef]rest
	diverged map[event.LaneRef]struct{} // told of already
	shown    map[event.LaneRef]uint64   // lanes of parts held, stopped here, and the spell in which they were offered to those elsewhere
	showing  parts                      // whose lanes may be in shown
	heard    map[string]audience        // by category
	taken    map[string]time.Time       // names of subscribers that are others' here, and when that was told
	pause    rest                       // of everything, when nothing succeeds
	looked   time.Time                  // when the store was last asked for looks
	served   time.Time                  // when the broker was last asked what is missed
	wants    wants                      // what it said
	serving  rest                       // of serving what is missed
	listed   time.Time                  // when the store was last asked who subscribes from other applications
	abroad   []string                   // the categories that those subscribe to
	produced map[string][]string        // the categories of this store, and who of other applications is known to subscribe to them
	again    bool                       // there may be more looks that are due
	jobs     []*job                     // those of work, in the order in which they began
	done     []glance                   // have been offered; their looks are to be set
}

// parts is a set of them.
type parts uint64

func (s parts) has(p event.Part) bool { return s&(1<<p) != 0 }

func (s parts) list() []event.Part {
	all := make([]event.Part, 0, bits.OnesCount64(uint64(s)))
	for p := range event.Parts {
		if s.has(event.Part(p)) {
			all = append(all, event.Part(p))
		}
	}
	return all
}

// span is a run of a lane that was committed.
type span struct{ first, last event.Sequence }

// New makes a relay that holds no part.
func New(cfg Config) (*Relay, error) {
	if err := cfg.audit(); err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, terms: terms{healAfter: cfg.HealAfter, retireAfter: cfg.RetireAfter}, wake: make(chan struct{}, 1),
		work: make(map[event.LaneRef]*job), resting: make(map[event.LaneRef]rest), diverged: make(map[event.LaneRef]struct{}), shown: make(map[event.LaneRef]uint64), heard: make(map[string]audience), taken: make(map[string]time.Time),
	}
	return r, nil
}

// Start begins to relay what is held now and later. Store and broker are started and connected.
func (r *Relay) Start(ctx context.Context) error {
	if err := r.loop.Start(ctx, r.run); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	return nil
}

// Stop ends it, and waits for the call under way. The parts stay held; whoever gives their leases back drops them first.
func (r *Relay) Stop(ctx context.Context) error {
	if err := r.loop.Stop(ctx); err != nil {
		return fmt.Errorf("stop relay: %w", err)
	}
	return nil
}

// Hold says that this node has leased a part and raised its row in the store to that generation.
func (r *Relay) Hold(p event.Part, g event.Generation) {
	r.mu.Lock()
	r.mu.held[p] = g
	r.mu.spells[p]++
	r.mu.look |= 1 << p
	r.mu.Unlock()
	r.token()
}

// Drop ends the relay of a part. When it returns nothing more is done for it, and what was under way is over.
func (r *Relay) Drop(p event.Part) {
	r.mu.Lock()
	r.mu.held[p] = 0
	under, done := r.mu.under, r.mu.done
	r.mu.Unlock()
	if under.has(p) {
		<-done
	}
}

// Committed tells what a commit of this process has added to the lanes. Those of parts held here go out at once; the holders of the others are told.
func (r *Relay) Committed(tails []event.Tail) {
	var elsewhere parts
	r.mu.Lock()
	for i := range tails {
		t := &tails[i]
		part := t.Lane.Part()
		if r.mu.held[part] == 0 {
			elsewhere |= 1 << part
			continue
		}
		s, known := r.mu.pending.Find(t.Lane)
		switch {
		case known:
			s.first, s.last = min(s.first, t.First), max(s.last, t.Last)
		case r.mu.pending.Len() >= mostPending:
			r.mu.look |= 1 << part
			continue
		default:
			s = span{t.First, t.Last}
		}
		r.mu.pending.Set(t.Lane, s)
	}
	r.mu.Unlock()
	if len(tails) > 0 {
		r.token()
	}
	if elsewhere != 0 && r.cfg.Tell != nil {
		r.cfg.Tell(elsewhere.list())
	}
}

// Look has it look for what is unpublished in a part, if that is held.
func (r *Relay) Look(p event.Part) {
	r.mu.Lock()
	r.mu.look |= 1 << p
	r.mu.Unlock()
	r.token()
}

// Notify has it look in all parts that it holds, and tells the holders of the others: something was committed, and nobody knows what.
func (r *Relay) Notify() {
	r.mu.Lock()
	held := r.holding()
	r.mu.look |= held
	r.mu.Unlock()
	r.token()
	if elsewhere := ^held; elsewhere != 0 && r.cfg.Tell != nil {
		r.cfg.Tell(elsewhere.list())
	}
}

// Forgot says that the broker lost its memory: every lane that was published is looked at now. A part that another node holds is looked at when
// it comes here: nobody knows whether that node got round to it.
func (r *Relay) Forgot() {
	r.mu.Lock()
	r.mu.forgot = ^parts(0)
	r.mu.Unlock()
	r.token()
}

// holding gives the parts held. The lock is held.
func (r *Relay) holding() parts {
	var s parts
	for p, g := range r.mu.held {
		if g != 0 {
			s |= 1 << p
		}
	}
	return s
}

func (r *Relay) token() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Relay) run(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
			r.mu.Lock()
			r.mu.look |= r.holding()
			r.mu.Unlock()
		}
		r.turn(ctx)
	}
}

// turn does what there is to do now.
func (r *Relay) turn(ctx context.Context) {
	for ctx.Err() == nil && !r.pause.resting(r.cfg.Now()) {
		for _, ask := range []func(context.Context){r.forgotten, r.look, r.serve, r.share, r.seek} {
			if ask(ctx); r.pause.resting(r.cfg.Now()) {
				return
			}
		}
		r.admit(r.cfg.Lanes)
		if len(r.work) == 0 && !r.again && !r.serves() {
			return
		}
		r.round(ctx)
	}
}

// errDropped: a part is not held any more, so nothing was done. Whoever goes on looks anew at what is held.
var errDropped = errors.New("a part was dropped")

// during runs one call for the lanes of parts, all of which must be held, with their fences. Drop waits for it.
func (r *Relay) during(ctx context.Context, of parts, call func(ctx context.Context, held []eventstore.PartFence) error) error {
	r.mu.Lock()
	if of&r.holding() != of {
		r.mu.Unlock()
		return errDropped
	}
	held := make([]eventstore.PartFence, 0, bits.OnesCount64(uint64(of)))
	for p, g := range r.mu.held {
		if of.has(event.Part(p)) {
			held = append(held, eventstore.PartFence{Part: event.Part(p), Generation: g})
		}
	}
	done := make(chan struct{})
	r.mu.under, r.mu.done = of, done
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.mu.under = 0
		r.mu.Unlock()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return call(ctx, held)
}
