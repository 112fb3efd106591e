package keyhold_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
)

// Between the removal of a reader of another application from the producer's store and the look that takes it off the broker, the relay may find it there and register it anew.
func TestAReaderThatIsRegisteredAgainWhileItIsRemovedIsGone(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	store := a.file("shop.db")
	shop := run(t, a.config(store, "shop"), sales)
	reader := run(t, a.config(a.file("books.db"), "books"), theirs, newBooks().named("books"))
	sell(t, shop, "ada", 1, 1)
	registered := func() (*eventstore.Handler, eventstore.Registered) {
		r, err := store.LoadRegistry(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Handlers {
			if r.Handlers[i].Name == "books" {
				return &r.Handlers[i], r
			}
		}
		return nil, r
	}
	a.until(t, func() bool { h, _ := registered(); return h != nil })
	stop(t, reader)
	was, _ := registered()
	if _, err := store.Act(t.Context(), eventstore.Act{Kind: eventstore.ActRemove, Unit: keyhold.Unit{Name: "books"}, Actor: "ann", Reason: "it is gone for good"}); err != nil {
		t.Fatal(err)
	}
	for { // as the relay does, which has seen it on the broker
		now, err := store.LoadRegistry(t.Context())
		if err == nil {
			err = store.SaveRegistry(t.Context(), eventstore.Registered{Revision: now.Revision, Handlers: []eventstore.Handler{*was}}, nil)
		}
		if _, late := errors.AsType[*eventstore.RegistryError](err); !late {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	a.until(t, func() bool {
		names, err := a.server.Do(t.Context(), "HKEYS", "sale:__handlers__")
		if err != nil {
			t.Fatal(err)
		}
		h, _ := registered()
		return h == nil && fmt.Sprint(names) == "[]"
	})
}
