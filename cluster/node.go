package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Config is what a [Node] is made of. Fields without a default must be set.
type Config struct {
	Self     transport.Member // ID, Node, StoreID, Names and Weight; the rest is the node's own to set
	Broker   Broker
	Port     partitions.Port // leases parts
	Store    Raiser
	Units    Units
	Relay    Relay
	Gossip   transport.Gossip // nil = members are those of the broker's list
	Grace    time.Duration    // that each rank waits longer; default a tenth of the port's heartbeat
	Debounce time.Duration    // that a node ranks first before it asks for a unit; default 1 s
	Moves    int              // hand-overs in a second; default 50
	// MaxPartitions is how many live keys of a category are worth a warning; default 10,000.
	MaxPartitions int
	Categories    []string // of which the keys are counted
	Observer      Observer
	Logger        *slog.Logger     // default: discards
	Now           func() time.Time // default time.Now
}

// Broker is what a node needs of a [transport.Broker].
type Broker interface {
	transport.Work
	transport.Membership
	Partitions(ctx context.Context, category string) (int, error)
}

// Raiser is what it needs of a store.
type Raiser interface {
	Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error)
}

// Units are the units of this node. None of the methods blocks.
type Units interface {
	Live(u event.Unit) bool
	Wake(u event.Unit)
	// HandOver has a unit finish what is in hand and let go.
	HandOver(u event.Unit)
}

// Relay relays the parts that this node holds. None of the methods blocks but Drop, which waits for what is under way: after it nothing more is done for the part.
type Relay interface {
	Hold(p event.Part, g event.Generation)
	Drop(p event.Part)
	// Look has it look for what is unpublished in a part.
	Look(p event.Part)
}

// Observer is told what a node does. Its functions must not block; any may be nil: then what somebody should know is logged.
type Observer struct {
	Members        func(now []transport.Member)        // when they have changed
	PartHeld       func(p event.Part, held bool)       // or not any more
	HandedOver     func(u event.Unit, to string)       // to another member, by its id
	ManyPartitions func(category string, live int)     // more live keys than MaxPartitions; once, and again after it was below
	Trouble        func(what string, err error)        // the broker or the store does not answer; tried again
	Unfit          func(u event.Unit, d time.Duration) // this node ranks itself last for a unit for a time
	Beat           func(err error)                     // after each attempt to be known to the others
	Woken          func(name string)                   // a wake for a subscriber, or for the holder of a part, has come
	PartLost       func(p event.Part, why string)      // the lease of a part is lost; why is as in actors.Observer.LeaseLost
	Keys           func(category string, live int)     // this node has counted the live keys of a category, which it does once a minute
}

// Node takes part in the spread of units. All methods may be called concurrently.
type Node struct {
	cfg    Config
	traits partitions.Traits
	keeper *leases.Keeper // of parts
	parts  *parts
	pace   *pace // of hand-overs

	placement atomic.Pointer[Placement]

	beating  lifecycle.Loop
	scanning lifecycle.Loop
	telling  lifecycle.Loop
	hearing  lifecycle.Loop  // of gossip
	calls    lifecycle.Group // that are made at the same time

	rescan chan struct{} // holds a token when everything that has work is to be looked for
	rebeat chan struct{} // holds a token when others are to know something now
	tell   chan struct{} // holds a token when mu.marks is not empty
	news   chan struct{} // holds a token when gossip gives something else
	stir   chan struct{} // holds a token when the members have changed by gossip
	beats  atomic.Int64

	countFrom int // the place of the category with which counting begins; of the beating goroutine

	settling sync.Mutex // held while members are put together
	listed   listed

	mu struct {
		sync.Mutex
		draining bool
		apart    bool
		talks    bool                     // its gossip was started by it
		woken    map[event.Unit]struct{}  // by others, to be looked at
		held     map[event.Unit]time.Time // by others, until then at the latest
		marks    map[event.Unit]struct{}  // others are to be told that these have work
		rest     map[event.Unit]bool      // to be noted as waiting for a person, or not any more
		unfit    map[event.Unit]unfit
		wants    []event.Unit
		counted  map[string]bool // categories that were warned of
	}
}

