package keyhold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// shared carries where this process is one of several nodes on a broker: a relay brings records there, and a node takes its share of the units.
type shared struct {
	r        *running
	broker   transport.Broker
	near     neighbours
	serves   bool // the node service was started by this application
	hearing  hearing
	relay    *outbox.Relay
	node     *cluster.Node
	runtime  *actors.Runtime
	listens  transport.Node
	declares transport.Declared
	reach    *reach                // of the broker
	settings map[string]string     // that all nodes must have alike
	contrary atomic.Pointer[error] // what does not agree with other applications; nil = everything does
	once     rarely                // kinds of trouble
	counted  struct {
		sync.Mutex
		keys map[string]int // live keys, of the categories that this node has counted
	}

	looking  lifecycle.Loop // for what only the store knows
	duties   lifecycle.Loop // of the parts that are held
	renewing lifecycle.Loop // of what a broker without memory is to be told again
	reviews  lifecycle.Loop // of what the broker has noted
	polling  lifecycle.Loop // of streams that other programs write
	reaching lifecycle.Loop // of whether this node reaches what it needs
	polled   []*poll
	beat     time.Duration
	removed  nameSet       // handlers that were, as this process saw
	settling chan struct{} // holds a token when handlers were removed
	changed  chan struct{} // holds a token when parts were gained or lost
	forgot   chan struct{} // holds a token when the broker has lost its memory

	mu struct {
		sync.Mutex
		carries bool
		told    map[event.Unit]time.Time // units that were told of what is due, and when
	}
}

// share connects to the broker and agrees with everybody else there on who produces and who reads what. It starts nothing.
func (a *App) share(ctx context.Context, r *running, p *plan, id eventstore.Identity, saved eventstore.Registered, broker transport.Broker) (*shared, error) {
	c := &shared{r: r, broker: broker, declares: p.declares(id.StoreID), changed: make(chan struct{}, 1), forgot: make(chan struct{}, 1), settling: make(chan struct{}, 1)}
	begin(c.declares.Subscribers, saved)
	c.counted.keys = map[string]int{}
	c.mu.told = map[event.Unit]time.Time{}
	if err := broker.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", broker.Name(), err)
	}
	first, err := a.cfg.Store.FirstBroker(ctx, broker.Memory())
	if err != nil {
		return nil, err
	}
	broker.Trust(first)
	if c.near, err = a.neighbours(broker); err != nil {
		return nil, err
	}
	if err := broker.Declare(ctx, c.declares); err != nil {
		return nil, fmt.Errorf("declare to %s: %w", broker.Name(), err)
	}
	c.declares.Running = true // from now on
	if err := c.settle(ctx); err != nil {
		return nil, fmt.Errorf("take what was removed off %s: %w", broker.Name(), err)
	}
	return c, nil
}

// declares is what the broker is told of the application.
func (p *plan) declares(storeID string) transport.Declared {
	d := transport.Declared{StoreID: storeID, Categories: p.produced(p.order, storeID)}
	for _, b := range p.descriptions {
		for _, category := range b.Categories {
			d.Subscribers = append(d.Subscribers, transport.Subscriber{Name: b.Name, Category: category, StoreID: storeID, Kind: string(b.Kind)})
		}
	}
	return d
}

// others is what the units tell it.
func (c *shared) others() actors.Others {
	return actors.Others{
		Held: func(u event.Unit, most time.Duration) { c.node.Held(u, most) },
		Unfit: func(u event.Unit, why error) {
			if errors.Is(why, actors.ErrNewerType) {
				c.node.Newer(u)
				return
			}
			c.node.Unfit(u)
		},
		Rested: func(u event.Unit, phase partitions.Phase) {
			c.node.Rested(u, phase == partitions.PhaseHalted || phase == partitions.PhasePaused)
		},
		LetGo: func(u event.Unit, unread bool) {
			if unread {
				c.node.Mark(u)
			}
		},
		Relist: c.r.relist,
	}
}

