// Package guide_test holds the samples of the guide. A page shows Go only from here, word for word, so that everything shown is compiled and
// run: see samples_test.go.
package guide_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/keyholdtest"
)

// Gossip that was stopped waits for a second for an answer that it had asked a node for which is gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// wasStored has a test run on a store in which an older release has left events of one entity, as JSON.
func wasStored(t *testing.T, stream event.Stream, events ...event.Envelope) keyholdtest.Option {
	t.Helper()
	store := memory.Open()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range events {
		events[i].ID, events[i].Encoding = event.NewID(), event.JSON
		events[i].Category, events[i].Key = stream.Kind, event.Bucket(stream.ID, 64)
	}
	_, err := store.Begin("an older release").Commit(t.Context(), eventstore.Changes{Append: []eventstore.Append{{Stream: stream, Events: events}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return keyholdtest.On(store)
}

func old(typ string, version int, data string) event.Envelope {
	return event.Envelope{Type: typ, Version: version, Data: []byte(data)}
}