// unfit is until when this node ranks itself last for a unit, and for how long the next time.
type unfit struct {
	until time.Time
	next  time.Duration
	rests bool // it does not go for the unit at all until then, and does not ask for it afterwards
}

// isOld reports whether it was too long ago to matter. What waited for a newer program is remembered for longer: each time that this node asked for it, whoever runs it
// would give it up for nothing.
func (u unfit) isOld(now time.Time) bool {
	keep := mostUnfit
	if u.rests {
		keep = 10 * mostUnfit
	}
	return now.Sub(u.until) > keep
}

// New checks cfg. It starts nothing.
func New(cfg Config) (*Node, error) {
	if cfg.Broker == nil || cfg.Port == nil || cfg.Store == nil || cfg.Units == nil || cfg.Relay == nil {
		return nil, errors.New("node: Broker, Port, Store, Units and Relay must be set")
	}
	traits := cfg.Port.Traits()
	if !traits.Leased {
		return nil, errors.New("node: the port leases nothing, so there is nothing to share out")
	}
	cfg.Grace = cmp.Or(cfg.Grace, traits.Heartbeat/10)
	cfg.Debounce = cmp.Or(cfg.Debounce, time.Second)
	cfg.Moves = cmp.Or(cfg.Moves, 50)
	cfg.MaxPartitions = cmp.Or(cfg.MaxPartitions, 10_000)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Self.Names = slices.Sorted(slices.Values(cfg.Self.Names))
	n := &Node{cfg: cfg, traits: traits, rescan: make(chan struct{}, 1), rebeat: make(chan struct{}, 1), tell: make(chan struct{}, 1)}
	n.news, n.stir = make(chan struct{}, 1), make(chan struct{}, 1)
	n.mu.held = map[event.Unit]time.Time{}
	n.mu.woken, n.mu.marks = map[event.Unit]struct{}{}, map[event.Unit]struct{}{}
	n.mu.rest, n.mu.unfit, n.mu.counted = map[event.Unit]bool{}, map[event.Unit]unfit{}, map[string]bool{}
	n.placement.Store(new(Placement))
	n.parts = newParts(n)
	n.pace = newPace(cfg.Moves, traits.Heartbeat, cfg.Now())
	n.keeper = leases.New(leases.Config{Port: cfg.Port, Seldom: true, Trouble: func(err error) { n.trouble("renew the leases of parts", err) }})
	return n, nil
}

// Start takes part. The broker must be started, and so must be whoever runs the units. ctx bounds Start alone. It returns when this node is known to the
// others, so that what they hold is shared with it from now on.
func (n *Node) Start(ctx context.Context) error {
	if err := errors.Join(n.calls.Start(ctx), n.keeper.Start(ctx)); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	n.setDraining(false)
	if err := n.startGossip(ctx); err != nil {
		return fmt.Errorf("start node: %w", errors.Join(err, n.calls.Stop(ctx), n.keeper.Stop(ctx)))
	}
	if err := n.beat(ctx); err != nil {
		return fmt.Errorf("start node: make it known to the others: %w", errors.Join(err, n.stopGossip(ctx), n.calls.Stop(ctx), n.keeper.Stop(ctx)))
	}
	n.gossip() // who is on the list may be joined now
	err := errors.Join(n.hearing.Start(ctx, n.runHearing), n.telling.Start(ctx, n.runTelling), n.beating.Start(ctx, n.runBeating), n.scanning.Start(ctx, n.runScanning))
	if err != nil {
		return fmt.Errorf("start node: %w", errors.Join(err, n.Stop(ctx)))
	}
	n.Rescan()
	return nil
}

