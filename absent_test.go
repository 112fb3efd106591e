package keyhold

import (
	"testing"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore"
)

func TestStartWarnsOfWhatIsInTheStoreAndNotInTheProgram(t *testing.T) {
	t.Parallel()
	from := func(name string, s Start, categories ...string) actors.Definition {
		return with(handler(name, "client_id", categories...), func(h *Handler[*book]) { h.StartFrom = s })
	}
	was := func(name string, kind eventstore.HandlerKind, categories ...string) eventstore.Handler {
		return eventstore.Handler{Name: name, Kind: kind, Categories: categories}
	}
	const gone = `handler "billing" is in the store and not in this program: what it has not passed of category "order" is kept for it, whatever Config.Retention says; ` +
		`if it has another name now, run "keyhold handlers rename billing NEW" before the first start under that name; if it is not to come back, stop the program and run "keyhold handlers rm billing"`
	billing := was("billing", eventstore.EventHandler, "order")
	for name, c := range map[string]struct {
		behaviors []actors.Definition
		stored    []eventstore.Handler
		want      []string
	}{
		"all are there": {[]actors.Definition{from("billing", Oldest, "order")}, []eventstore.Handler{billing}, nil},
		"one is gone":   {nil, []eventstore.Handler{billing}, []string{gone}},
		"one may have another name": {[]actors.Definition{from("invoices", Oldest, "order")}, []eventstore.Handler{billing}, []string{gone,
			`handler "invoices" is new to the store, and begins like handler "billing" with the oldest event of category "order": everything is applied again under the new name; ` +
				`if the two are one, stop the program, run "keyhold handlers rm invoices" and "keyhold handlers rename billing invoices", and start it again`}},
		"a new one that begins now": {[]actors.Definition{from("invoices", Now, "order")}, []eventstore.Handler{billing}, []string{gone}},
		"one that the store knows":  {[]actors.Definition{from("invoices", Oldest, "order")}, []eventstore.Handler{billing, was("invoices", eventstore.EventHandler, "order")}, []string{gone}},
		"one of other categories": {[]actors.Definition{from("invoices", Oldest, "order")}, []eventstore.Handler{was("billing", eventstore.EventHandler, "order", "price")},
			[]string{`handler "billing" is in the store and not in this program: what it has not passed of category "order" is kept`}},
		"an entity kind": {nil, []eventstore.Handler{was("cart", eventstore.EntityKind, "cart.commands")},
			[]string{`entity "cart" is in the store and not in this program: commands that were sent to it wait in category "cart.commands", and are kept whatever Config.Retention says; ` +
				`register it again or, if it is not to come back, stop the program and run "keyhold handlers rm cart"`}},
		"one of a category without events": {nil, []eventstore.Handler{was("billing", eventstore.EventHandler, "empty")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := registerWith(t, declared{behaviors: append(c.behaviors, order("order"))}, eventstore.Registered{Handlers: c.stored}, "order", "cart.commands")
			if err != nil {
				t.Fatal(err)
			}
			lines(t, "warning", got.warnings, c.want)
		})
	}
}
