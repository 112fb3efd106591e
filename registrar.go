package keyhold

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
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
		r.out.save.Categories = append(r.out.save.Categories, eventstore.Category{Name: name, KeyField: c.Key, Buckets: c.Buckets, Commands: c.commands, StoreID: storeID})
	}
	r.compareTypes(stored.Types)
	before := map[string]eventstore.Handler{}
	for _, h := range stored.Handlers {
		before[h.Name] = h
	}
	for _, d := range p.descriptions {
		old, known := before[d.Name]
		r.handler(d, old, known)
	}
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

// compareTypes records every type with a wire name. It refuses one that changed its encoding or its category, and warns of what else is not
// as it was.
func (r *registrar) compareTypes(stored []eventstore.Type) {
	newest, exact := map[string]eventstore.Type{}, map[typeVersion]eventstore.Type{}
	for _, t := range stored {
		exact[typeVersion{t.Name, t.Version}] = t
		if before, ok := newest[t.Name]; !ok || t.Version > before.Version {
			newest[t.Name] = t
		}
	}
	declared := map[typeVersion]bool{}
	for _, name := range r.plan.order {
		for _, t := range r.plan.categories[name].types {
			now, err := r.describe(t, name)
			if err != nil {
				r.addf("category %q: %w", name, err)
				continue
			}
			if before, ok := newest[now.Name]; ok && r.hasEvents[before.Category] {
				r.compareType(before, now, t)
			}
			if before, ok := exact[typeVersion{now.Name, now.Version}]; ok && r.hasEvents[before.Category] {
				r.compareFields(before, now)
			}
			declared[typeVersion{now.Name, now.Version}] = true
			r.out.save.Types = append(r.out.save.Types, now)
		}
	}
	for _, t := range stored {
		if !declared[typeVersion{t.Name, t.Version}] && r.hasEvents[t.Category] {
			r.warnf("type %q version %d: this program handles it nowhere, and the store may have some in category %q: an entity or a handler that meets one gets no further; keep the Go type and its cases", t.Name, t.Version, t.Category)
		}
	}
}

// typeVersion is one version of a wire name.
type typeVersion struct {
	name    string
	version int
}

func (r *registrar) describe(t reflect.Type, category string) (eventstore.Type, error) {
	desc, err := r.types.Describe(t)
	if err != nil {
		return eventstore.Type{}, err
	}
	out := eventstore.Type{Name: desc.Name, Version: desc.Version, Encoding: desc.Encoding, Category: category, Descriptor: desc.Descriptor}
	for _, f := range desc.Fields {
		out.Fields = append(out.Fields, eventstore.Field{Name: f.Name, Kind: f.Kind})
	}
	return out, nil
}

func (r *registrar) compareType(before, now eventstore.Type, t reflect.Type) {
	if before.Category != now.Category {
		r.addf("type %q: its events are in category %q, this program puts it into %q: use a new wire name", now.Name, before.Category, now.Category)
	}
	if before.Encoding != now.Encoding {
		r.addf("type %q: its events are encoded as %s, this program encodes %s as %s: use a new wire name", now.Name, before.Encoding, t, now.Encoding)
	}
}

// compareFields warns of fields whose values in the store may be none of the kind that they have now.
func (r *registrar) compareFields(before, now eventstore.Type) {
	was := map[string]string{}
	for _, f := range before.Fields {
		was[f.Name] = f.Kind
	}
	for _, f := range now.Fields {
		if kind, ok := was[f.Name]; ok && !reads(f.Kind, kind, now.Encoding) {
			r.warnf("type %q version %d: field %q was %s, is %s now, and there may be events: declare version %d beside it", now.Name, now.Version, f.Name, kind, f.Kind, now.Version+1)
		}
	}
}

// reads reports whether a field of one kind is read from values of another.
func reads(now, was string, enc event.Encoding) bool {
	if now == was || now == "any" {
		return true
	}
	if enc == event.Proto {
		return (isVarint(now) && isVarint(was)) || now == "bytes" && was == "string"
	}
	return isWhole(was) && (isWhole(now) || strings.HasPrefix(now, "float"))
}

func isVarint(kind string) bool {
	return slices.Contains([]string{"int32", "int64", "uint32", "uint64", "bool", "enum"}, kind)
}

// isWhole reports whether a Go kind is an integer. That one is too small for a value is told when the value comes.
func isWhole(kind string) bool { return strings.HasPrefix(strings.TrimPrefix(kind, "u"), "int") }

// handler records one behavior; its list of types only grows, so that a program rolled back does not pass over what it lost.
func (r *registrar) handler(d actors.Description, old eventstore.Handler, known bool) {
	h := eventstore.Handler{Name: d.Name, Kind: d.Kind, Categories: d.Categories, Sequential: d.SequentialBy != "", Since: r.now}
	if known {
		h.Since = old.Since
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
	}
	h.Types = slices.Sorted(maps.Keys(names))
	for _, c := range d.Categories {
		if !known || !slices.Contains(old.Categories, c) {
			r.start(d, c)
		}
	}
	h.Categories = union(old.Categories, d.Categories)
	r.out.save.Handlers = append(r.out.save.Handlers, h)
}

// start settles where a subscription begins that the store does not know yet.
func (r *registrar) start(d actors.Description, category string) {
	if d.Kind == eventstore.EntityKind {
		return
	}
	if d.StartFrom == "" && r.hasEvents[category] {
		r.addf("%s: StartFrom is not set, and category %q, new to it, has events: set Oldest, Now or Since(time)", of(d), category)
	}
	// Oldest is a zero time. Without a start, what was purged of a lane, or all of it, would be missing to the handler.
	at, _ := d.StartFrom.Time()
	r.out.starts = append(r.out.starts, eventstore.Start{Handler: d.Name, Category: category, Now: d.StartFrom == actors.Now, From: at})
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
