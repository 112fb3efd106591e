package keyholdtest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore"
)

// declared is what an application under test is made of.
type declared struct {
	tested []actors.Definition   // given to Entity and Handler; of one name the first counts
	with   []keyhold.Declaration // given to With
}

func (d *declared) test(def actors.Definition) {
	if !d.has(def.Describe().Name) {
		d.tested = append(d.tested, def)
	}
}

func (d *declared) has(name string) bool {
	return slices.ContainsFunc(d.tested, func(def actors.Definition) bool { return def.Describe().Name == name })
}

// handlers gives the names of all handlers.
func (d *declared) handlers() []string {
	var names []string
	for _, one := range d.all() {
		if def, ok := one.(actors.Definition); ok && def.Describe().Kind == eventstore.EventHandler {
			names = append(names, def.Describe().Name)
		}
	}
	return names
}

func (d *declared) all() []keyhold.Declaration {
	var all []keyhold.Declaration
	for _, def := range d.tested {
		all = append(all, def)
	}
	for _, w := range d.with {
		if def, ok := w.(actors.Definition); !ok || !d.has(def.Describe().Name) {
			all = append(all, w)
		}
	}
	return all
}

// complete gives all declarations, and the categories that they leave out: those that a handler subscribes to and nobody declares. Such a
// category has the events that the handler handles, as far as they are in no other.
func (d *declared) complete() ([]keyhold.Declaration, error) {
	all := d.all()
	known := knownOf(all)
	var added []keyhold.Category
	for _, one := range all {
		def, ok := one.(actors.Definition)
		if !ok || def.Describe().Kind != eventstore.EventHandler {
			continue
		}
		c, err := known.missing(def.Describe())
		if err != nil {
			return nil, err
		}
		if c.Name != "" {
			added = merge(added, c)
		}
	}
	for _, c := range added {
		all = append(all, c)
	}
	return all, nil
}

// known is what some declarations say of categories and their events.
type known struct {
	categories map[string]bool
	events     map[keyhold.EventType]bool
}

func knownOf(all []keyhold.Declaration) known {
	k := known{map[string]bool{}, map[keyhold.EventType]bool{}}
	for _, one := range all {
		switch one := one.(type) {
		case keyhold.Category:
			k.categories[one.Name] = true
			for _, e := range one.Events {
				k.events[e] = true
			}
		case actors.Definition:
			d := one.Describe()
			if d.Kind != eventstore.EntityKind {
				continue
			}
			k.categories[d.Name] = true
			for _, t := range d.Types {
				if t.Use == actors.UseEvent {
					k.events[keyhold.EventOfType(t.Type)] = true
				}
			}
		}
	}
	return k
}

// missing gives the one category of a handler that is not known; its Name is empty when all are.
func (k known) missing(d actors.Description) (keyhold.Category, error) {
	var c keyhold.Category
	for _, name := range d.Categories {
		switch {
		case k.categories[name]:
		case c.Name != "":
			return c, fmt.Errorf("handler %q subscribes to %q and %q, and nothing says which events are in which: "+
				"add keyholdtest.With(keyhold.Category{...}) for one of them", d.Name, c.Name, name)
		default:
			c.Name = name
		}
	}
	for _, t := range d.Types {
		if e := keyhold.EventOfType(t.Type); !k.events[e] && !k.events[keyhold.EventOfType(reflect.PointerTo(t.Type))] {
			c.Events = append(c.Events, e)
		}
	}
	return c, nil
}

// merge adds a category, or its events to the one of its name.
func merge(all []keyhold.Category, c keyhold.Category) []keyhold.Category {
	for i := range all {
		if all[i].Name == c.Name {
			for _, e := range c.Events {
				if !slices.Contains(all[i].Events, e) {
					all[i].Events = append(all[i].Events, e)
				}
			}
			return all
		}
	}
	return append(all, c)
}
