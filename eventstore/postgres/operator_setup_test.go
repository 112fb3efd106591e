package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var (
	shipping = event.Unit{Name: "shipping", Key: "a"}
	orders   = event.LaneRef{Category: "order", Key: "a"}
)

// desk is a store that a process has started, an operator beside it, and a session of the test's own.
type desk struct {
	*testing.T
	config Config
	store  *Store
	id     eventstore.Identity
	at     *Attached
	raw    *pgx.Conn
}

// newDesk starts a store in which the handler shipping reads the orders.
func newDesk(t *testing.T, opts ...eventstore.StartOptions) *desk {
	t.Helper()
	d := &desk{T: t, config: place(t)}
	d.config.URL = named(t, d.config.URL, d.config.Schema)
	d.start(opts...)
	d.register([]string{"shipping", "order"})
	d.at = d.attach()
	d.raw = d.session()
	return d
}

// start starts the next process.
func (d *desk) start(opts ...eventstore.StartOptions) {
	d.Helper()
	d.store = New(d.config)
	d.id = d.begin(d.store, append(opts, eventstore.StartOptions{Node: "orders@test"})[0])
}

func (d *desk) begin(s *Store, opts eventstore.StartOptions) eventstore.Identity {
	d.Helper()
	id, err := s.Start(d.Context(), opts)
	d.must(err)
	d.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			d.Errorf("stop: %v", err)
		}
	})
	return id
}

func (d *desk) stop() {
	d.Helper()
	d.must(d.store.Stop(d.Context()))
}

func (d *desk) attach() *Attached {
	d.Helper()
	a, err := d.config.Attach(d.Context())
	d.must(err)
	d.Cleanup(func() {
		if err := a.Close(); err != nil {
			d.Errorf("close: %v", err)
		}
	})
	return a
}

func (d *desk) session() *pgx.Conn {
	d.Helper()
	config := d.config
	config.TransactionTimeout = time.Minute // the test may be slow, and holds others on purpose
	r, err := config.resolve()
	d.must(err)
	return session(d.T, r)
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// register saves handlers, each with its categories.
func (d *desk) register(handlers ...[]string) { d.registerWith(d.store, handlers...) }

func (d *desk) registerWith(s *Store, handlers ...[]string) {
	d.Helper()
	now, err := s.LoadRegistry(d.Context())
	d.must(err)
	saved := eventstore.Registered{Revision: now.Revision}
	for _, h := range handlers {
		saved.Handlers = append(saved.Handlers, eventstore.Handler{Name: h[0], Kind: eventstore.EventHandler, Categories: h[1:]})
		for _, c := range h[1:] {
			saved.Categories = append(saved.Categories, eventstore.Category{Name: c, KeyField: "key"})
		}
	}
	d.must(s.SaveRegistry(d.Context(), saved, nil))
}

func (d *desk) commit(c eventstore.Changes) {
	d.Helper()
	_, err := d.store.Begin(d.Name()).Commit(d.Context(), c)
	d.must(err)
}

// events are events into the lane of a key.
func events(key string, count int) eventstore.Changes {
	var c eventstore.Changes
	for i := range count {
		c.Publish = append(c.Publish, event.Envelope{
			ID: fmt.Sprintf("e-%s-%d", key, i+1), Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order", Key: key,
			Time: time.UnixMilli(1_750_000_000_000).UTC(),
		})
	}
	return c
}

var then = time.UnixMilli(1_750_000_000_000).UTC()

// halted is a unit of work that halts a unit of shipping before the first event of its lane.
func halted(key string) eventstore.Changes {
	u := event.Unit{Name: "shipping", Key: key}
	return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{
		Unit: u, Lane: event.LaneRef{Category: "order", Key: key}, Sequence: 1, EventID: "e-" + key + "-1", Reason: "poison", Since: then,
	}}
}

// parked is a unit of work in which shipping parks an event and passes it; without a reason, because it came after another.
func parked(at event.Sequence, reason string) eventstore.Changes {
	return eventstore.Changes{
		Fence:   eventstore.Fence{Unit: shipping},
		Advance: []eventstore.Advance{{Lane: orders, From: at - 1, To: at}},
		Park:    []eventstore.Parked{{Unit: shipping, Lane: orders, Sequence: at, EventID: fmt.Sprintf("e-a-%d", at), Type: "order.placed", Reason: reason, Time: then}},
	}
}

