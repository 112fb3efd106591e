package keyhold

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/transport"
)

// Declaration is what [App.Register] takes: an [Entity], a [Handler] or a [Category].
type Declaration interface {
	// Faults gives everything that is wrong with the declaration by itself.
	Faults() []error
}

// declared is everything an application registered.
type declared struct {
	behaviors   []actors.Definition
	projections []projection.Definition
	categories  []Category
}

// category is what all declarations together say of one category.
type category struct {
	Category
	commands bool           // of an entity kind, or a command handler
	kind     string         // entity kind that emits here, or is commanded here; "" for neither
	free     string         // command handler whose commands go here; "" for none
	said     string         // who said what the key is, for messages
	types    []reflect.Type // structs, in order of declaration
	keyless  bool           // nobody said anything about its key or its buckets
}

// plan is what follows from the declarations alone; it is the same on every node.
type plan struct {
	categories    map[string]*category
	order         []string // of categories, by name
	routes        map[reflect.Type]route
	commands      map[string]map[reflect.Type]bool // by entity kind
	subscriptions []transport.Subscription
	descriptions  []actors.Description
	projections   []projection.Description
}

// resolve works out the categories, their keys and their types, and collects everything that is wrong. It does no I/O.
func resolve(in declared, types *codec.Registry, caps transport.Capabilities) (*plan, error) {
	r := resolver{types: types, caps: caps, plan: &plan{
		categories: map[string]*category{}, routes: map[reflect.Type]route{}, commands: map[string]map[reflect.Type]bool{},
	}}
	for _, d := range in.behaviors {
		r.faults = append(r.faults, d.Faults()...)
		r.plan.descriptions = append(r.plan.descriptions, d.Describe())
	}
	r.names()
	r.upcast(in)
	r.declare(in.categories)
	r.keys()
	r.sources()
	r.route()
	r.handlers()
	r.projections(in.projections)
	return r.plan, errors.Join(r.faults...)
}

// names gives the handlers and entity kinds, in order.
func (p *plan) names() []string {
	var all []string
	for _, d := range p.descriptions {
		all = append(all, d.Name)
	}
	slices.Sort(all)
	return all
}

type resolver struct {
	types  *codec.Registry
	caps   transport.Capabilities
	plan   *plan
	faults []error
}

func (r *resolver) addf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// of names a behavior in messages.
func of(d actors.Description) string { return fmt.Sprintf("%s %q", d.Kind, d.Name) }

// names finds behaviors of one name: they would share one consumer group, and so their events.
func (r *resolver) names() {
	first := map[string]actors.Description{}
	for _, d := range r.plan.descriptions {
		if other, ok := first[d.Name]; ok && d.Name != "" {
			r.addf("%s: the name is taken by the %s of that name: handlers and entity kinds share one name space, rename one", of(d), other.Kind)
			continue
		}
		first[d.Name] = d
	}
}

// upcast finds old versions that somebody waits for: upcasters make something newer of them before anybody sees them.
func (r *resolver) upcast(in declared) {
	check := func(who string, t reflect.Type, remedy string) {
		if newest, old := r.types.Upcast(t); old {
			r.addf("%s: nobody meets type %s, which upcasters make into %s: %s, or drop the upcaster", who, t, newest, remedy)
		}
	}
	for _, d := range r.plan.descriptions {
		for _, t := range d.Types {
			if t.Use != actors.UseQuery { // which is not stored
				check(of(d), t.Type, "use that type in its place")
			}
		}
	}
	for _, c := range in.categories {
		for _, e := range c.Events {
			check(fmt.Sprintf("category %q", c.Name), e.t, "publish that type")
		}
	}
}