// with gives it the runtime of the units, which was made with its others.
func (c *shared) with(p *plan, runtime *actors.Runtime, port partitions.Port, id eventstore.Identity) (err error) {
	a := c.r.app
	c.runtime, c.beat = runtime, port.Traits().Heartbeat
	c.reach = a.brokerReach(c.broker.Name(), port.Traits().TTL)
	limits := c.broker.Limits()
	c.settings = settingsOf(port.Traits(), limits, a.cfg)
	c.relay, err = outbox.New(outbox.Config{
		Store: a.cfg.Store, Broker: c.broker, StoreID: id.StoreID, Keys: a.cfg.keyRules(), HealAfter: a.cfg.HealAfter,
		RetireAfter: limits.RetireAfter, MaxAhead: limits.MaxAhead, Logger: a.cfg.Logger, Observer: c.relayed(),
		Tell:     func(parts []event.Part) { c.node.Tell(parts) },
		GiveBack: func(p event.Part) { c.node.GiveBack(p) },
	})
	if err != nil {
		return err
	}
	c.node, err = cluster.New(cluster.Config{
		Self:   c.self(p, id, os.Getpid()),
		Broker: c.broker, Gossip: c.near.gossip, Port: port, Store: a.cfg.Store, Units: runtime, Relay: c.relay, Categories: p.order,
		Observer: c.clustered(), Logger: a.cfg.Logger,
	})
	if err != nil {
		return err
	}
	for _, name := range p.polled() {
		c.polled = append(c.polled, c.newPoll(p.categories[name]))
	}
	c.listens = transport.Node{
		Subscriptions: append([]transport.Subscription{{Name: event.PartName}}, p.subscriptions...),
		Wake:          c.node.Wake, Rescan: c.node.Rescan, Forgot: func() { token(c.forgot) }, Report: a.transportFault,
	}
	return nil
}

func (c *shared) start(ctx context.Context) error {
	if err := c.relay.Start(ctx); err != nil {
		return err
	}
	if err := c.broker.Start(ctx, c.listens); err != nil {
		return err
	}
	if err := c.serve(ctx); err != nil {
		return err
	}
	c.carry(true)
	if err := c.node.Start(ctx); err != nil {
		return err
	}
	return errors.Join(c.looking.Start(ctx, c.look), c.duties.Start(ctx, c.attend), c.renewing.Start(ctx, c.renew), c.reviews.Start(ctx, c.review), c.polling.Start(ctx, c.poll), c.reaching.Start(ctx, c.stand))
}

func (c *shared) carry(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.carries = on
}

func (c *shared) carries() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.carries
}

// drain has the other nodes know that this one goes. It goes on relaying: what is in hand is still to be published.
func (c *shared) drain(ctx context.Context) error {
	if c.node == nil || !c.carries() {
		return nil
	}
	c.r.app.cfg.Logger.Info("draining: what is in hand is finished, and other nodes take the keys over", "others", max(len(c.node.Placement().Members())-1, 0))
	if err := c.node.Drain(ctx); err != nil {
		c.r.app.cfg.Logger.Warn("the other nodes do not know that this one stops: they take over when its leases lapse", "error", err)
		return err
	}
	return nil
}

func (c *shared) stop(ctx context.Context) error {
	if c.node == nil {
		return c.broker.Stop(ctx)
	}
	if err := errors.Join(c.looking.Stop(ctx), c.polling.Stop(ctx), c.reaching.Stop(ctx), c.renewing.Stop(ctx), c.reviews.Stop(ctx), c.duties.Stop(ctx)); err != nil {
		return err
	}
	if err := c.r.projections.Stop(ctx); err != nil { // before another node begins
		return err
	}
	if err := c.unserve(ctx); err != nil {
		c.r.app.cfg.Logger.Warn("the node service did not end in good order: who asked there is told that the answer is not known", "error", err)
	}
	if err := c.node.Stop(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		c.r.app.cfg.Logger.Warn("leases could not be given back: they lapse by themselves", "error", err)
	} else if c.carries() {
		c.r.app.cfg.Logger.Info("drained: all leases are given back")
	}
	c.carry(false)
	return errors.Join(c.relay.Stop(ctx), c.broker.Stop(ctx))
}

func (c *shared) committed(_ context.Context, tails []event.Tail) error {
	if c.carries() {
		c.relay.Committed(tails)
	}
	return nil
}

func (c *shared) notify() { c.relay.Notify() }

func (c *shared) resume(u event.Unit) {
	if c.runtime.Live(u) {
		c.runtime.ResumeLive(u)
		return
	}
	c.wake(u)
}

