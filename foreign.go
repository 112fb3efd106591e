package keyhold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// foreign gives the categories that other applications produce, in order.
func (p *plan) foreign() []string {
	var names []string
	for _, name := range p.order {
		if p.categories[name].Foreign {
			names = append(names, name)
		}
	}
	return names
}

// reaches refuses a transport on which no other application is. One that delivers inline is for tests, which say what has happened.
func (p *plan) reaches(t transport.Transport) error {
	names := p.foreign()
	if _, shared := t.(transport.Broker); t == nil || shared || t.Capabilities().Has(transport.Inline) {
		return nil
	}
	if polled := p.polled(); len(polled) > 0 {
		return fmt.Errorf("category %q is Polled: other programs write it into Redis, which transport %q does not reach: use redis.Open(url)", polled[0], t.Name())
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("category %q is Foreign: another application produces it, which transport %q does not reach: use redis.Open(url)", names[0], t.Name())
}

// produced describes categories for the broker.
func (p *plan) produced(names []string, storeID string) []transport.Produced {
	all := make([]transport.Produced, len(names))
	for i, name := range names {
		c := p.categories[name]
		all[i] = transport.Produced{Category: name, KeyField: c.Key, Buckets: c.Buckets, StoreID: storeID}
		if c.Foreign {
			all[i].StoreID = ""
		}
		if c.Polled != "" {
			all = append(all, transport.Produced{Category: c.Polled, KeyField: c.Key, StoreID: transport.PolledStore})
		}
	}
	return all
}

// meet connects to the broker before anything is registered, where that depends on what other applications declare and have published.
func (r *running) meet(ctx context.Context, p *plan, id eventstore.Identity, t bound) error {
	broker, ok := r.app.cfg.Transport.(transport.Broker)
	names := append(p.foreign(), p.polled()...)
	if !ok || len(names) == 0 {
		return nil
	}
	t.Bind(r.app.cfg.Store, id, r.app.cfg.keyRules())
	r.carrier = &shared{r: r, broker: broker} // which ends the connection if the start goes wrong
	if err := broker.Connect(ctx); err != nil {
		return fmt.Errorf("connect to %s: %w", broker.Name(), err)
	}
	if err := broker.Declare(ctx, transport.Declared{StoreID: id.StoreID, Categories: p.produced(names, id.StoreID)}); err != nil {
		return fmt.Errorf("declare to %s: %w", broker.Name(), err)
	}
	return nil
}

// apart is how far the clocks of two applications may be apart.
const apart = time.Minute

// beginAbroad finds where new handlers begin in the lanes that categories of other applications have now. In those that are live that is exact. In the others it goes by the time
// of events, and rather takes some that are a little older than leaves out one that its producer's clock says is.
func (a *App) beginAbroad(ctx context.Context, r *registration, now time.Time) error {
	broker, ok := a.cfg.Transport.(transport.Broker)
	if !ok {
		return nil
	}
	for i := range r.starts {
		s := &r.starts[i]
		if !s.Foreign || !s.Now && s.From.IsZero() {
			continue // the oldest are those at place 0, or that the producer has
		}
		from := &s.From
		if s.Now {
			from = nil
			for k := range r.save.Handlers {
				if h := &r.save.Handlers[k]; h.Name == s.Handler {
					h.Begins[s.Category] = now.Add(-min(apart, broker.Limits().RetireAfter/2)) // what left the broker was quiet for longer
				}
			}
		}
		places, err := broker.Beginnings(ctx, s.Category, from)
		if err != nil {
			return fmt.Errorf("look where handler %q begins in category %q of another application: %w", s.Handler, s.Category, err)
		}
		s.Places = places
	}
	return nil
}

// begin tells subscribers from when on they begin, as they are registered.
func begin(subscribers []transport.Subscriber, registered eventstore.Registered) {
	for i := range subscribers {
		s := &subscribers[i]
		for k := range registered.Handlers {
			if h := &registered.Handlers[k]; h.Name == s.Name {
				s.Begins = h.Begins[s.Category]
			}
		}
	}
}

// settle takes handlers of this store off the broker that the store does not know any more: they were removed, or have another name. With no node running nobody could. Those of
// other stores go when this process saw them removed; their application declares them again if it still has them.
func (c *shared) settle(ctx context.Context) error {
	store, own := c.r.app.cfg.Store, c.declares.StoreID
	before, err := store.LoadRegistry(ctx)
	if err != nil {
		return fmt.Errorf("load registry: %w", err)
	}
	categories := map[string]bool{}
	for _, known := range before.Categories {
		categories[known.Name] = true
	}
	found, err := c.broker.Subscribers(ctx, slices.Sorted(maps.Keys(categories)))
	if err != nil {
		return err
	}
	now, err := store.LoadRegistry(ctx) // after the broker: whoever registers does it here first
	if err != nil {
		return fmt.Errorf("load registry: %w", err)
	}
	removed := c.removed.take()
	gone := map[string]bool{}
	for _, subscribers := range found {
		for _, s := range subscribers {
			// A reader of another application may be registered anew: a relay has found it on the broker. That is told by the broker that it is gone, and forgets it.
			if s.StoreID == own && !has(now, s.Name) || s.StoreID != own && removed[s.Name] {
				gone[s.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if err := c.broker.Unregister(ctx, name); err != nil {
			c.removed.add(slices.Collect(maps.Keys(removed))...)
			return err
		}
		c.r.app.cfg.Logger.Info("a handler that was removed is off the broker: nothing waits for it any more", "handler", name)
	}
	if len(gone) == 0 {
		return nil
	}
	return c.restore(ctx, gone)
}

// restore declares handlers again that somebody has registered while they were taken off.
func (c *shared) restore(ctx context.Context, gone map[string]bool) error {
	now, err := c.r.app.cfg.Store.LoadRegistry(ctx)
	if err != nil {
		return fmt.Errorf("load registry: %w", err)
	}
	d := transport.Declared{StoreID: c.declares.StoreID}
	for i := range now.Handlers {
		h := &now.Handlers[i]
		if !gone[h.Name] || h.StoreID != "" {
			continue
		}
		for _, category := range h.Categories {
			d.Subscribers = append(d.Subscribers, transport.Subscriber{Name: h.Name, Category: category, StoreID: d.StoreID, Kind: string(h.Kind), Begins: h.Begins[category]})
		}
	}
	if len(d.Subscribers) == 0 {
		return nil
	}
	return c.broker.Declare(ctx, d)
}

func has(r eventstore.Registered, name string) bool {
	return slices.ContainsFunc(r.Handlers, func(h eventstore.Handler) bool { return h.Name == name })
}

// unlisted has handlers taken off the broker that were removed, or have another name now.
func (c *shared) unlisted(name string) {
	c.removed.add(name)
	token(c.settling)
}

// nameSet is a set of names that several may add to.
type nameSet struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *nameSet) add(names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	for _, name := range names {
		n.all[name] = true
	}
}

// take gives what is in it, and empties it.
func (n *nameSet) take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

var errForeign = errors.New("another application produces it, and that one alone: emit an event of a category of your own")
