package keyhold

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/eventstore"
)

// registration is what a start saves in the store's registry, and what it has to say about it.
type registration struct {
	save     eventstore.Registered
	starts   []eventstore.Start
	hints    []string // of what cannot be changed later
	warnings []string // of what was there before
}

// register compares the plan with what the store holds. hasEvents says which categories, of both, have any record.
func (p *plan) register(types *codec.Registry, stored eventstore.Registered, storeID string, hasEvents map[string]bool, now time.Time) (registration, error) {
	r := registrar{plan: p, types: types, hasEvents: hasEvents, storeID: storeID, now: now, out: registration{save: eventstore.Registered{Revision: stored.Revision}}}
	for _, c := range stored.Categories {
		r.compareCategory(c)
	}
	for _, name := range p.order {
		c := p.categories[name]
		if c.keyless && c.kind != "" && !hasEvents[name] {
			r.hintf("category %q has no key: its events go into %d buckets; if handlers are ever to be SequentialBy a field, declare keyhold.Category{Name: %q, Key: \"the field\"} before the first event", name, c.Buckets, name)
		}
		r.out.save.Categories = append(r.out.save.Categories, eventstore.Category{Name: name, KeyField: c.Key, Buckets: c.Buckets, Commands: c.commands, StoreID: c.producer(storeID)})
	}
	before := map[string]eventstore.Handler{}
	for _, h := range stored.Handlers {
		before[h.Name] = h
	}
	r.compareTypes(stored.Types, before)
	for _, d := range p.descriptions {
		old, known := before[d.Name]
		r.handler(d, old, known)
	}
	r.absent(stored.Handlers)
	return r.out, errors.Join(r.faults...)
}

type registrar struct {
	plan      *plan
	types     *codec.Registry
	hasEvents map[string]bool
	storeID   string
	now       time.Time
	out       registration
	faults    []error
}

func (r *registrar) addf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

func (r *registrar) hintf(format string, args ...any) {
	r.out.hints = append(r.out.hints, fmt.Sprintf(format, args...))
}

func (r *registrar) warnf(format string, args ...any) {
	r.out.warnings = append(r.out.warnings, fmt.Sprintf(format, args...))
}

// compareCategory refuses a category whose events are already laid out otherwise: their keys cannot be changed afterwards.
func (r *registrar) compareCategory(old eventstore.Category) {
	c, ok := r.plan.categories[old.Name]
	if !ok || !r.hasEvents[old.Name] {
		return
	}
	if c.Foreign {
		r.addf("category %q: Foreign says that another application produces it, but store %s, this program's, has events of it: drop Foreign, or give the category of the other application "+
			"another name there", old.Name, r.storeID)
		return
	}
	if c.Key != old.KeyField {
		remedy := "keep the key, or publish to a new category"
		switch {
		case c.Key == "":
			remedy = fmt.Sprintf("register keyhold.Category{Name: %q, Key: %q}", old.Name, old.KeyField)
		case old.KeyField == "":
			remedy = fmt.Sprintf("drop SequentialBy and the Key, or begin with an empty store and keyhold.Category{Name: %q, Key: %q}, declared before the first event", old.Name, c.Key)
		}
		r.addf("category %q: the store has it with %s, this program declares %s%s, and it has events: %s", old.Name, keyOf(old.KeyField), keyOf(c.Key), by(c.said), remedy)
	}
	if c.Key == "" && old.KeyField == "" && c.Buckets != old.Buckets && !c.commands {
		r.addf("category %q: the store has it in %d buckets, this program declares %d, and it has events: keep the number", old.Name, old.Buckets, c.Buckets)
	}
	if c.commands != old.Commands {
		r.addf("category %q: it holds commands in one of the store and this program, and events in the other: rename it", old.Name)
	}
	if old.StoreID != "" && old.StoreID != r.storeID {
		r.addf("category %q: its events come from store %s, this program's store is %s: two stores cannot produce one category", old.Name, old.StoreID, r.storeID)
	}
}

