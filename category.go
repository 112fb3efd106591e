package keyhold

import (
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold/event"
)

// DefaultBuckets is the number of partitions of a category without a key.
const DefaultBuckets = 64

// Category declares a category of events: the key that orders it, and the events that no entity emits. An entity kind makes the
// category of its own name by itself; declare it only to give it a key that no handler asks for, or further events.
type Category struct {
	Name string
	// Key is the field, of every event of the category, whose value is the partition key: events of one value keep their
	// order. "" = what its handlers' SequentialBy asks for, else none: then events are spread over Buckets by the id of the
	// entity that emits them.
	Key     string
	Buckets int // partitions of a category without a key; default 64; fixed once there are events
	// Events are the types published here by handlers, [Publish], [Do] and [PublishTx]. The events of an entity's fold are here
	// anyway; only the entity emits them.
	Events []EventType
	// Foreign: another application, with a database of its own, produces the category; this one reads it, and emits nothing into it. Key or Buckets must be as there, and
	// Events are types with the wire names that they have there. The transport must be one that both share. Handlers need a StartFrom: with [Oldest] they begin with the
	// oldest events that the producer keeps, with [Now] behind what is published when they are registered. (Of keys that nobody reads at that time, what is a minute old at most may come as well.)
	Foreign bool
	// Polled: programs that know nothing of Keyhold produce the category. They append to Redis streams called as Polled says, a colon, and the key, with XADD and the ids
	// that Redis gives (XADD crm.sale:ada * id s-1 type sale.made data {...} where Polled is "crm.sale"); docs/guide/others.md tells what an entry has. Each stream is looked at once a
	// heartbeat, and what is new goes into this application's store, once for each event id within Retention: from there on it is published, applied, kept and rebuilt like
	// every other event. Nothing else is emitted into the category. It needs a Key, whose value must be that of the stream.
	Polled string
}

// EventType names a type of events in a declaration. Make it with [EventOf].
type EventType struct{ t reflect.Type }

// EventOf names the events of type E, a struct or a protobuf message (or a pointer to one).
func EventOf[E any]() EventType { return EventType{reflect.TypeFor[E]()} }

// EventOfType is [EventOf] for a type that is known when the program runs.
func EventOfType(t reflect.Type) EventType { return EventType{t} }

// Faults gives everything that is wrong with the declaration by itself.
func (c Category) Faults() (faults []error) {
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("category %q: %w", c.Name, fmt.Errorf(format, args...)))
	}
	if err := event.CheckDeclaredName(c.Name); err != nil {
		add("Name: %w", err)
	}
	if c.Buckets < 0 || c.Buckets > 1<<16 {
		add("Buckets is %d: set 1 to 65536, 0 for the default of %d", c.Buckets, DefaultBuckets)
	}
	if c.Key != "" && c.Buckets != 0 {
		add("Key and Buckets are both set: a category with a key has a partition per value of it; drop one")
	}
	if c.Foreign && len(c.Events) == 0 {
		add("Foreign without Events: name the types that are read, with EventOf[TheirEvent]()")
	}
	if c.Polled != "" {
		c.polledFaults(add)
	}
	for i, e := range c.Events {
		if e.t == nil {
			add("Events[%d] is empty: make it with EventOf[YourEvent]()", i)
		}
	}
	return faults
}

// Keyed is an event together with the id that decides its bucket. Make it with [For].
type Keyed struct {
	ID    string
	Event any
}

// Unwrapped gives the event itself.
func (k Keyed) Unwrapped() any { return k.Event }

// For publishes an event into a category without a key, in the bucket of this id: events of one id keep their order. An entity's
// own events need it not.
func For(id string, e any) Keyed { return Keyed{ID: id, Event: e} }

// Backfilled is an event for the backfill lane of its partition. Make it with [Backfill].
type Backfilled struct{ Event any }

// Unwrapped gives the event itself, without what says where it goes.
func (b Backfilled) Unwrapped() any {
	if k, ok := b.Event.(Keyed); ok {
		return k.Event
	}
	return b.Event
}

// Backfill publishes an event, or a [Keyed] one, into the backfill lane of its partition: it is applied when the primary lane
// is drained, and keeps its order among backfilled events only.
func Backfill(e any) Backfilled { return Backfilled{Event: e} }
