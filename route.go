package keyhold

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/past"
)

// route says where the events of one Go type go.
type route struct {
	category string
	entity   string          // kind that emits the type, and folds it; "" for none
	field    string          // of the key; "" = buckets
	key      codec.Extractor // nil with buckets
	buckets  int
	foreign  bool // another application produces the category
	polled   bool // other programs produce it
}

// router makes events ready for their lanes. It is immutable and safe for concurrent use.
type router struct {
	routes map[reflect.Type]route
	types  *codec.Registry
	rules  event.KeyRules
	trace  func(context.Context) event.Trace // of what is published from outside; may be nil
}

// Route gives the envelope of an event: encoded, with its category, key and lane. What is refused here is refused in the caller's
// unit of work, so that no record of it ever exists. A type that cannot be emitted is poison: no further attempt mends the program.
func (r *router) Route(_ context.Context, from event.Stream, v any) (event.Envelope, error) {
	lane := event.Primary
	given, happened := v.(past.Event)
	if happened {
		v = given.Event
	}
	if b, ok := v.(Backfilled); ok {
		lane, v = event.Backfill, b.Event
	}
	bucket := from.ID
	if k, ok := v.(Keyed); ok {
		bucket, v = k.ID, k.Event
	}
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	to, ok := r.routes[t]
	if !ok {
		if newest, old := r.types.Upcast(t); old {
			return event.Envelope{}, Poison(fmt.Errorf("emit %T: it is an old version, which is read as %s: emit that", v, newest))
		}
		return event.Envelope{}, Poison(fmt.Errorf("emit %T: the type is in no category: add it to the Fold of an entity, to the Events of a Category, or, if it is a command, to the On of a CommandHandler", v))
	}
	if to.entity != "" && to.entity != from.Kind && !happened {
		return event.Envelope{}, Poison(fmt.Errorf("emit %T: it is an event of entity %q, which would not see it: only the entity emits it; send it a command", v, to.entity))
	}
	if to.foreign && !happened {
		return event.Envelope{}, Poison(fmt.Errorf("emit %T into category %q, which is Foreign: %w", v, to.category, errForeign))
	}
	if to.polled && !happened {
		return event.Envelope{}, Poison(fmt.Errorf("emit %T into category %q, which is Polled: %w", v, to.category, errForeign))
	}
	key, err := to.keyOf(v, bucket)
	if err == nil {
		err = r.rules.Check(key)
	}
	if err != nil {
		return event.Envelope{}, fmt.Errorf("emit %T into category %q: %w", v, to.category, err)
	}
	enc, err := r.types.Encode(v)
	if err != nil {
		return event.Envelope{}, fmt.Errorf("emit %T: %w", v, err)
	}
	if err := event.CheckData(enc.Type, enc.Data); err != nil {
		return event.Envelope{}, Poison(fmt.Errorf("emit %T: %w", v, err))
	}
	return event.Envelope{
		Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data,
		Category: to.category, Key: key, Lane: lane,
	}, nil
}

// envelopes makes events ready that begin something: no event or command led to them. The error names all that are wrong.
func (r *router) envelopes(ctx context.Context, events []any) ([]event.Envelope, error) {
	all := make([]event.Envelope, 0, len(events))
	var trace event.Trace
	if r.trace != nil {
		trace = r.trace(ctx).Fit()
	}
	var faults []error
	for _, e := range events {
		env, err := r.Route(ctx, event.Stream{}, e)
		if err == nil && strings.HasSuffix(env.Category, event.CommandsSuffix) {
			err = fmt.Errorf("publish %T: it is a command of handler %q: dispatch it", e, strings.TrimSuffix(env.Category, event.CommandsSuffix))
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		env.ID, env.Time = event.NewID(), time.Now().UTC().Truncate(time.Millisecond)
		env.CorrelationID, env.Trace = env.ID, trace
		if len(all) > 0 {
			env.CorrelationID = all[0].ID
		}
		all = append(all, env)
	}
	return all, errors.Join(faults...)
}

func (t route) keyOf(v any, bucket string) (string, error) {
	if t.key != nil {
		key, err := t.key(v)
		if err != nil {
			return "", fmt.Errorf("key field %q: %w", t.field, err)
		}
		return key, nil
	}
	if bucket == "" {
		return "", errors.New("the category has no key: name the entity that the event belongs to with keyhold.For(id, event)")
	}
	return event.Bucket(bucket, t.buckets), nil
}
