package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// exact compares what is counted with what there is.
func exact(t *testing.T, what, path string) {
	t.Helper()
	read := func(query string) (rows []string) {
		db, err := openReaders(path, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		found, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		for found.Next() {
			var category, name string
			var lanes, total int64
			if err := found.Scan(&category, &name, &lanes, &total); err != nil {
				t.Fatal(err)
			}
			if lanes > 0 || total > 0 {
				rows = append(rows, fmt.Sprint(category, "/", name, " ", lanes, " ", total))
			}
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	there := read(`SELECT category, '' AS name, sum(last > 0), sum(last) FROM keyhold_lanes GROUP BY category
		UNION ALL SELECT n.category, c.name, 0, sum(c.sequence) FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane GROUP BY n.category, c.name ORDER BY 1, 2`)
	if diff := cmp.Diff(there, read(`SELECT category, name, lanes, total FROM keyhold_counts ORDER BY category, name`)); diff != "" {
		t.Errorf("%s (-there +counted):\n%s", what, diff)
	}
}

func passing(u event.Unit, from, to event.Sequence) eventstore.Changes {
	return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Advance: []eventstore.Advance{{Lane: event.LaneRef{Category: "order", Key: u.Key}, From: from, To: to}}}
}

// group has the writer commit units of work together, while one with SQL of its own holds it; what becomes of each comes back.
func (b *bundle) group(all ...member) (errs []error) {
	b.Helper()
	tx, _ := b.visit(b.Context())
	var results []<-chan error
	for _, m := range all {
		results = append(results, background(m.do))
		b.writer().signals.queued.WaitFor(b, func(who string) bool { return who == m.who })
	}
	b.must(tx.Rollback())
	for _, r := range results {
		errs = append(errs, <-r)
	}
	return errs
}

// member is one of a group, by the name under which it waits for the writer.
type member struct {
	who string
	do  func() error
}

func (b *bundle) committing(c eventstore.Changes) member {
	return member{"member", func() error {
		_, err := b.store.Begin("member").Commit(b.Context(), c)
		return err
	}}
}

func (b *bundle) acting(a eventstore.Act) member {
	return member{string(a.Kind), func() error {
		_, err := b.store.Act(b.Context(), a)
		return err
	}}
}

func TestCountsAreExactWhateverBecomesOfUnitsOfWorkAndTheirGroups(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"billing", "order"})
	b.stop()
	b.start() // so that billing is not in use
	b.register([]string{"shipping", "order"})
	exact(t, "nothing", b.path)
	b.mustCommit(publish("e-1"))
	b.mustCommit(emit("o-1", 0))
	b.mustCommit(publish("e-2"))
	exact(t, "published", b.path)

	billing := event.Unit{Name: "billing", Key: "a"}
	reset := eventstore.Act{Kind: eventstore.ActReset, Unit: event.Unit{Name: "billing"}, Start: &eventstore.Start{}, Actor: "ann", Reason: "again"}
	errs := b.group(
		b.committing(passing(shipping, 0, 1)),
		b.committing(passing(shipping, 0, 1)), // moved
		b.committing(emit("o-1", 7)),          // conflict
		b.committing(passing(billing, 0, 2)),
		b.acting(reset),
		b.committing(passing(billing, 0, 1)),
	)
	want := []error{nil, eventstore.ErrCheckpointMoved, eventstore.ErrVersionConflict, nil, nil, nil}
	for i := range want {
		if !errors.Is(errs[i], want[i]) {
			t.Errorf("member %d: %v, want %v", i, errs[i], want[i])
		}
	}
	exact(t, "a group with refusals and a reset", b.path)

	renamed := eventstore.Act{Kind: eventstore.ActRename, Unit: event.Unit{Name: "billing"}, To: "invoices", Actor: "ann", Reason: "better"}
	errs = b.group(b.committing(passing(billing, 1, 2)), b.acting(renamed), b.acting(removing("invoices")), b.committing(passing(billing, 0, 3)))
	if err := errors.Join(errs...); err != nil {
		t.Errorf("rename and remove: %v", err)
	}
	exact(t, "renamed and removed", b.path)

	b.mustCommit(halted(event.Unit{Name: "shipping", Key: "b"}))
	skip := eventstore.Act{Kind: eventstore.ActSkip, Unit: event.Unit{Name: "shipping", Key: "b"}, Actor: "ann", Reason: "known",
		Seen: event.Position{Lane: event.LaneRef{Category: "order", Key: "b"}, Sequence: 1}}
	_, err := b.store.Act(t.Context(), skip)
	b.must(err)
	exact(t, "skipped", b.path)
	exact(t, "crashed", crashImage(t, b.path))
}

func TestCountsAreExactWhenAGroupIsTakenApartOrAVisitorGoesBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(b.raw(), `CREATE TRIGGER refuse BEFORE INSERT ON keyhold_log WHEN new.id = 'bad' BEGIN SELECT RAISE(ABORT, 'refused by a test'); END`)
	errs := b.group(b.committing(publish("e-1")), b.committing(publish("bad")), b.committing(passing(shipping, 0, 1)))
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("taken apart: %v", errs)
	}
	exact(t, "taken apart", b.path)

	tx, db := b.visit(t.Context()) // with SQL of its own there is a savepoint instead
	b.exec(db, `INSERT INTO shipments (id) VALUES ('a')`)
	first := b.commit(publish("bad"))
	second := b.commit(publish("e-2"))
	_, err := tx.Commit(t.Context(), publish("e-3"))
	b.must(err)
	if err := <-first; err == nil {
		t.Error("what is refused is there")
	}
	b.must(<-second)
	exact(t, "behind a visitor", b.path)

	tx, _ = b.visit(t.Context())
	if _, err := tx.Commit(t.Context(), publish("bad")); err == nil {
		t.Error("what is refused is there")
	}
	exact(t, "a visitor went back", b.path)
	if tail := b.tail(); tail != 3 {
		t.Errorf("tail %d, want 3", tail)
	}
}

func TestStartsOfNewHandlersAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		b.mustCommit(publish(fmt.Sprint("e-", i)))
	}
	b.must(b.store.SaveRegistry(t.Context(), eventstore.Registered{Handlers: []eventstore.Handler{
		{Name: "late", Kind: eventstore.EventHandler, Categories: []string{"order"}},
	}}, []eventstore.Start{{Handler: "late", Category: "order", Now: true}}))
	exact(t, "started", b.path)
	o, err := b.store.Overview(t.Context())
	b.must(err)
	if h := o.Handlers[0]; h.Lag != 0 || !h.Moved.IsZero() {
		t.Errorf("lag %d, moved %v: it begins at the end, and has passed nothing", h.Lag, h.Moved)
	}
}

// A unit of work that sets nothing aside asks nothing about it.
func TestPlainUnitOfWorkTouchesNoTableOfOperations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := publish("e-1")
	c.Fence, c.Advance = passing(shipping, 0, 1).Fence, passing(shipping, 0, 1).Advance
	c.Append = emit("o-1", 0).Append
	b.mustCommit(c)
	b.stop()
	want := []string{"BEGIN", "COMMIT", "INSERT INTO keyhold_checkpoints", "INSERT INTO keyhold_counts", "INSERT INTO keyhold_lanes", "INSERT INTO keyhold_log",
		"RELEASE", "ROLLBACK TO", "SAVEPOINT", "SELECT c.sequence, c.event_id FROM keyhold_lanes", "SELECT id, last FROM keyhold_lanes",
		"SELECT start_generation FROM keyhold_store", "SELECT stream_version FROM keyhold_log", "UPDATE keyhold_lanes"}
	known := func(query string) bool {
		return slices.ContainsFunc(want, func(prefix string) bool { return len(query) >= len(prefix) && query[:len(prefix)] == prefix })
	}
	w, err := New(Config{Path: b.path}).openWriter(t.Context(), b.path, eventstore.StartOptions{})
	b.must(err)
	t.Cleanup(func() { _ = w.close() })
	clear(w.statements)
	b.must(w.begin())
	c.Append[0].Expected, c.Advance[0].From, c.Advance[0].To = 1, 1, 2
	_, err = w.apply(&c)
	b.must(err)
	w.counts.keep()
	b.must(w.writeCounts())
	b.must(w.commit())
	for query := range w.statements {
		if !known(query) {
			t.Errorf("a plain unit of work runs %s", query)
		}
	}
	if len(w.statements) < 8 {
		t.Errorf("only %d statements are seen", len(w.statements))
	}
}

// A format 1 store has no counts, and nothing that was set aside.
func TestFormat1IsCountedWhenItIsMigrated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	create(t, path, released(t, 1))
	fill(t, path)
	done, err := Migrate(t.Context(), path)
	if err != nil || len(done) != count(t)-1 {
		t.Fatalf("steps %v, %v", done, err)
	}
	exact(t, "migrated", path)
	a := attach(t, path)
	o, err := a.Overview(t.Context())
	if err != nil || len(o.Handlers) != 1 {
		t.Fatalf("overview %+v, %v", o, err)
	}
	h := o.Handlers[0]
	if h.Lag != 5 || h.Halted != 1 || h.Dead != 1 || h.Running || o.Unclean || o.Categories[0].Partitions != 2 || o.Categories[0].Records != 7 {
		t.Errorf("overview %+v", o)
	}
	done2, err := a.Act(context.Background(), eventstore.Act{Kind: eventstore.ActRetry, Unit: shipping, Actor: "ann", Time: time.UnixMilli(9),
		Seen: event.Position{Lane: event.LaneRef{Category: "order", Key: "a"}, Sequence: 3, EventID: "e-3"}})
	if err != nil || done2.ID != 1 {
		t.Errorf("retry: %+v, %v", done2, err)
	}
}

// fill writes into a store of format 1: two lanes with 4 and 3 records, of which shipping has passed 2; it is halted at the next, and set one aside.
func fill(t *testing.T, path string) {
	t.Helper()
	b := &bundle{T: t, path: path}
	db := b.raw()
	for _, query := range []string{
		`UPDATE keyhold_store SET start_generation = 1`,
		`INSERT INTO keyhold_categories VALUES ('order', 'key', 0, 0, 's')`,
		`INSERT INTO keyhold_handlers VALUES ('shipping', 'handler', '[]', 1, 0)`,
		`INSERT INTO keyhold_subscriptions VALUES ('order', 'shipping', 0)`,
		`INSERT INTO keyhold_lanes VALUES (1, 'order', 'a', 0, 4), (2, 'order', 'b', 0, 3), (3, 'order', 'c', 0, 0)`,
		`INSERT INTO keyhold_log (lane, sequence, id, type, version, encoding, time)
			SELECT n.id, s.value, 'e-' || s.value, 'order.placed', 1, 'json', 0 FROM keyhold_lanes n, json_each('[1,2,3,4]') s WHERE s.value <= n.last`,
		`INSERT INTO keyhold_checkpoints VALUES ('shipping', 1, 2, 'e-2')`,
		`INSERT INTO keyhold_halts VALUES ('shipping', 'a', 1, 3, 'e-3', 'order.placed', 5, 'poison', 'no carrier', 0, 1)`,
		`INSERT INTO keyhold_dead VALUES ('shipping', 1, 1, 'a', 'e-1', 'order.placed', 5, 'poison', 'no carrier', 0)`,
	} {
		b.exec(db, query)
	}
}
