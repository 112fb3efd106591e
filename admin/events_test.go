package admin_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
)

const stringValue = "google.protobuf.StringValue" // any message will do

// described registers a message type.
func (b *bundle) described(name string) {
	b.Helper()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{
		File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)},
	})
	b.must(err)
	r, err := b.store.LoadRegistry(b.Context())
	b.must(err)
	r.Types = []eventstore.Type{{Name: name, Version: 1, Encoding: event.Proto, Category: "order", Descriptor: set}}
	b.must(b.store.SaveRegistry(b.Context(), r, nil))
}

func message(id, typ string, data []byte) event.Envelope {
	return event.Envelope{ID: id, Type: typ, Version: 1, Encoding: event.Proto, Data: data, Category: "order", Key: "ada", Time: noon}
}

func TestEventsShowWhatTheyHoldOnlyWhenAsked(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.described(stringValue)
		known, err := proto.Marshal(wrapperspb.String("a-1"))
		b.must(err)
		newer := append(known[:len(known):len(known)], 0x78, 0x01) // field 15, which the description does not name
		b.commit(eventstore.Changes{
			Publish: []event.Envelope{
				message("e-1", stringValue, known), message("e-2", stringValue, newer), message("e-3", "acme.Unknown", known),
				message("e-4", stringValue, []byte{0xff}), message("e-5", stringValue, known),
			},
		})
		b.must(b.store.Abandon(b.Context(), lane("ada"), 5, "erased"))
		q := admin.EventQuery{Category: "order", Key: "ada"}
		plain, err := b.desk.Events(b.Context(), q)
		b.must(err)
		for _, e := range plain.Items {
			if e.Payload != nil || !e.Void && e.Size == 0 {
				b.Errorf("not asked for: %+v", e)
			}
		}
		q.Payload = true
		page, err := b.desk.Events(b.Context(), q)
		b.must(err)
		var got []admin.Payload
		for _, e := range page.Items[:4] {
			got = append(got, *e.Payload)
		}
		b.same("payloads", got, []admin.Payload{
			{JSON: []byte(`"a-1"`)},
			{JSON: []byte(`"a-1"`), Why: `2 bytes are left out: the description of "google.protobuf.StringValue" that the store has does not name their fields`},
			{Base64: base64.StdEncoding.EncodeToString(known), Why: `the store has no description of "acme.Unknown": start the program that has it, once`},
			{Base64: "/w==", Why: got[3].Why},
		})
		if got[3].Why == "" {
			b.Error("bytes that are no message are shown without a reason")
		}
		if void := page.Items[4]; !void.Void || void.Payload != nil || void.Type != "" {
			b.Errorf("void: %+v", void)
		}
		one, err := b.desk.Event(b.Context(), admin.Place{Category: "order", Key: "ada", Sequence: 1}, true)
		b.must(err)
		b.same("one", one, page.Items[0])
	})
}

func TestEventsOfAnEntityComeByVersion(t *testing.T) {
	onStores(t, func(b *bundle) {
		stream := event.Stream{Kind: "order", ID: "o-1"}
		var all []event.Envelope
		for _, id := range []string{"e-1", "e-2", "e-3"} {
			all = append(all, message(id, stringValue, []byte{10, 1, 'x'}))
		}
		b.commit(eventstore.Changes{Append: []eventstore.Append{{Stream: stream, Events: all}}})
		page, err := b.desk.Events(b.Context(), admin.EventQuery{Entity: stream, After: 1})
		b.must(err)
		if len(page.Items) != 2 || page.Items[0].EntityVersion != 2 || page.Items[0].Entity != "order/o-1" || page.Items[1].ID != "e-3" {
			b.Errorf("events: %+v", page.Items)
		}
	})
}

func TestEventsThatCannotBeAskedForOrAreNotThere(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	b.publish("ada", "order.placed")
	entity := event.Stream{Kind: "order", ID: "o-1"}
	for want, q := range map[string]admin.EventQuery{
		"a lane has a category and a key: give both":                                {Category: "order"},
		"an entity has a kind and an id: give both":                                 {Entity: event.Stream{Kind: "order"}},
		"give a lane or an entity, not both":                                        {Category: "order", Key: "ada", Entity: entity},
		"categories choose among all events: leave them out for one lane or entity": {Entity: entity, Categories: []string{"order"}},
		"all events have no sequence in common: give a cursor":                      {After: 3},
	} {
		if _, err := b.desk.Events(t.Context(), q); !errors.Is(err, admin.ErrUsage) || err.Error() != want {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
	for name, do := range map[string]func() error{
		"category of a lane": func() error {
			_, err := b.desk.Events(t.Context(), admin.EventQuery{Category: "odrer", Key: "ada"})
			return err
		},
		"category among all": func() error {
			_, err := b.desk.Events(t.Context(), admin.EventQuery{Categories: []string{"odrer"}})
			return err
		},
		"kind": func() error {
			_, err := b.desk.Events(t.Context(), admin.EventQuery{Entity: event.Stream{Kind: "odrer", ID: "1"}})
			return err
		},
		"event": func() error {
			_, err := b.desk.Event(t.Context(), admin.Place{Category: "order", Key: "ada", Sequence: 2}, false)
			return err
		},
		"event of a category": func() error {
			_, err := b.desk.Event(t.Context(), admin.Place{Category: "odrer", Key: "ada", Sequence: 2}, false)
			return err
		},
		"dead letter": func() error {
			_, err := b.desk.DeadLetter(t.Context(), ada, admin.Place{Category: "order", Key: "ada", Sequence: 1}, false)
			return err
		},
		"dead letter of a handler": func() error {
			_, err := b.desk.DeadLetter(t.Context(), event.Unit{Name: "shiping", Key: "ada"}, admin.Place{Category: "order", Key: "ada", Sequence: 1}, false)
			return err
		},
	} {
		if err := do(); !errors.Is(err, eventstore.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.desk.Event(t.Context(), admin.Place{Category: "order", Key: "ada"}, false); !errors.Is(err, admin.ErrUsage) {
		t.Errorf("an event without a sequence: %v", err)
	}
	if _, err := b.desk.DeadLetter(t.Context(), event.Unit{}, admin.Place{}, false); !errors.Is(err, admin.ErrUsage) {
		t.Errorf("a dead letter without a place: %v", err)
	}
}

func TestNewestEventsComeFirstAndThenThoseThatFollow(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		for name, q := range map[string]admin.EventQuery{
			"lane": {Category: "order", Key: "ada", Newest: true}, "all": {Newest: true},
		} {
			first, err := b.desk.Events(b.Context(), q)
			b.must(err)
			if len(first.Items) == 0 || first.Next == "" {
				b.Fatalf("%s: %+v", name, first)
			}
			b.publish("ada", "order.paid")
			q.Cursor = first.Next
			then, err := b.desk.Events(b.Context(), q)
			b.must(err)
			if len(then.Items) != 1 || then.Items[0].Type != "order.paid" {
				b.Errorf("%s: what followed: %+v", name, then.Items)
			}
		}
	})
}