func (c *shared) wake(u event.Unit) {
	c.node.Rested(u, false)
	c.node.Mark(u)
}

func (c *shared) does(d duty) bool { return c.carries() && c.node.Holds(d.part()) }

// renew tells a broker that has lost its memory again what it must know.
func (c *shared) renew(ctx context.Context) {
	log, pause := c.r.app.cfg.Logger, time.Duration(0)
	timer := time.NewTimer(declareEvery)
	defer timer.Stop()
	for {
		routine := false
		select {
		case <-ctx.Done():
			return
		case <-c.forgot:
			log.Warn("the broker has lost its memory, or part of it: everything that was not passed is published again, and units wait until old leases have lapsed")
			c.relay.Forgot()
			for _, p := range c.polled {
				p.forgot.Store(true)
			}
			pause = 0
		case <-c.settling:
		case <-timer.C:
			routine = pause == 0
		}
		err := c.broker.Declare(ctx, c.declares)
		c.refused(err)
		if err == nil {
			err = c.settle(ctx)
		}
		if err != nil && ctx.Err() == nil {
			if !errors.Is(err, transport.ErrDeclared) { // which is told of
				rareLog(log, &c.once, "the broker could not be told what this application produces and reads: will try again", "declare", err)
			}
			pause = min(max(2*pause, 100*time.Millisecond), longestGap)
			timer.Reset(pause)
			continue
		}
		timer.Reset(declareEvery) // it may have lost it without our knowing, or another application claim what it has lost
		if pause = 0; !routine {
			c.node.Rescan()
		}
	}
}

// attend runs the projections while this node holds their part.
func (c *shared) attend(ctx context.Context) {
	projects := false
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-again.C:
		}
		does := c.does(dutyProjections)
		if does == projects {
			continue
		}
		var err error
		if does {
			err = c.r.projections.TakeOver(ctx, c.node.Unclean(dutyProjections.part()))
		} else {
			err = c.r.projections.Stop(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.r.app.cfg.Logger.Warn("projections: will try again", "error", err)
			again.Reset(lookEvery)
			continue
		}
		projects = does
	}
}

// look finds what only the store knows: what was set aside and is due, and, for projections, what other nodes committed.
func (c *shared) look(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	gap := lookEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if c.does(dutyProjections) {
			c.r.projections.WakeAll()
		}
		err := c.lookDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.r.store.told(err)
			gap = min(2*gap, longestGap)
		default:
			if gap > lookEvery { // the store is back
				c.node.Refit()
			}
			gap = lookEvery
		}
		timer.Reset(gap)
	}
}

// dueAgain is when a unit is told again of what is due for it: what it was told may have been lost on the way to another node.
const dueAgain = 5 * time.Second

func (c *shared) lookDue(ctx context.Context) error {
	now, seen := time.Now(), map[event.Unit]bool{}
	for after := (event.Unit{}); ; {
		units, err := c.r.app.cfg.Store.DueUnits(ctx, after, lookLimit)
		if err != nil {
			return err
		}
		for _, u := range units {
			after, seen[u] = u, true
			if c.tell(u, now) {
				c.resume(u)
			}
		}
		if len(units) < lookLimit {
			c.forgetTold(seen)
			return nil
		}
	}
}

// tell reports whether a unit is to be told of what is due: it is live here, or this node looks after it, and it was not told lately.
func (c *shared) tell(u event.Unit, now time.Time) bool {
	if !c.runtime.Live(u) && !c.node.Holds(u.Part()) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.mu.told[u]; known && now.Sub(last) < dueAgain {
		return false
	}
	c.mu.told[u] = now
	return true
}

func (c *shared) forgetTold(due map[event.Unit]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for u := range c.mu.told {
		if !due[u] {
			delete(c.mu.told, u)
		}
	}
}

// relist reads the lists of handled types again: another program has registered since.
func (r *running) relist(ctx context.Context) error {
	stored, err := r.app.cfg.Store.LoadRegistry(ctx)
	if err != nil {
		return fmt.Errorf("load registry: %w", err)
	}
	r.runtime.SetListed(stored.Revision, listed(stored))
	return nil
}

// token leaves a token in a channel that holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
