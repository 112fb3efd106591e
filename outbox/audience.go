package outbox

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// heardFor is how long it is known who subscribes to a category.
const heardFor = 3 * time.Second

// audience is who subscribes to a category.
type audience struct {
	names []string
	at    time.Time
}

// listen finds out for whom the jobs are that began. Those for nobody are over: nobody waits for them, and whoever subscribes later reads the store.
func (r *Relay) listen(ctx context.Context) {
	jobs, of := r.at(func(j *job) bool { return !j.known })
	if len(jobs) == 0 {
		return
	}
	now := r.cfg.Now()
	var ask []event.LaneRef // one of each category that is to be asked for
	for _, j := range jobs {
		if a, known := r.heard[j.lane.Category]; known && now.Sub(a.at) < heardFor {
			continue
		}
		if !slices.ContainsFunc(ask, func(l event.LaneRef) bool { return l.Category == j.lane.Category }) {
			ask = append(ask, j.lane)
		}
	}
	if len(ask) > 0 {
		if err := r.hear(ctx, of, ask, now); err != nil {
			r.trouble(ctx, "ask who subscribes", err)
			return
		}
	}
	for _, j := range jobs {
		j.names, j.known = r.heard[j.lane.Category].names, true
		if len(j.names) == 0 {
			j.skip()
		}
	}
}

// hear asks the store who subscribes, and the broker whether there is somebody whom the store does not know yet: a subscriber of another application. The store
// is told then, because the broker may forget, and nothing must be thrown away meanwhile that such a one has not read.
func (r *Relay) hear(ctx context.Context, of parts, lanes []event.LaneRef, now time.Time) error {
	passing, err := r.passing(ctx, of, lanes)
	if err != nil {
		return err
	}
	categories := make([]string, len(lanes))
	known := make(map[string][]string, len(lanes))
	for i := range passing {
		categories[i] = lanes[i].Category
		for _, s := range passing[i].Subscribers {
			known[categories[i]] = append(known[categories[i]], s.Name)
		}
	}
	var found map[string][]transport.Subscriber
	err = r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) (err error) {
		found, err = r.cfg.Broker.Subscribers(ctx, categories)
		return err
	})
	if err != nil {
		return err
	}
	unknown := r.unknown(known, found)
	if len(unknown) > 0 {
		if unknown, err = r.remember(ctx, of, unknown); err != nil {
			return err
		}
	}
	for _, category := range categories {
		for _, s := range unknown {
			if s.Category == category {
				known[category] = append(known[category], s.Name)
			}
		}
		r.heard[category] = audience{names: known[category], at: now}
	}
	return nil
}

// unknown gives the subscribers of other stores that are not among the known.
func (r *Relay) unknown(known map[string][]string, found map[string][]transport.Subscriber) []transport.Subscriber {
	var all []transport.Subscriber
	for category, some := range found {
		for _, s := range some {
			if s.StoreID != r.cfg.StoreID && !slices.Contains(known[category], s.Name) {
				all = append(all, s)
			}
		}
	}
	return all
}

// remember has the store know subscribers of other applications, and gives those that it knows now. When somebody else registers at the same time it
// fails, to be tried again.
func (r *Relay) remember(ctx context.Context, of parts, unknown []transport.Subscriber) (known []transport.Subscriber, err error) {
	err = r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		registry, err := r.cfg.Store.LoadRegistry(ctx)
		if err != nil {
			return err
		}
		var save eventstore.Registered
		save, known = r.enrol(registry, unknown)
		if len(save.Handlers) == 0 {
			return nil
		}
		return r.cfg.Store.SaveRegistry(ctx, save, nil)
	})
	if err != nil {
		return nil, err
	}
	if len(known) > 0 {
		r.listed = time.Time{} // to be asked for what they miss
		r.cfg.Logger.Info("subscribers of other applications are registered", "subscribers", known)
	}
	return known, nil
}

// enrol gives what is to be saved. A name that has its checkpoints in yet another store is left out: the broker would have refused it, had it known.
func (r *Relay) enrol(registry eventstore.Registered, unknown []transport.Subscriber) (save eventstore.Registered, known []transport.Subscriber) {
	handlers := make(map[string]*eventstore.Handler)
	for i := range registry.Handlers {
		handlers[registry.Handlers[i].Name] = &registry.Handlers[i]
	}
	changed := make(map[string]bool)
	for _, s := range unknown {
		h := handlers[s.Name]
		if h == nil {
			h = &eventstore.Handler{Name: s.Name, Kind: eventstore.HandlerKind(s.Kind), StoreID: s.StoreID, Sequential: true, Since: r.cfg.Now().UTC()}
			handlers[s.Name] = h
		}
		if h.StoreID != s.StoreID {
			r.tellTaken(s)
			continue
		}
		known = append(known, s)
		if !slices.Contains(h.Categories, s.Category) {
			h.Categories = slices.Sorted(slices.Values(append(slices.Clone(h.Categories), s.Category)))
			changed[s.Name] = true
		}
	}
	save.Revision = registry.Revision
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		save.Handlers = append(save.Handlers, *handlers[name])
	}
	return save, known
}

// tellTaken says, now and then, that nothing is sent to a subscriber.
func (r *Relay) tellTaken(s transport.Subscriber) {
	now := r.cfg.Now()
	if told, is := r.taken[s.Name]; is && now.Sub(told) < r.cfg.HealAfter {
		return
	}
	r.taken[s.Name] = now
	r.cfg.Logger.Error("a subscriber of another application has the name of one that is registered here: nothing is sent to it; give one of the two another name",
		"name", s.Name, "category", s.Category, "its store", s.StoreID)
}
