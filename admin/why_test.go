package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// why gives an explanation as the lines that a person reads.
func (b *bundle) why(d *admin.Desk, q admin.WhyQuery) []string {
	b.Helper()
	x, err := d.Why(b.Context(), q)
	b.must(err)
	lines := []string{x.Words}
	for _, u := range x.Units {
		lines = append(lines, u.Handler+"/"+u.Key+" "+u.State)
		for _, because := range u.Because {
			lines = append(lines, "  "+because)
		}
		if u.Behind != "" {
			lines = append(lines, "  "+u.Behind)
		}
		for _, s := range u.Next {
			lines = append(lines, "  > "+s.Words+": "+s.Command)
		}
	}
	return lines
}

func (b *bundle) order(client string) admin.WhyQuery {
	return admin.WhyQuery{Category: "order", Key: client}
}

func TestWhyExplainsAHaltAndWhatWaitsBehindIt(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed", "order.paid", "order.placed", "order.placed", "order.paid")
		b.advance(ada, 0, 1)
		b.halt(ada, 2)
		b.text("why", b.why(b.desk, b.order("ada")), `
			1 of 2 readers of order:ada is stopped
			shipping/ada halted
			  halted for 4 m at order:ada #2 (order.placed): retries exhausted after 5 attempts: card declined
			  2 events wait behind it: order.placed (3 m), order.placed (2 m)
			  > look at what the event holds: keyhold partitions show shipping ada --data
			  > try the event again, once the cause is mended: keyhold partitions retry shipping ada --expect 2
			  > keep it as a dead letter and go on without it: keyhold partitions dlq shipping ada --expect 2 --reason …
			  > go on without it, for good: keyhold partitions skip shipping ada --expect 2 --reason …
			billing/ada behind
			  6 events are to be applied, nothing known is in the way
			  6 events wait: order.placed (6 m), order.placed (5 m), order.paid (4 m), …`)
	})
}

func TestWhyExplainsPausesParkingAndAttempts(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed", "order.placed")
		b.publish("bob", "order.placed", "order.placed")
		b.park(ada, 1, 3)
		for _, key := range []string{"", "bob"} {
			_, err := b.store.Act(b.Context(), eventstore.Act{
				Kind: eventstore.ActPause, Unit: event.Unit{Name: "billing", Key: key}, Actor: "eve", Reason: "stock-taking", Time: noon.Add(-2 * time.Hour),
			})
			b.must(err)
		}
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: bob}, Tried: &eventstore.Tried{
			Unit: bob, Lane: lane("bob"), Sequence: 1, EventID: b.eventAt("bob", 1), EventType: "order.placed", Attempts: 2, Error: "card\ndeclined",
			Time: noon.Add(-3 * time.Second), Again: noon.Add(5 * time.Second), Suspicions: 2, Alone: 1,
		}})
		b.text("why", b.why(b.desk, b.order("ada")), `
			2 of 2 readers of order:ada are stopped
			shipping/ada parking
			  3 events are set aside, in order, for 10 m, the first is order:ada #1 (order.placed): retries exhausted after 5 attempts: card declined
			  2 events wait behind it: order.placed (2 m), order.placed (1 m)
			  > look at what the events hold: keyhold partitions show shipping ada --data
			  > apply what is set aside, once the cause is mended: keyhold partitions retry shipping ada --expect 1
			  > keep the first as a dead letter and apply the others: keyhold partitions dlq shipping ada --expect 1 --reason …
			  > drop the first and apply the others: keyhold partitions skip shipping ada --expect 1 --reason …
			billing/ada paused
			  the whole of billing is paused for 2 h by eve: stock-taking
			  3 events wait: order.placed (3 m), order.placed (2 m), order.placed (1 m)
			  > have the whole of billing go on: keyhold handlers resume billing`)
		b.text("why", b.why(b.desk, b.order("bob")), `
			1 of 2 readers of order:bob is stopped
			billing/bob paused
			  paused for 2 h by eve: stock-taking
			  the whole of billing is paused for 2 h by eve: stock-taking
			  2 events wait: order.placed (2 m), order.placed (1 m)
			  > have the whole of billing go on: keyhold handlers resume billing
			  > have it go on: keyhold partitions resume billing bob
			shipping/bob trying
			  order:bob #1 (order.placed) failed 2 times, last 3 s ago: card declined; it is tried again in 5 s
			  the process may have died of order:bob #1 (order.placed) 2 times, 1 of them with no other suspect beside it
			  1 event waits behind it: order.placed (1 m)`)
	})
}

