package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
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
	Newest  bool   // begin with some of the newest, at most 100, where no Cursor is given; every page then has a Next: what comes later begins there
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
	PassedOver    bool      `json:"passed_over,omitempty"` // in what a unit has before it: it does not handle the type
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
	list, err := q.list()
	if err != nil {
		return Page[Event]{}, err
	}
	if list == "all" {
		return d.allEvents(ctx, q)
	}
	after := q.After
	p, err := page(list, q.Limit, q.Cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[Event]{}, err
	}
	if q.Newest && q.Cursor == "" {
		if after, err = d.newest(ctx, q); err != nil {
			return Page[Event]{}, err
		}
	}
	var rows []event.Envelope
	place := func(e event.Envelope) any { return uint64(e.Sequence) }
	handler, category := "", q.Category
	if list == "lane" {
		lane := Place{Category: q.Category, Key: q.Key, Backfill: q.Backfill}.lane()
		rows, err = d.store.ReadLane(ctx, lane, event.Sequence(after), p.ask())
	} else {
		rows, err = d.store.ReadStream(ctx, q.Entity, after, p.ask())
		place = func(e event.Envelope) any { return e.StreamVersion }
		handler = q.Entity.Kind
	}
	if err == nil && len(rows) == 0 {
		err = d.checkNames(ctx, handler, category)
	}
	if err != nil {
		return Page[Event]{}, err
	}
	view, err := d.viewer(ctx, q.Payload)
	if err != nil {
		return Page[Event]{}, err
	}
	out := pageOf(p, rows, view.event, place)
	if q.Newest && out.Next == "" {
		if len(rows) > 0 {
			out.Next = p.cursor(place(rows[len(rows)-1]))
		} else {
			out.Next = p.cursor(after)
		}
	}
	return out, nil
}

// newest gives the place in a lane, or of an entity, that only the newest events come after.
func (d *Desk) newest(ctx context.Context, q EventQuery) (uint64, error) {
	if q.Entity.IsZero() {
		tail, err := d.store.LaneTail(ctx, Place{Category: q.Category, Key: q.Key, Backfill: q.Backfill}.lane())
		return uint64(tail - min(tail, eventstore.MaxRecent)), err
	}
	for last := uint64(0); ; { // the store tells the version of an entity by its events alone
		rows, err := d.store.ReadStream(ctx, q.Entity, last, MaxLimit)
		if err != nil {
			return 0, err
		}
		if len(rows) > 0 {
			last = rows[len(rows)-1].StreamVersion
		}
		if len(rows) < MaxLimit {
			return last - min(last, eventstore.MaxRecent), nil
		}
	}
}

// list says which list is asked for.
func (q EventQuery) list() (string, error) {
	lane, entity := q.Category != "" || q.Key != "" || q.Backfill, !q.Entity.IsZero()
	var faults []string
	switch {
	case lane && (q.Category == "" || q.Key == ""):
		faults = append(faults, "a lane has a category and a key: give both")
	case entity && (q.Entity.Kind == "" || q.Entity.ID == ""):
		faults = append(faults, "an entity has a kind and an id: give both")
	}
	switch {
	case lane && entity:
		faults = append(faults, "give a lane or an entity, not both")
	case len(q.Categories) > 0 && (lane || entity):
		faults = append(faults, "categories choose among all events: leave them out for one lane or entity")
	case !lane && !entity && q.After > 0:
		faults = append(faults, "all events have no sequence in common: give a cursor")
	}
	switch {
	case len(faults) > 0:
		return "", usage(faults)
	case lane:
		return "lane", nil
	case entity:
		return "entity", nil
	}
	return "all", nil
}

func (d *Desk) allEvents(ctx context.Context, q EventQuery) (Page[Event], error) {
	var after eventstore.Position
	p, err := page("all", q.Limit, q.Cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[Event]{}, err
	}
	for _, c := range q.Categories {
		if err := d.checkNames(ctx, "", c); err != nil {
			return Page[Event]{}, err
		}
	}
	if q.Newest && q.Cursor == "" {
		o, err := d.store.Overview(ctx)
		if err != nil {
			return Page[Event]{}, err
		}
		after = o.Recent
	}
	rows, last, err := d.store.ReadAll(ctx, after, q.Categories, p.limit) // only the last event's position is known
	if err != nil {
		return Page[Event]{}, err
	}
	view, err := d.viewer(ctx, q.Payload)
	if err != nil {
		return Page[Event]{}, err
	}
	out := pageOf(p, rows, view.event, func(event.Envelope) any { return last })
	if len(rows) == p.limit || q.Newest {
		out.Next = p.cursor(last)
	}
	return out, nil
}

