package keyhold

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// compareTypes records every type with a wire name. It refuses one that changed its encoding or its category, and stored versions that
// somebody would meet and not understand; it warns of what else is not as it was.
func (r *registrar) compareTypes(stored []eventstore.Type, before map[string]eventstore.Handler) {
	newest, exact := map[string]eventstore.Type{}, map[codec.Version]eventstore.Type{}
	for _, t := range stored {
		exact[codec.Version{Name: t.Name, Version: t.Version}] = t
		if was, ok := newest[t.Name]; !ok || t.Version > was.Version {
			newest[t.Name] = t
		}
	}
	read := map[codec.Version]bool{}
	for _, name := range r.plan.order {
		for _, t := range r.plan.categories[name].types {
			now, err := r.describe(t, name)
			if err != nil {
				r.addf("category %q: %w", name, err)
				continue
			}
			if was, ok := newest[now.Name]; ok && r.hasEvents[was.Category] {
				r.compareType(was, now, t)
			}
			version := codec.Version{Name: now.Name, Version: now.Version}
			if was, ok := exact[version]; ok && r.hasEvents[was.Category] {
				r.compareFields(was, now)
			}
			read[version] = true
			for _, old := range r.types.Older(t) {
				read[old] = true
				if was, ok := exact[old]; ok && r.hasEvents[was.Category] {
					r.compareOlder(was, now)
				}
			}
			r.out.save.Types = append(r.out.save.Types, now)
		}
	}
	for _, t := range stored {
		if r.hasEvents[t.Category] {
			r.meet(t, read[codec.Version{Name: t.Name, Version: t.Version}], before)
		}
	}
}

// meet says who would meet events of a stored version and has no use for them; read: there is somebody who has.
//
// What a newer program may have written is no fault of this one, which may have been put back: it waits where it meets that, and must start.
func (r *registrar) meet(t eventstore.Type, read bool, before map[string]eventstore.Handler) {
	_, err := r.types.TypeOf(t.Name, t.Version)
	newer := errors.Is(err, codec.ErrNewer)
	var stuck []string
	for _, m := range r.meetings(t, before) {
		switch {
		case newer:
		case read && !m.folds: // it may have passed them all, or begin after them
			r.warnf("type %q version %d: %s has no case for it, though it is registered for type %[1]q, and the store may have some in category %[4]q: "+
				"it gets no further where it meets one; keep a case for it, or add a keyhold.Upcast to the version that it handles", t.Name, t.Version, m.who, t.Category)
		default:
			stuck = append(stuck, m.who)
		}
	}
	switch {
	case len(stuck) > 0:
		r.addf("type %q version %d: the store may have some in category %q, and this program has no use for them, which %s would meet: "+
			"add a keyhold.Upcast from its Go type, or keyhold.UpcastJSON(%[1]q, %[2]d, ...), or keep its Go type and a case for it",
			t.Name, t.Version, t.Category, strings.Join(stuck, " and "))
	case newer && !read:
		r.warnf("type %q version %d: this program handles it nowhere, and the store may have some in category %q: an entity, a handler or a projection that meets one "+
			"waits for a newer program; if this is the newest, keep the Go type and its cases, or add an upcaster", t.Name, t.Version, t.Category)
	case !read:
		r.warnf("type %q version %d: this program handles it nowhere, and the store may have some in category %q: nothing registered here meets them, "+
			"but what is to read them again needs the Go type and its cases, or an upcaster", t.Name, t.Version, t.Category)
	}
}

// meeting is a behavior that would be given events of a stored version, and has no case for them.
type meeting struct {
	who   string
	folds bool // it is an entity, and they are its own: there is no way around them
}

func (r *registrar) meetings(t eventstore.Type, before map[string]eventstore.Handler) (all []meeting) {
	for _, d := range r.plan.descriptions {
		if m := r.meeting(d, t, before[d.Name].Types); m.who != "" {
			all = append(all, m)
		}
	}
	for _, d := range r.plan.projections {
		reads := slices.Contains(d.Categories, t.Category) || len(d.Categories) == 0 && !strings.HasSuffix(t.Category, event.CommandsSuffix)
		if names, versions := r.handled(d.Types); reads && names[t.Name] && !versions[codec.Version{Name: t.Name, Version: t.Version}] {
			all = append(all, meeting{who: fmt.Sprintf("projection %q", d.Name)})
		}
	}
	return all
}

// meeting has no who where there is none.
func (r *registrar) meeting(d actors.Description, t eventstore.Type, listed []string) meeting {
	entity := d.Kind == eventstore.EntityKind
	own := entity && t.Category == d.Name
	if !own && !slices.Contains(d.Categories, t.Category) {
		return meeting{}
	}
	var cases []reflect.Type
	for _, use := range d.Types {
		if !entity || own == (use.Use == actors.UseEvent) {
			cases = append(cases, use.Type)
		}
	}
	names, versions := r.handled(cases)
	switch {
	case versions[codec.Version{Name: t.Name, Version: t.Version}]:
	case own && (names[t.Name] || !r.published(t)):
		return meeting{who: of(d), folds: true}
	case !own && (names[t.Name] || slices.Contains(listed, t.Name)):
		return meeting{who: of(d)}
	}
	return meeting{}
}

// handled gives the wire names and the versions that cases are given: of their types, and of what upcasters bring them.
func (r *registrar) handled(cases []reflect.Type) (names map[string]bool, versions map[codec.Version]bool) {
	names, versions = map[string]bool{}, map[codec.Version]bool{}
	for _, c := range cases {
		name, version, err := r.types.NameOf(c)
		if err != nil {
			continue
		}
		for _, v := range append([]codec.Version{{Name: name, Version: version}}, r.types.Older(c)...) {
			names[v.Name], versions[v] = true, true
		}
	}
	return names, versions
}

// published reports whether a type is one of those that are published into its category beside what the entity emits.
func (r *registrar) published(t eventstore.Type) bool {
	return slices.ContainsFunc(r.plan.categories[t.Category].types, func(declared reflect.Type) bool {
		name, _ := r.types.Name(declared)
		return name == t.Name && r.plan.routes[declared].entity == ""
	})
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

// compareOlder looks at a stored version that an upcaster reads as another.
func (r *registrar) compareOlder(was, now eventstore.Type) {
	if was.Category != now.Category && was.Name != now.Name {
		r.addf("type %q: its events are in category %q, and its upcaster leads to type %q in category %q: an event stays in its category, so lead to a type of that one",
			was.Name, was.Category, now.Name, now.Category)
	}
	t, ok := r.types.StoredAs(codec.Version{Name: was.Name, Version: was.Version})
	if !ok {
		return
	}
	if as, err := r.describe(t, was.Category); err == nil {
		r.compareFields(was, as)
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
			r.warnf("type %q version %d: field %q was %s, is %s now, and there may be events: declare version %d beside it, and a keyhold.Upcast to that", now.Name, now.Version, f.Name, kind, f.Kind, now.Version+1)
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
