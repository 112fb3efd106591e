package admin_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// noon is when tests look.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

var (
	ada = event.Unit{Name: "shipping", Key: "ada"}
	bob = event.Unit{Name: "shipping", Key: "bob"}
)

// bundle is a store with a handler shipping and a handler billing of the category order, whose key is the client, and an entity order.
type bundle struct {
	*testing.T
	store eventstore.Store
	desk  *admin.Desk // of ada the operator, beside whoever has the store open
	ids   int
}

// stores are what every test of a desk runs on.
var stores = map[string]func(t *testing.T) eventstore.Store{
	"memory": func(*testing.T) eventstore.Store { return memory.Open() },
	"sqlite": func(t *testing.T) eventstore.Store { return sqlite.Open(filepath.Join(t.TempDir(), "store.db")) },
}

// onStores runs a test on each store.
func onStores(t *testing.T, test func(b *bundle)) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(setup(t, open(t)))
		})
	}
}

func setup(t *testing.T, store eventstore.Store) *bundle {
	t.Helper()
	b := &bundle{T: t, store: store}
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "orders@test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	b.must(store.SaveRegistry(t.Context(), eventstore.Registered{
		Categories: []eventstore.Category{{Name: "order", KeyField: "client_id"}, {Name: "order.commands", KeyField: "id", Commands: true}},
		Handlers: []eventstore.Handler{
			{Name: "billing", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.paid", "order.placed"}, Sequential: true, Since: noon},
			{Name: "order", Kind: eventstore.EntityKind, Categories: []string{"order.commands"}, Since: noon},
			{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.placed"}, Sequential: true, Since: noon},
		},
		Types: []eventstore.Type{{Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "order"}},
	}, nil))
	b.desk = b.deskOf(admin.Options{Actor: "ada"})
	return b
}

func (b *bundle) deskOf(o admin.Options) *admin.Desk {
	if o.Now == nil {
		o.Now = func() time.Time { return noon }
	}
	return admin.New(b.store, o)
}

func (b *bundle) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) same(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// text compares lines of words.
func (b *bundle) text(what string, got []string, want string) {
	b.Helper()
	b.same(what, strings.Join(got, "\n"), strings.Trim(strings.ReplaceAll(want, "\t", ""), "\n"))
}

func (b *bundle) commit(c eventstore.Changes) {
	b.Helper()
	_, err := b.store.Begin("test").Commit(b.Context(), c)
	b.must(err)
}

// publish commits events of these types for a client, a minute apart, the last one a minute before noon.
func (b *bundle) publish(client string, types ...string) {
	b.Helper()
	var all []event.Envelope
	for i, typ := range types {
		b.ids++
		all = append(all, event.Envelope{
			ID: fmt.Sprintf("e-%s-%d", client, b.ids), Type: typ, Version: 1, Encoding: event.JSON, Data: fmt.Appendf(nil, `{"client_id":%q, "n":%d}`, client, b.ids),
			Category: "order", Key: client, Time: noon.Add(time.Duration(i-len(types)) * time.Minute),
		})
	}
	b.commit(eventstore.Changes{Publish: all})
}

func lane(client string) event.LaneRef { return event.LaneRef{Category: "order", Key: client} }

// advance moves the checkpoint of a unit.
func (b *bundle) advance(u event.Unit, from, to event.Sequence) {
	b.Helper()
	b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Advance: []eventstore.Advance{{Lane: lane(u.Key), From: from, To: to}}})
}

// halt halts a unit before an event, four minutes before noon.
func (b *bundle) halt(u event.Unit, at event.Sequence) {
	b.Helper()
	b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{
		Unit: u, Lane: lane(u.Key), Sequence: at, EventID: b.eventAt(u.Key, at), EventType: "order.placed", Attempts: 5,
		Reason: "retries exhausted", Error: "card declined", Since: noon.Add(-4 * time.Minute),
	}})
}

func (b *bundle) eventAt(client string, at event.Sequence) string {
	b.Helper()
	found, err := b.store.ReadLane(b.Context(), lane(client), at-1, 1)
	b.must(err)
	if len(found) != 1 || found[0].Sequence != at {
		b.Fatalf("no event %s #%d", client, at)
	}
	return found[0].ID
}

// bury sets an event aside as a dead letter, which moves the checkpoint past it.
func (b *bundle) bury(u event.Unit, at event.Sequence, reason string) {
	b.Helper()
	b.commit(eventstore.Changes{
		Fence:   eventstore.Fence{Unit: u},
		Advance: []eventstore.Advance{{Lane: lane(u.Key), From: at - 1, To: at}},
		Dead: []eventstore.Dead{{
			Unit: u, Lane: lane(u.Key), Sequence: at, EventID: b.eventAt(u.Key, at), Type: "order.placed", Attempts: 5, Reason: reason,
			Error: "no such address", Time: noon.Add(-time.Hour),
		}},
	})
}

// park has a unit park its events from one to another.
func (b *bundle) park(u event.Unit, from, to event.Sequence) {
	b.Helper()
	c := eventstore.Changes{
		Fence:   eventstore.Fence{Unit: u},
		Advance: []eventstore.Advance{{Lane: lane(u.Key), From: from - 1, To: to}},
	}
	for at := from; at <= to; at++ {
		p := eventstore.Parked{
			Unit: u, Lane: lane(u.Key), Sequence: at, EventID: b.eventAt(u.Key, at), Type: "order.placed", Time: noon.Add(-10 * time.Minute),
		}
		if at == from {
			p.Attempts, p.Reason, p.Error = 5, "retries exhausted", "card declined"
		}
		c.Park = append(c.Park, p)
	}
	b.commit(c)
}

// inspected tells what units of each handler are doing.
func inspected(doing map[string]*admin.Activity) func(context.Context, event.Unit) (*admin.Activity, error) {
	return func(_ context.Context, u event.Unit) (*admin.Activity, error) { return doing[u.Name], nil }
}