// Serves gives the address of the node service, before Start.
func (n *Node) Serves(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Self.Address = address
}

// Self is this node as the others are to know it.
func (n *Node) Self() transport.Member { return n.self() }

// Drain has the others take over: this node ranks nowhere from now on, and goes for nothing more. What it runs it still runs. It returns when the others
// have had the time to learn of it, a heartbeat later: who does not know leaves what becomes free to this node for a while.
func (n *Node) Drain(ctx context.Context) error {
	n.setDraining(true)
	n.gossip()
	err := n.scanning.Stop(ctx)
	if err == nil {
		err = n.beat(ctx)
	}
	if err == nil && n.hasOthers() {
		err = pause(ctx, n.traits.Heartbeat)
	}
	if err != nil {
		return fmt.Errorf("drain node: %w", err)
	}
	return nil
}

// hasOthers reports whether anybody is there to take over.
func (n *Node) hasOthers() bool {
	return slices.ContainsFunc(n.placement.Load().members, func(m placed) bool { return m.ID != n.cfg.Self.ID && !m.away() })
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Stop gives the parts up and takes the node off the list. It is idempotent.
func (n *Node) Stop(ctx context.Context) error {
	n.setDraining(true)
	if err := errors.Join(n.scanning.Stop(ctx), n.beating.Stop(ctx), n.telling.Stop(ctx), n.hearing.Stop(ctx)); err != nil {
		return fmt.Errorf("stop node: %w", err)
	}
	n.parts.releaseAll(ctx)
	if err := n.calls.Stop(ctx); err != nil {
		return fmt.Errorf("stop node: %w", err)
	}
	n.sendMarks(ctx)
	left := n.cfg.Broker.Leave(ctx, n.self())
	if left != nil {
		left = fmt.Errorf("take the node off the list; it lapses by itself: %w", left)
	}
	return errors.Join(n.keeper.Stop(ctx), n.stopGossip(ctx), left)
}

func (n *Node) setDraining(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.draining = on
}

func (n *Node) isDraining() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.draining
}

// Placement is the present one.
func (n *Node) Placement() *Placement { return n.placement.Load() }

// Parts tells how many parts this node holds.
func (n *Node) Parts() int { return n.parts.count() }

// Holds reports whether this node holds a part.
func (n *Node) Holds(p event.Part) bool { return n.parts.holds(p) }

// Unclean reports whether another node had a part before, as this one holds it or held it last, and did not give it back: what it had in hand may be what ended it.
func (n *Node) Unclean(p event.Part) bool { return n.parts.unclean(p) }

// Wake says that there may be work for a unit: a wake of the broker. It never blocks.
func (n *Node) Wake(u event.Unit) {
	if f := n.cfg.Observer.Woken; f != nil {
		f(u.Name)
	}
	if u.Name == event.PartName {
		if p, ok := n.partOf(u); ok && n.parts.holds(p) {
			n.cfg.Relay.Look(p)
		}
		return
	}
	if n.cfg.Units.Live(u) {
		n.cfg.Units.Wake(u)
		return
	}
	n.mu.Lock()
	if n.mu.draining {
		n.mu.Unlock()
		return
	}
	n.mu.woken[u] = struct{}{}
	n.mu.Unlock()
	token(n.rescan)
}

// Held says that another node holds a unit that was wanted here, or that nobody is granted it, for so long at most. It never blocks.
func (n *Node) Held(u event.Unit, most time.Duration) {
	n.mu.Lock()
	if !n.mu.draining {
		n.mu.held[u] = n.cfg.Now().Add(most)
	}
	n.mu.Unlock()
	token(n.rescan)
}

// Rescan has everything that has work looked for. It never blocks.
func (n *Node) Rescan() {
	n.mu.Lock()
	n.mu.woken[event.Unit{}] = struct{}{} // stands for all
	n.mu.Unlock()
	token(n.rescan)
}