// declare makes the categories: those of entity kinds, then those declared.
func (r *resolver) declare(declared []Category) {
	for _, d := range r.plan.descriptions {
		if d.Kind == eventstore.CommandHandler {
			r.declareCommands(d)
		}
		if d.Kind != eventstore.EntityKind {
			continue
		}
		events := r.category(d.Name)
		events.kind = d.Name
		commands := r.category(actors.CommandCategory(d.Name))
		commands.kind, commands.commands = d.Name, true
		r.plan.commands[d.Name] = map[reflect.Type]bool{}
		for _, t := range d.Types {
			switch t.Use {
			case actors.UseEvent:
				r.addType(events, t.Type, of(d))
				if to, ok := r.plan.routes[t.Type]; ok && to.category == d.Name {
					to.entity = d.Name
					r.plan.routes[t.Type] = to
				}
			case actors.UseCommand:
				r.plan.commands[d.Name][t.Type] = true
				if _, ok := r.types.Name(t.Type); ok {
					commands.types = append(commands.types, t.Type)
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, c := range declared {
		r.faults = append(r.faults, c.Faults()...)
		if seen[c.Name] {
			r.addf("category %q: declared twice: put everything into one Category", c.Name)
			continue
		}
		seen[c.Name] = true
		into := r.category(c.Name)
		into.Key, into.Buckets, into.Foreign, into.Polled = c.Key, c.Buckets, c.Foreign, c.Polled
		switch {
		case c.Foreign && into.kind != "":
			r.addf("category %q: Foreign says that another application produces it, but the events of entity %q of this one go into it: give one of the two another name", c.Name, into.kind)
		case c.Foreign && into.free != "":
			r.addf("category %q: Foreign says that another application produces it, but the commands of handler %q of this one go into it: give one of the two another name", c.Name, into.free)
		case c.Polled != "" && into.kind != "":
			r.addf("category %q: Polled says that other programs produce it, but the events of entity %q of this one go into it: give one of the two another name", c.Name, into.kind)
		}
		if c.Key != "" {
			into.said = "its Category"
		}
		for _, e := range c.Events {
			if e.t != nil {
				r.addType(into, e.t, fmt.Sprintf("category %q", c.Name))
			}
		}
	}
}

// declareCommands makes the category of a command handler.
func (r *resolver) declareCommands(d actors.Description) {
	c := r.category(actors.CommandCategory(d.Name))
	c.commands, c.free, c.Key, c.said = true, d.Name, d.SequentialBy, of(d)
	for _, t := range d.Types {
		r.addType(c, t.Type, of(d))
	}
}

func (r *resolver) category(name string) *category {
	c := r.plan.categories[name]
	if c == nil {
		c = &category{Category: Category{Name: name}}
		r.plan.categories[name] = c
		r.plan.order = append(r.plan.order, name)
		slices.Sort(r.plan.order)
	}
	return c
}

func (r *resolver) addType(c *category, t reflect.Type, who string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if other, ok := r.plan.routes[t]; ok {
		if other.category != c.Name {
			r.addf("%s: type %s is in category %q already: a type belongs to one category, drop it from one", who, t, other.category)
		}
		return
	}
	if _, _, err := r.types.NameOf(t); err != nil {
		r.addf("%s: %w", who, err)
	}
	r.plan.routes[t] = route{category: c.Name}
	c.types = append(c.types, t)
}

// keys settles the one key of each category, from its declaration and what its handlers ask for.
func (r *resolver) keys() {
	for _, d := range r.plan.descriptions {
		if d.Kind != eventstore.EventHandler {
			continue
		}
		for _, name := range d.Categories {
			c := r.plan.categories[name]
			switch {
			case c == nil:
				r.addf("%s: category %q is unknown: register the entity kind or the Category of that name%s", of(d), name, known(r.plan.order))
			case c.free != "":
				r.addf("%s: %q is the category of the commands of handler %q, which only that one handles", of(d), name, c.free)
			case c.commands:
				r.addf("%s: %q is the category of an entity's commands, which only the entity handles: subscribe to %q", of(d), name, c.kind)
			case d.SequentialBy == "" || d.SequentialBy == c.Key:
			case c.Buckets != 0:
				r.addf("%s: SequentialBy is %q, but category %q is declared without a key and with %d Buckets: set its Key instead", of(d), d.SequentialBy, name, c.Buckets)
			case c.Key == "":
				c.Key, c.said = d.SequentialBy, of(d)
			default:
				r.addf("%s: SequentialBy is %q, but category %q has the key %q, by %s: one key per category, so ask for the same or drop SequentialBy", of(d), d.SequentialBy, name, c.Key, c.said)
			}
		}
	}
	for _, c := range r.plan.categories {
		if c.Key == "" && c.Buckets == 0 && !c.commands {
			c.Buckets, c.keyless = DefaultBuckets, true
		}
	}
}

func known(names []string) string {
	var events []string
	for _, n := range names {
		if !strings.HasSuffix(n, event.CommandsSuffix) {
			events = append(events, strconv.Quote(n))
		}
	}
	if len(events) == 0 {
		return " (none is registered)"
	}
	return " (known: " + strings.Join(events, ", ") + ")"
}

// route finds the key of every type of every category.
func (r *resolver) route() {
	for _, name := range r.plan.order {
		c := r.plan.categories[name]
		if c.commands && c.free == "" {
			continue
		}
		for _, t := range c.types {
			to := r.plan.routes[t]
			to.buckets, to.field, to.foreign, to.polled = c.Buckets, c.Key, c.Foreign, c.Polled != ""
			if c.Key != "" {
				key, err := codec.Field(t, c.Key)
				if err != nil {
					r.addf("category %q: key %q, by %s: %w", name, c.Key, c.said, err)
				}
				to.key = key
			}
			r.plan.routes[t] = to
		}
	}
}

// handlers checks what each handler handles against its categories, and what it needs against the transport.
func (r *resolver) handlers() {
	for _, d := range r.plan.descriptions {
		if !r.caps.Has(transport.Publish) {
			r.addf("%s: the transport cannot publish (it can: %s): choose another, such as local", of(d), r.caps)
		}
		if d.SequentialBy != "" && !r.caps.Has(transport.Partitioning) && !r.caps.Has(transport.Inline) {
			r.addf("%s: SequentialBy %q needs a transport with partitioning (this one can: %s): choose local or redis, or drop SequentialBy", of(d), d.SequentialBy, r.caps)
		}
		for _, c := range d.Categories {
			r.plan.subscriptions = append(r.plan.subscriptions, transport.Subscription{Name: d.Name, Category: c})
		}
		if d.Kind == eventstore.EntityKind {
			continue
		}
		missing := func(c string) bool { return r.plan.categories[c] == nil }
		if len(d.Categories) == 0 || slices.ContainsFunc(d.Categories, missing) {
			continue // what is missing may well be what has the types that seem to be out of place
		}
		for _, t := range d.Types {
			to, ok := r.plan.routes[t.Type]
			switch {
			case !ok:
				r.addf("%s: On: type %s is in no category: add it to the Fold of its entity, or to the Events of a Category", of(d), t.Type)
			case !slices.Contains(d.Categories, to.category):
				r.addf("%s: On: type %s is in category %q, to which the handler does not subscribe: add it to Categories, or drop the case", of(d), t.Type, to.category)
			}
		}
	}
}