// dead is a unit of work in which a unit of shipping keeps an event as a dead letter and passes it.
func dead(key string, at event.Sequence) eventstore.Changes {
	u, l := event.Unit{Name: "shipping", Key: key}, event.LaneRef{Category: "order", Key: key}
	return eventstore.Changes{
		Fence:   eventstore.Fence{Unit: u},
		Advance: []eventstore.Advance{{Lane: l, From: at - 1, To: at}},
		Dead:    []eventstore.Dead{{Unit: u, Lane: l, Sequence: at, EventID: "e", Type: "order.placed", Attempts: 5, Reason: "poison", Time: then}},
	}
}

// settles is a unit of work in which shipping got a row through that was set aside, and tells so in another lane.
func settles(kind eventstore.AsideKind, at event.Sequence) eventstore.Changes {
	c := events("told", 1)
	c.Fence = eventstore.Fence{Unit: shipping}
	c.Settle = &eventstore.Settle{AsideRef: eventstore.AsideRef{Kind: kind, Lane: orders, Sequence: at}}
	return c
}

// on is an act on the unit of shipping at an event of its lane.
func on(kind eventstore.ActKind, at event.Sequence) eventstore.Act {
	return eventstore.Act{Kind: kind, Unit: shipping, Seen: event.Position{Lane: orders, Sequence: at}, Actor: "ann", Reason: "seen"}
}

func pausing(u event.Unit) eventstore.Act {
	return eventstore.Act{Kind: eventstore.ActPause, Unit: u, Actor: "ann"}
}

func removing(name string) eventstore.Act {
	return eventstore.Act{Kind: eventstore.ActRemove, Unit: event.Unit{Name: name}, Actor: "ann", Reason: "gone"}
}

func (d *desk) act(a eventstore.Act) error {
	_, err := d.at.Act(d.Context(), a)
	return err
}

// background runs f in a goroutine of its own; what it says comes through the channel.
func background(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

func (d *desk) acting(a eventstore.Act) <-chan error {
	return background(func() error { return d.act(a) })
}

func (d *desk) committing(c eventstore.Changes) <-chan error {
	return background(func() error {
		_, err := d.store.Begin("owner").Commit(d.Context(), c)
		return err
	})
}

// committingBeside commits in a transaction of its own whatever the process has under way, as another node does.
func (d *desk) committingBeside(c eventstore.Changes) <-chan error {
	return background(func() error {
		_, err := d.store.opened.Load().commitAlone(d.Context(), &c)
		return err
	})
}

// hold begins a transaction of the test's own in which statements have run; what it gives commits it.
func (d *desk) hold(query string, args ...any) (release func()) {
	d.Helper()
	tx, err := d.raw.Begin(d.Context())
	d.must(err)
	_, err = tx.Exec(d.Context(), query, args...)
	d.must(err)
	return func() {
		d.Helper()
		d.must(tx.Commit(d.Context()))
	}
}

// holdLanes has whoever draws a sequence wait: the last thing that a commit does, when it has all other locks.
func (d *desk) holdLanes() (release func()) {
	d.Helper()
	return d.hold(`SELECT FROM keyhold_lanes FOR UPDATE`)
}

// holdActs has whoever draws the id of an act wait: the last thing that an act does.
func (d *desk) holdActs() (release func()) {
	d.Helper()
	return d.hold(`SELECT pg_advisory_xact_lock('keyhold_acts'::regclass::oid::int4, 0)`)
}

// waiting waits until so many sessions of this test wait for a lock.
func (d *desk) waiting(count int) {
	d.Helper()
	other := d.session()
	ctx, cancel := context.WithTimeout(d.Context(), 30*time.Second)
	defer cancel()
	for n := -1; n != count; {
		if err := other.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, d.config.Schema).Scan(&n); err != nil {
			d.Fatalf("%d sessions are to wait, %d do: %v", count, n, err)
		}
	}
}

// value reads one value.
func (d *desk) value(into any, query string, args ...any) {
	d.Helper()
	d.must(d.session().QueryRow(d.Context(), query, args...).Scan(into))
}
