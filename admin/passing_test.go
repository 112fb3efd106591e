package admin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// What a handler does not handle is above its checkpoint until that moves for another reason. Nobody waits for it to be applied.
func TestWhatAHandlerDoesNotHandleIsNotBehind(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.paid", "order.placed", "order.lost")
		b.publish("bob", "order.lost", "order.lost")
		handlers := map[string][2]uint64{}
		s, err := b.desk.Status(b.Context())
		b.must(err)
		for _, h := range s.Handlers {
			handlers[h.Name] = [2]uint64{h.Lag, h.PassedOver}
		}
		b.same("to be applied, and passed over", handlers, map[string][2]uint64{"billing": {3, 3}, "order": {}, "shipping": {2, 4}})

		u, err := b.desk.Unit(b.Context(), ada, admin.ShowOptions{})
		b.must(err)
		var over []bool
		for _, e := range u.Waiting {
			over = append(over, e.PassedOver)
		}
		b.same("which are passed over", over, []bool{false, true, false, true})
		b.same("ada", []uint64{u.Lag, u.PassedOver, u.Lanes[0].Lag, u.Lanes[0].PassedOver}, []uint64{2, 2, 2, 2})

		b.advance(ada, 0, 1)
		x, err := b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "ada", Handler: "shipping"})
		b.must(err)
		if got := x.Units[0]; got.Lanes[0].NextType != "order.placed" || !strings.HasPrefix(got.Behind, "1 event waits: order.placed (") {
			b.Errorf("next: %s, behind: %s", got.Lanes[0].NextType, got.Behind)
		}
		x, err = b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "bob", Handler: "shipping"})
		b.must(err)
		got := x.Units[0]
		b.text("why", got.Because, "everything is applied; 2 events that it does not handle are still to be passed over")
		if got.State != "done" || got.Behind != "" || len(got.Next) > 0 {
			b.Errorf("state %s, behind %q, next %v", got.State, got.Behind, got.Next)
		}

		b.publish("ada", "order.placed")
		b.halt(ada, 3)
		x, err = b.desk.Why(b.Context(), admin.WhyQuery{Category: "order", Key: "ada", Handler: "shipping"})
		b.must(err)
		if got := x.Units[0].Behind; !strings.HasPrefix(got, "1 event waits behind it: order.placed (") {
			b.Errorf("behind: %s", got)
		}
	})
}

// What is an entity's waits for whoever knows it. And of very much only the beginning is looked at.
func TestWhatIsNotHandledIsCountedWhereThatIsCheapAndSure(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", slices.Repeat([]string{"order.lost"}, 130)...)
		u, err := b.desk.Unit(b.Context(), ada, admin.ShowOptions{})
		b.must(err)
		b.same("130 events", []uint64{u.Lag, u.PassedOver}, []uint64{30, 100})
		h, err := b.desk.Handler(b.Context(), "shipping")
		b.must(err)
		b.same("all keys", []uint64{h.Lag, h.PassedOver}, []uint64{130, 0})

		b.commit(eventstore.Changes{Publish: []event.Envelope{{
			ID: "c", Type: "order.unknown", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order.commands", Key: "o-1", Time: noon,
		}}})
		u, err = b.desk.Unit(b.Context(), event.Unit{Name: "order", Key: "o-1"}, admin.ShowOptions{})
		b.must(err)
		b.same("a command", []uint64{u.Lag, u.PassedOver}, []uint64{1, 0})
		h, err = b.desk.Handler(b.Context(), "order")
		b.must(err)
		b.same("commands", []uint64{h.Lag, h.PassedOver}, []uint64{1, 0})
	})
}

// Each of store, rules and desk could say which act was refused. One beside the store is enough.
func TestARefusedActIsNotNamedByEverybody(t *testing.T) {
	onStores(t, func(b *bundle) {
		_, err := b.desk.Act(b.Context(), admin.ActRequest{Kind: eventstore.ActReset, Handler: "order", Reason: "r", From: &admin.From{}})
		if err == nil || strings.Count(err.Error(), "reset ") > 2 || !strings.HasSuffix(err.Error(), "emit again what it emitted") {
			b.Errorf("reset of an entity kind: %v", err)
		}
	})
}
