package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// atRest reports whether the store knows nothing of a unit: no event was ever for it, and nobody has done anything to it.
func atRest(s eventstore.UnitState) bool {
	return s.Halt == nil && s.Pause == nil && s.Parking == nil && s.Tried == nil && s.Dead == 0 && len(s.Lanes) == 0
}

// known gives an error for a unit that there is nothing of: that of a key that is misspelt, or of the id of an entity where a key is asked
// for. An entity without commands is known by its events.
func (d *Desk) known(ctx context.Context, s eventstore.UnitState) error {
	if !atRest(s) {
		return nil
	}
	r, err := d.store.LoadRegistry(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.Handlers, func(h eventstore.Handler) bool { return h.Name == s.Unit.Name })
	if i < 0 || len(r.Handlers[i].Categories) == 0 {
		return nil
	}
	h := r.Handlers[i]
	if h.Kind == eventstore.EntityKind {
		rows, err := d.store.ReadStream(ctx, event.Stream{Kind: h.Name, ID: s.Unit.Key}, 0, 1)
		if err != nil || len(rows) > 0 {
			return err
		}
		return &NotFoundError{What: "key of " + h.Name, Name: s.Unit.Key, Words: fmt.Sprintf("no %s has the id %q: it has no event and was sent no command", h.Name, s.Unit.Key)}
	}
	missing, err := d.noKey(ctx, r, h.Categories, s.Unit.Key)
	if err != nil {
		return err
	}
	missing.What = "key of " + h.Name
	return missing
}

// noKey says that no event of these categories has a key, what their keys are, and what else may have been meant by it.
func (d *Desk) noKey(ctx context.Context, r eventstore.Registered, categories []string, key string) (*NotFoundError, error) {
	var values []string
	for _, name := range categories {
		i := slices.IndexFunc(r.Categories, func(c eventstore.Category) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		switch c := r.Categories[i]; {
		case c.Commands:
			values = append(values, "ids of the entities that the commands are for")
		case c.KeyField == "":
			values = append(values, fmt.Sprintf("the numbers of its buckets, 0 to %d", max(c.Buckets, 1)-1))
		default:
			values = append(values, "values of "+c.KeyField)
		}
	}
	e := &NotFoundError{What: "key", Name: key, Words: fmt.Sprintf("no event of category %s has the key %q", strings.Join(categories, " or "), key)}
	slices.Sort(values)
	if values = slices.Compact(values); len(values) > 0 {
		e.Words += "; its keys are " + strings.Join(values, " or ")
	}
	e.Hint = "See which keys there are: " + d.command("partitions ls", []string{"--category", categories[0]})
	kind, err := d.entityOf(ctx, r, categories, key)
	if kind != "" {
		article := "a "
		if strings.ContainsRune("aeiou", rune(kind[0])) {
			article = "an "
		}
		e.Hint = fmt.Sprintf("%s is %s%s: %s", printed(key), article, kind, d.command("events cat", []string{"--entity", kind + "/" + key}))
	}
	return e, err
}

// entityOf gives the kind of entity that has this id and emits events of one of these categories; "" where there is none.
func (d *Desk) entityOf(ctx context.Context, r eventstore.Registered, categories []string, id string) (string, error) {
	for _, h := range r.Handlers {
		if h.Kind != eventstore.EntityKind {
			continue
		}
		rows, err := d.store.ReadStream(ctx, event.Stream{Kind: h.Name, ID: id}, 0, 1)
		if err != nil {
			return "", err
		}
		if len(rows) > 0 && (slices.Contains(categories, rows[0].Category) || slices.Contains(categories, h.Name)) {
			return h.Name, nil
		}
	}
	return "", nil
}

// printed is a key in words: as it is where it cannot be taken for something else.
func printed(key string) string {
	if q := strconv.Quote(key); strings.Contains(key, " ") || q != `"`+key+`"` {
		return q
	}
	return key
}