// A key that may set nothing more aside is halted at the next event, and what is set aside comes first all the same.
func TestWhyTellsThatARetryMakesRoomForWhatIsSetAside(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed", "order.placed")
		b.park(ada, 1, 2)
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: ada}, Halt: &eventstore.Halt{
			Unit: ada, Lane: lane("ada"), Sequence: 3, EventID: b.eventAt("ada", 3), EventType: "order.placed",
			Reason: eventstore.TooManyParked, Since: noon.Add(-4 * time.Minute),
		}})
		x := b.why(b.desk, admin.WhyQuery{Handler: "shipping", Key: "ada"})
		b.text("why", x[1:], `
			shipping/ada halted
			  halted for 4 m at order:ada #3 (order.placed): too many parked
			  there is no room to set more aside: a retry applies what is set aside first, which makes room
			  2 events are set aside, in order, for 10 m, the first is order:ada #1 (order.placed): retries exhausted after 5 attempts: card declined
			  2 events wait behind it: order.placed (2 m), order.placed (1 m)
			  > look at what the events hold: keyhold partitions show shipping ada --data
			  > apply what is set aside first, in order, then go on with this event, once the cause is mended: keyhold partitions retry shipping ada --expect 3
			  > keep this event as a dead letter; what is set aside stays so: keyhold partitions dlq shipping ada --expect 3 --reason …
			  > go on without this event, for good; what is set aside stays so: keyhold partitions skip shipping ada --expect 3 --reason …`)
		r := request(eventstore.ActRetry, ada, "")
		p, err := b.desk.Preview(b.Context(), r)
		b.must(err)
		b.same("preview", p.Words, "has it apply 2 events that are set aside first, in order, then go on with order:ada #3 (order.placed)")
		done, err := b.desk.Act(b.Context(), r)
		b.must(err)
		if !strings.HasSuffix(done.Detail, "now applies its parked events first") {
			b.Errorf("retry: %s", done.Detail)
		}
	})
}

// A key whose producer went back in time has nothing to pass: the only thing to do is to go on.
func TestWhyTellsThatAProducerWentBackInTime(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: ada}, Advance: []eventstore.Advance{{Lane: lane("ada"), To: 1, EventID: "a"}}})
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: ada}, Halt: &eventstore.Halt{
			Unit: ada, Lane: lane("ada"), Sequence: 2, EventID: "b", Reason: eventstore.HistoryDiverged, Error: `event "a" was applied at #1`, Since: noon.Add(-4 * time.Minute),
		}})
		x := b.why(b.desk, admin.WhyQuery{Handler: "shipping", Key: "ada"})
		b.text("why", x[1:], `
			shipping/ada halted
			  halted for 4 m at order:ada #2: diverged: event "a" was applied at #1
			  another application produces the category, and its store went back in time: was it restored from a backup, or did it fail over without its last commits? What it has published again up to there was not applied here, and what was applied here instead stays
			  > go on behind the event that its producer has there now; what both have apart is yours to mend first: keyhold partitions retry shipping ada --expect 2`)
		p, err := b.desk.Preview(b.Context(), request(eventstore.ActRetry, ada, ""))
		b.must(err)
		b.same("preview", p.Words, "has it go on behind the event that the broker has before order:ada #2")
	})
}

func TestWhyTellsWhatTheProcessIsDoing(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		doing := map[string]*admin.Activity{
			"shipping": {State: "applying", At: &admin.Place{Category: "order", Key: "ada", Sequence: 1}, Type: "order.placed", Attempt: 2, Since: noon.Add(-3 * time.Second)},
			"billing":  {State: "waiting", Since: noon.Add(-time.Minute)},
		}
		live := b.deskOf(admin.Options{Command: "shop ops", Live: &admin.Live{Node: "orders@test", Inspect: inspected(doing)}})
		b.text("why", b.why(live, b.order("ada")), `
			1 of 2 readers of order:ada is stopped
			billing/ada waiting
			  waits for a newer program for 1 m: the one that runs does not know the type of the next event (order.placed)
			  2 events wait: order.placed (2 m), order.placed (1 m)
			  > start the program that knows the type: 
			shipping/ada behind
			  2 events are to be applied; applying order:ada #1 (order.placed), attempt 2 for 3 s
			  2 events wait: order.placed (2 m), order.placed (1 m)`)
	})
}

func TestWhyOfAHandlerIsAboutItAlone(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		b.bury(ada, 1, "poison")
		b.advance(ada, 1, 2)
		want := `
			shipping ada: everything is applied
			shipping/ada done
			  everything is applied
			  1 dead letter is kept of it
			  > list the dead letters of it: keyhold dlq ls --handler shipping --key ada`
		b.text("by the name in the place of the category", b.why(b.desk, admin.WhyQuery{Category: "shipping", Key: "ada"}), want)
		b.text("by handler", b.why(b.desk, admin.WhyQuery{Handler: "shipping", Key: "ada"}), want)
	})
}