func keyOf(field string) string {
	if field == "" {
		return "no key"
	}
	return fmt.Sprintf("the key %q", field)
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " (by " + who + ")"
}

// handler records one behavior; its list of types only grows, so that a program rolled back does not pass over what it lost.
func (r *registrar) handler(d actors.Description, old eventstore.Handler, known bool) {
	h := eventstore.Handler{Name: d.Name, Kind: d.Kind, Categories: d.Categories, Sequential: d.SequentialBy != "", Since: r.now}
	if known {
		h.Since = old.Since
		if old.StoreID != "" {
			r.addf("%s: the name is that of a handler of another application, with store %s, which reads events of this one: give one of the two another name", of(d), old.StoreID)
		}
		if old.Kind != d.Kind {
			r.addf("%s: the store knows %q as %s: its checkpoints are of another kind, use a new name", of(d), d.Name, old.Kind)
		}
	}
	names := map[string]bool{}
	for _, n := range old.Types {
		names[n] = true
	}
	for _, t := range d.Types {
		if t.Use == actors.UseQuery || t.Use == actors.UseReply || d.Kind == eventstore.EntityKind && t.Use == actors.UseEvent {
			continue
		}
		if n, ok := r.types.Name(t.Type); ok {
			names[n] = true
		}
		for _, old := range r.types.Older(t.Type) {
			names[old.Name] = true
		}
	}
	h.Types = slices.Sorted(maps.Keys(names))
	for _, c := range d.Categories {
		begins, begun := old.Begins[c]
		if !known || !slices.Contains(old.Categories, c) {
			begins = r.start(d, c)
			begun = true
		}
		if begun && r.foreign(c) {
			if h.Begins == nil {
				h.Begins = map[string]time.Time{}
			}
			h.Begins[c] = begins
		}
	}
	for c, at := range old.Begins { // of categories that it does not subscribe to in this program
		if !slices.Contains(d.Categories, c) {
			if h.Begins == nil {
				h.Begins = map[string]time.Time{}
			}
			h.Begins[c] = at
		}
	}
	h.Categories = union(old.Categories, d.Categories)
	r.out.save.Handlers = append(r.out.save.Handlers, h)
}

func (r *registrar) foreign(category string) bool {
	c := r.plan.categories[category]
	return c != nil && c.Foreign
}

// producer is the store that produces the category, "" for one of another application, which is known to the broker.
func (c *category) producer(own string) string {
	if c.Foreign {
		return ""
	}
	return own
}

// start settles where a subscription begins that the store does not know yet, and gives from when on.
func (r *registrar) start(d actors.Description, category string) time.Time {
	if d.Kind == eventstore.EntityKind {
		return time.Time{}
	}
	foreign := r.foreign(category)
	if d.StartFrom == "" && foreign {
		r.addf("%s: StartFrom is not set, and category %q, new to it, is another application's, which may have events: set Oldest, Now or Since(time)", of(d), category)
	}
	if d.StartFrom == "" && r.hasEvents[category] {
		r.addf("%s: StartFrom is not set, and category %q, new to it, has events: set Oldest, Now or Since(time)", of(d), category)
	}
	// Oldest is a zero time. Without a start, what was purged of a lane, or all of it, would be missing to the handler.
	at, _ := d.StartFrom.Time()
	r.out.starts = append(r.out.starts, eventstore.Start{Handler: d.Name, Category: category, Now: d.StartFrom == actors.Now, From: at, Foreign: foreign})
	return at
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, cmp.Compare)
	return slices.Compact(all)
}

// listed gives the wire names in each behavior's durable registration.
func listed(r eventstore.Registered) map[string][]string {
	out := map[string][]string{}
	for _, h := range r.Handlers {
		out[h.Name] = h.Types
	}
	return out
}
