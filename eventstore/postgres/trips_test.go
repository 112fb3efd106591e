package postgres

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// turns counts, over connections, how often a client said something after it had listened: round trips.
type turns struct{ count atomic.Int64 }

func (c *turns) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &turning{Conn: conn, turns: c}, err
	}
}

type turning struct {
	net.Conn
	turns    *turns
	listened atomic.Bool
}

func (t *turning) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b) // may have begun before what it answers was said, where that took long
	t.listened.Store(true)
	return n, err
}

func (t *turning) Write(b []byte) (int, error) {
	if t.listened.Swap(false) {
		t.turns.count.Add(1)
	}
	return t.Conn.Write(b)
}

func TestRoundTripsOfAUnitOfWork(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	var trips turns
	config := d.config
	config.MaxConns = 1
	d.store = New(config)
	d.store.dial = trips.dial
	d.begin(d.store, eventstore.StartOptions{Relayed: true})
	d.must(d.store.Stop(d.Context()))
	d.begin(d.store, eventstore.StartOptions{Relayed: true})
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: shipping, Generation: 5}})
	d.must(err)
	at := event.Sequence(0)
	full := func() eventstore.Changes {
		c := events("a", 3)
		c.Fence = eventstore.Fence{Unit: shipping, Generation: 5}
		c.Append = []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: "7"}, Expected: uint64(at), Events: events("b", 1).Publish}}
		c.Advance = []eventstore.Advance{{Lane: orders, From: at, To: at + 1}}
		c.Snapshot = &eventstore.Snapshot{Stream: event.Stream{Kind: "order", ID: "7"}, Version: uint64(at) + 1}
		at++
		return c
	}
	counted := func(f func()) int64 {
		before := trips.count.Load()
		f()
		return trips.count.Load() - before
	}
	for range 3 { // statements are prepared, lanes known
		d.commit(full())
	}
	least := int64(1 << 40) // now and then something else uses a connection: the sign of life of the place
	for range 5 {
		least = min(least, counted(func() { d.commit(full()) }))
	}
	d.same("without SQL", least, int64(2))
	withSQL := func() {
		tx := d.store.Begin("with SQL")
		db, err := tx.SQL(d.Context())
		d.must(err)
		var n int
		d.must(db.QueryRowContext(d.Context(), `SELECT 1`).Scan(&n))
		_, err = tx.Commit(d.Context(), full())
		d.must(err)
	}
	withSQL()
	least = 1 << 40
	for range 5 {
		least = min(least, counted(withSQL))
	}
	d.same("with a statement of SQL", least, int64(4))

	// What a relay notes: a transaction begins, everything is noted, it commits.
	part := orders.Part()
	_, err = d.store.Raise(d.Context(), []eventstore.Ask{{Unit: part.Unit(), Generation: 5}})
	d.must(err)
	noted := func() {
		d.must(d.store.NotePublished(d.Context(), []eventstore.PartFence{{Part: part, Generation: 5}}, []eventstore.Published{{Lane: orders, Through: 1, Look: time.Now()}}))
	}
	noted()
	least = 1 << 40
	for range 5 {
		least = min(least, counted(noted))
	}
	d.same("a note of what is published", least, int64(3))

	// What a unit that moves waits for: a transaction begins, rows are raised and what is known is read, it commits.
	generation := event.Generation(5)
	raised := func() {
		generation++
		lanes := []event.LaneRef{orders}
		_, err := d.store.Raise(d.Context(), []eventstore.Ask{
			{Unit: shipping, Generation: generation, Lanes: lanes}, {Unit: event.Unit{Name: "billing", Key: shipping.Key}, Generation: generation, Lanes: lanes},
		})
		d.must(err)
	}
	raised()
	least = 1 << 40
	for range 5 {
		least = min(least, counted(raised))
	}
	d.same("two units that are raised", least, int64(3))
}

// Everybody who writes waits while a handler is placed.
func TestRoundTripsOfANewHandlerDoNotGrowWithLanes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	var trips turns
	d.store = New(d.config)
	d.store.dial = trips.dial
	d.begin(d.store, eventstore.StartOptions{})
	saving := func(name string, start eventstore.Start) int64 {
		now, err := d.store.LoadRegistry(d.Context())
		d.must(err)
		start.Handler, start.Category = name, "order"
		now.Handlers = []eventstore.Handler{{Name: name, Kind: eventstore.EventHandler, Categories: []string{"order"}}}
		before := trips.count.Load()
		d.must(d.store.SaveRegistry(d.Context(), now, []eventstore.Start{start}))
		return trips.count.Load() - before
	}
	place := func(name, key string) event.Position {
		got, err := d.store.Recover(d.Context(), []eventstore.Ask{{Unit: event.Unit{Name: name, Key: key}, Lanes: []event.LaneRef{{Category: "order", Key: key}}}})
		d.must(err)
		return got[0].Checkpoints[0]
	}
	d.commit(events("k-0", 2))
	starts := map[string]eventstore.Start{"now": {Now: true}, "later": {From: then.Add(time.Hour)}, "oldest": {}}
	for name, start := range starts {
		saving("warm-"+name, start) // statements are prepared
	}
	few := map[string]int64{}
	for name, start := range starts {
		few[name] = saving("few-"+name, start)
	}
	var many eventstore.Changes
	for n := range 300 {
		many.Publish = append(many.Publish, events(fmt.Sprintf("k-%d", n+1), 2).Publish...)
	}
	d.commit(many)
	for name, start := range starts {
		if trips := saving("many-"+name, start); trips > few[name]+10 { // signs of life of the place are among them
			t.Errorf("%s: %d round trips, and %d for a single lane", name, trips, few[name])
		}
	}
	at := event.LaneRef{Category: "order", Key: "k-300"}
	d.same("now", place("many-now", "k-300"), event.Position{Lane: at, Sequence: 2, EventID: "e-k-300-2"})
	d.same("later", place("many-later", "k-300"), event.Position{Lane: at, Sequence: 2, EventID: "e-k-300-2"})
	d.same("oldest", place("many-oldest", "k-300"), event.Position{Lane: at})
}
