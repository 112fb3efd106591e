package event

import "time"

// Encoding says how [Envelope.Data] is encoded.
type Encoding string

const (
	JSON  Encoding = "json"  // a plain struct, fields by their JSON tags
	Proto Encoding = "proto" // a protobuf message in its binary form
)

// Stream names the events of one entity, in the order in which it emitted them.
type Stream struct {
	Kind string // entity kind
	ID   string // entity id
}

func (s Stream) String() string { return s.Kind + "/" + s.ID }

// IsZero reports whether s names no stream.
func (s Stream) IsZero() bool { return s == Stream{} }

// Trace is a W3C trace context: it travels with the event from the command that caused it to the last sink.
type Trace struct {
	Parent string // traceparent
	State  string // tracestate
}

// Envelope is an event or a command together with everything Keyhold knows of it. The fields of the last group are
// set by the store when it commits; the others by whoever makes the envelope.
//
// Data belongs to whoever made the envelope until it is handed to a store or a transport, and is read-only from then on.
type Envelope struct {
	ID       string   // unique; the same on every redelivery
	Type     string   // wire name, such as "order.placed"; "" is a void
	Version  int      // version of the type's schema, from 1
	Encoding Encoding // of Data
	Data     []byte

	Category string // stream of events ("order") or commands ("order.commands")
	Key      string // partition key within the category
	Lane     Lane
	LaneID   string // of a sink lane; "" in a broker lane

	Tenant        string
	CorrelationID string // shared by everything that one first cause led to
	CausationID   string // id of the event or command that led to this one
	Trace         Trace
	Time          time.Time // when it was emitted, UTC, millisecond precision

	Stream        Stream // of the entity that emitted it; zero for events that no entity emitted
	StreamVersion uint64 // number of the event in its stream, from 1; 0 without a stream

	Sequence Sequence // number of the event in its broker lane; set by the store
	StoreID  string   // of the store that committed it
}

// Ref is the broker lane of the event.
func (e *Envelope) Ref() LaneRef { return LaneRef{Category: e.Category, Key: e.Key, Lane: e.Lane} }

// Void reports whether the envelope stands for a record that was abandoned or erased: it has a sequence, so that
// there is no gap, and nothing to apply.
func (e *Envelope) Void() bool { return e.Type == "" }
