package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/keyhold/keyhold/event"
)

// EventQuery selects events: those of a lane (Category and Key), of an entity (Entity), or all in the order in which they may be read
// (neither), of some Categories if named.
type EventQuery struct {
	Category string
	Key      string
	Backfill bool

	Entity event.Stream

	Categories []string

	After   uint64 // sequence in the lane, or version of the entity, to begin after; not for all events
	Payload bool   // show what they hold
	Cursor  string
	Limit   int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// Event is an event or command, as far as a tool can show it.
type Event struct {
	ID            string    `json:"id"`
	Type          string    `json:"type"` // "" for a void: a record that was abandoned or erased
	Version       int       `json:"version"`
	At            Place     `json:"at"`
	Time          time.Time `json:"time"`
	Tenant        string    `json:"tenant,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	CausationID   string    `json:"causation_id,omitempty"`
	TraceParent   string    `json:"trace_parent,omitempty"`
	Entity        string    `json:"entity,omitempty"` // "order/o-17", when an entity emitted it
	EntityVersion uint64    `json:"entity_version,omitempty"`
	Void          bool      `json:"void,omitempty"`
	Encoding      string    `json:"encoding,omitempty"`
	Size          int       `json:"size"` // of its data, in bytes
	Payload       *Payload  `json:"payload,omitempty"`
}

// Payload is what an event holds.
type Payload struct {
	JSON   json.RawMessage `json:"json,omitempty"`   // its fields; nil when they cannot be told
	Base64 string          `json:"base64,omitempty"` // its bytes, when their fields cannot be told
	Why    string          `json:"why,omitempty"`    // they cannot
}

// Events lists events. What names no category of the store is a [*NotFoundError].
func (d *Desk) Events(ctx context.Context, q EventQuery) (Page[Event], error) {
	return Page[Event]{}, errUnbuilt
}

// Event shows one event.
func (d *Desk) Event(ctx context.Context, at Place, payload bool) (Event, error) {
	return Event{}, errUnbuilt
}