// Mark has the broker know, and the others hear, that units have work. It never blocks; marks of one unit are merged until they are sent.
func (n *Node) Mark(units ...event.Unit) {
	n.mu.Lock()
	for _, u := range units {
		n.mu.marks[u] = struct{}{}
	}
	n.mu.Unlock()
	token(n.tell)
}

// Tell has the holders of parts look for what is unpublished there. It never blocks.
func (n *Node) Tell(parts []event.Part) {
	n.mu.Lock()
	for _, p := range parts {
		n.mu.marks[n.partUnit(p)] = struct{}{}
	}
	n.mu.Unlock()
	token(n.tell)
}

// Rested notes that a unit waits for a person, or does not any more, so that nobody goes for it in vain. It never blocks.
func (n *Node) Rested(u event.Unit, waits bool) {
	n.mu.Lock()
	n.mu.rest[u] = waits
	n.mu.Unlock()
	token(n.tell)
}

const (
	firstUnfit = time.Second
	mostUnfit  = time.Minute
)

// Unfit has this node rank itself last for a unit that it could not recover, each time for twice as long as before. It never blocks.
func (n *Node) Unfit(u event.Unit) { n.standBack(u, false) }

// Newer has this node rank itself last for a unit whose next event is of a type that only a newer program knows, and not go for it meanwhile: where all nodes rank themselves last,
// each of them would otherwise, with every scan. Nor does it ask another node for it afterwards, which may be the newer program. It never blocks.
func (n *Node) Newer(u event.Unit) { n.standBack(u, true) }

func (n *Node) standBack(u event.Unit, rests bool) {
	now := n.cfg.Now()
	n.mu.Lock()
	was := n.mu.unfit[u]
	d := max(was.next, firstUnfit)
	if was.isOld(now) {
		d = firstUnfit
	}
	n.mu.unfit[u] = unfit{until: now.Add(d), next: min(2*d, mostUnfit), rests: rests}
	n.mu.Unlock()
	if f := n.cfg.Observer.Unfit; f != nil {
		f(u, d)
	}
}

// Fit ends that.
func (n *Node) Fit(u event.Unit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.unfit, u)
}

// Refit ends it for all units: the store answers again. Where every node stands back nobody goes for a unit that many of them run, for up to a minute.
func (n *Node) Refit() {
	n.mu.Lock()
	clear(n.mu.unfit)
	n.mu.Unlock()
	n.Rescan()
}

// forgetUnfit drops what was long ago, of units that nobody asks about any more.
func (n *Node) forgetUnfit(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for u, was := range n.mu.unfit {
		if was.isOld(now) {
			delete(n.mu.unfit, u)
		}
	}
}

func (n *Node) isUnfit(u event.Unit, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, ok := n.mu.unfit[u]
	if ok && was.isOld(now) {
		delete(n.mu.unfit, u)
	}
	return ok && now.Before(was.until)
}

// rests reports whether this node does not go for a unit for a while.
func (n *Node) rests(u event.Unit) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.mu.unfit[u]
	return was.rests && n.cfg.Now().Before(was.until)
}

// rank is this node's for a unit. It is not the first for one that waited for a newer program here: it goes for that, but does not ask whoever has it.
func (n *Node) rank(u event.Unit) int {
	r := n.placement.Load().Rank(u, n.cfg.Self.ID, n.isUnfit(u, n.cfg.Now()))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.unfit[u].rests {
		r = max(r, 1)
	}
	return r
}

func (n *Node) trouble(what string, err error) {
	if f := n.cfg.Observer.Trouble; f != nil {
		f(what, err)
		return
	}
	n.cfg.Logger.Warn(what+": will try again", "error", err)
}

// token leaves a token in a channel that holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sortUnits(units []event.Unit, by func(a, b event.Unit) int) {
	slices.SortFunc(units, func(a, b event.Unit) int {
		return cmp.Or(by(a, b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
}