func TestWhyOfAnEntityTellsOfItsCommands(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.commit(eventstore.Changes{Publish: []event.Envelope{{
			ID: "c-1", Type: "order.cancel", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order.commands", Key: "o-1", Time: noon.Add(-time.Minute),
		}}})
		b.text("why", b.why(b.desk, b.order("o-1")), `
			nothing stops 1 reader at order:o-1
			order/o-1 behind
			  1 event is to be applied, nothing known is in the way
			  1 event waits: order.cancel (1 m)`)
	})
}

// A key that is misspelt, or an id in the place of a key, must not be told to be well.
func TestAKeyThatNoEventHasIsNotFound(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed")
		b.commit(eventstore.Changes{
			Fence: eventstore.Fence{Unit: event.Unit{Name: "order", Key: "o-17"}},
			Append: []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: "o-17"}, Events: []event.Envelope{{
				ID: "e-17", Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order", Key: "ada", Time: noon,
			}}}},
		})
		const none, hint = `no event of category order has the key "o-17"; its keys are values of client_id`, "o-17 is an order: keyhold events cat --entity order/o-17"
		retry := func(expect *admin.Expect) error {
			_, err := b.desk.Act(b.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: "shipping", Key: "o-17", Expect: expect})
			return err
		}
		for what, ask := range map[string]func() error{
			"why": func() error { _, err := b.desk.Why(b.Context(), b.order("o-17")); return err },
			"handler": func() error {
				_, err := b.desk.Why(b.Context(), admin.WhyQuery{Handler: "shipping", Key: "o-17"})
				return err
			},
			"unit": func() error {
				_, err := b.desk.Unit(b.Context(), event.Unit{Name: "shipping", Key: "o-17"}, admin.ShowOptions{})
				return err
			},
			"retry": func() error { return retry(nil) },
			"retry as expected": func() error {
				return retry(&admin.Expect{Place: admin.Place{Category: "order", Key: "o-17", Sequence: 1}})
			},
		} {
			err := ask()
			found, ok := errors.AsType[*admin.NotFoundError](err)
			if !ok || !errors.Is(err, eventstore.ErrNotFound) || err.Error() != none || found.Hint != hint {
				b.Errorf("%s: %v, %+v", what, err, found)
			}
		}
		for q, want := range map[admin.WhyQuery]string{
			b.order("adda"):                          `no event of category order has the key "adda"; its keys are values of client_id`,
			{Category: "order.commands", Key: "o-9"}: `no event of category order.commands has the key "o-9"; its keys are ids of the entities that the commands are for`,
			{Handler: "order", Key: "o-9"}:           `no order has the id "o-9": it has no event and was sent no command`,
		} {
			if _, err := b.desk.Why(b.Context(), q); !errors.Is(err, eventstore.ErrNotFound) || err.Error() != want {
				b.Errorf("%+v: %v, want %s", q, err, want)
			}
		}
		b.text("an entity that has events alone", b.why(b.desk, admin.WhyQuery{Handler: "order", Key: "o-17"}), `
			order o-17: everything is applied
			order/o-17 done
			  everything is applied`)
	})
}

func TestWhyRefusesNamesItDoesNotKnow(t *testing.T) {
	onStores(t, func(b *bundle) {
		for _, c := range []struct {
			q    admin.WhyQuery
			want string
		}{
			{admin.WhyQuery{Category: "odrer", Key: "ada"}, `no category, handler or entity kind is called "odrer" (known: "billing", "order", "order.commands", "shipping")`},
			{admin.WhyQuery{Handler: "shiping", Key: "ada"}, `no handler or entity kind is called "shiping" (known: "billing", "order", "shipping")`},
			{admin.WhyQuery{Category: "odrer", Handler: "shipping", Key: "ada"}, `no category is called "odrer" (known: "order", "order.commands")`},
		} {
			_, err := b.desk.Why(b.Context(), c.q)
			if !errors.Is(err, eventstore.ErrNotFound) || err.Error() != c.want {
				b.Errorf("%+v: %v, want %s", c.q, err, c.want)
			}
		}
		_, err := b.desk.Why(b.Context(), admin.WhyQuery{})
		if !errors.Is(err, admin.ErrUsage) || err.Error() != "no key is named: give one; neither a category nor a handler is named: give one" {
			b.Errorf("nothing: %v", err)
		}
	})
}