// Event shows one event.
func (d *Desk) Event(ctx context.Context, at Place, payload bool) (Event, error) {
	if err := d.ready(); err != nil {
		return Event{}, err
	}
	e, err := d.record(ctx, at)
	if err != nil {
		return Event{}, err
	}
	view, err := d.viewer(ctx, payload)
	if err != nil {
		return Event{}, err
	}
	return view.event(e), nil
}

// record reads the record at a place.
func (d *Desk) record(ctx context.Context, at Place) (event.Envelope, error) {
	if at.Sequence == 0 {
		return event.Envelope{}, usage([]string{"an event has a sequence, from 1: give it"})
	}
	rows, err := d.store.ReadLane(ctx, at.lane(), event.Sequence(at.Sequence-1), 1)
	switch {
	case err != nil:
		return event.Envelope{}, err
	case len(rows) == 0 || uint64(rows[0].Sequence) != at.Sequence:
		if err := d.checkNames(ctx, "", at.Category); err != nil {
			return event.Envelope{}, err
		}
		return event.Envelope{}, &NotFoundError{What: "event", Name: at.String()}
	}
	return rows[0], nil
}

// viewer makes events ready to be seen. It is used by one goroutine.
type viewer struct {
	payload bool
	types   []eventstore.Type
	known   map[string]*codec.Rendering // by wire name
	faults  map[string]error            // of those that cannot be shown
}

func (d *Desk) viewer(ctx context.Context, payload bool) (*viewer, error) {
	v := &viewer{payload: payload, known: map[string]*codec.Rendering{}, faults: map[string]error{}}
	if !payload {
		return v, nil
	}
	r, err := d.store.LoadRegistry(ctx)
	v.types = r.Types
	return v, err
}

func (v *viewer) event(e event.Envelope) Event {
	out := Event{
		ID: e.ID, Type: e.Type, Version: e.Version, At: placeOf(e.Ref(), e.Sequence, e.ID), Time: e.Time, Tenant: e.Tenant,
		CorrelationID: e.CorrelationID, CausationID: e.CausationID, TraceParent: e.Trace.Parent, Void: e.Void(),
		Encoding: string(e.Encoding), Size: len(e.Data),
	}
	if !e.Stream.IsZero() {
		out.Entity, out.EntityVersion = e.Stream.String(), e.StreamVersion
	}
	if v.payload && !e.Void() {
		out.Payload = v.show(e)
	}
	return out
}

func (v *viewer) show(e event.Envelope) *Payload {
	r, err := v.rendering(e)
	if err != nil {
		return &Payload{Base64: base64.StdEncoding.EncodeToString(e.Data), Why: err.Error()}
	}
	fields, unnamed, err := r.JSON(e.Data)
	if err != nil {
		return &Payload{Base64: base64.StdEncoding.EncodeToString(e.Data), Why: err.Error()}
	}
	p := &Payload{JSON: fields}
	if unnamed > 0 {
		p.Why = fmt.Sprintf("%s left out: the description of %q that the store has does not name their fields", ofMany(unnamed, "byte is", "bytes are"), e.Type)
	}
	return p
}

// rendering finds how to show a type: plain structs show themselves, messages need what the store has of them.
func (v *viewer) rendering(e event.Envelope) (*codec.Rendering, error) {
	if r := v.known[e.Type]; r != nil {
		return r, nil
	}
	if err := v.faults[e.Type]; err != nil {
		return nil, err
	}
	var descriptor []byte
	described := e.Encoding != event.Proto
	for _, t := range v.types {
		if t.Name == e.Type && t.Encoding == event.Proto {
			descriptor, described = t.Descriptor, true // in order of version: the newest names all fields that were ever there
		}
	}
	var r *codec.Rendering
	err := fmt.Errorf("the store has no description of %q: start the program that has it, once", e.Type)
	if described {
		r, err = codec.NewRendering(e.Type, e.Encoding, descriptor)
	}
	v.known[e.Type], v.faults[e.Type] = r, err
	return r, err
}
