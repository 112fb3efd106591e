package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var ordersA = event.LaneRef{Category: "order", Key: "a"}

// relayed starts the store again, for a relay.
func (b *bundle) relayed() {
	b.Helper()
	b.stop()
	id, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "orders@test", Observe: b.notices.Send, Relayed: true})
	b.must(err)
	b.id = id
}

func parts() []event.Part {
	all := make([]event.Part, event.Parts)
	for i := range all {
		all[i] = event.Part(i)
	}
	return all
}

// holding takes over the part of a lane.
func (b *bundle) holding(l event.LaneRef, g event.Generation) []eventstore.PartFence {
	b.Helper()
	got, err := b.store.Raise(b.Context(), []eventstore.Ask{{Unit: l.Part().Unit(), Generation: g}})
	b.must(err)
	if !got[0].Raised {
		b.Fatalf("part %s is at generation %d", l.Part(), got[0].Generation)
	}
	return []eventstore.PartFence{{Part: l.Part(), Generation: g}}
}

func (b *bundle) unpublished() []eventstore.Unpublished {
	b.Helper()
	got, err := b.store.Unpublished(b.Context(), parts(), 100)
	b.must(err)
	return got
}

// asked gives the statements of the writer that name a table.
func (b *bundle) asked(table string) (found []string) {
	for query := range b.writer().statements {
		if strings.Contains(query, table) {
			found = append(found, query)
		}
	}
	return found
}

func TestCommitWithoutARelayAsksNothingMoreAndOneWithAsksOnceForEachLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mustCommit(publish("e-1"))
	b.stop() // so that nobody else reads the statements
	b.start()
	w := b.writer()
	b.mustCommit(publish("e-2"))
	b.must(w.do(t.Context(), newJob("look", func(*connection) error {
		for _, query := range b.asked("keyhold_") {
			if strings.Contains(query, "unpublished") || strings.Contains(query, "looks") || strings.Contains(query, "registry_revision") {
				t.Errorf("without a relay: %s", query)
			}
		}
		return nil
	})))
	b.relayed()
	w = b.writer()
	b.mustCommit(publish("e-3"))
	b.must(w.do(t.Context(), newJob("look", func(*connection) error {
		if got := b.asked("INTO keyhold_unpublished"); len(got) != 1 {
			t.Errorf("with a relay: %q", got)
		}
		if got := b.asked("keyhold_looks"); len(got) != 0 {
			t.Errorf("with a relay: %q", got)
		}
		return nil
	})))
}

// What format 3 wrote, and a program of format 3 published to nobody, is found by the first start for a relay.
func TestRecordsOfAnEarlierFormatAreFoundByAStartForARelay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	create(t, path, released(t, 3))
	b := &bundle{T: t, path: path}
	db := b.raw()
	for _, query := range []string{
		`INSERT INTO keyhold_lanes (id, category, key, lane, last) VALUES (1, 'order', 'a', 0, 2), (2, 'order', 'b', 0, 0), (3, 'order', 'a', 1, 1)`,
		`INSERT INTO keyhold_log (lane, sequence, id, type, version, encoding, time) VALUES (1, 1, 'e-1', 't', 1, 'json', 1), (1, 2, 'e-2', 't', 1, 'json', 1), (3, 1, 'e-3', 't', 1, 'json', 1)`,
		`INSERT INTO keyhold_handlers (name, kind, types, sequential, since, seen) VALUES ('shipping', 'handler', '[]', 0, 1, 0)`,
		`INSERT INTO keyhold_subscriptions (category, handler, ordinal) VALUES ('order', 'shipping', 0)`,
	} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b.notices.Init(t)
	b.store = Open(path)
	b.start()
	t.Cleanup(b.stop)
	if got := b.unpublished(); len(got) != 0 {
		t.Errorf("without a relay: %+v", got)
	}
	b.relayed()
	got := make(map[event.LaneRef]event.Sequence)
	for _, u := range b.unpublished() {
		got[u.Lane] = u.Tail
	}
	if diff := cmp.Diff(map[event.LaneRef]event.Sequence{ordersA: 2, {Category: "order", Key: "a", Lane: event.Backfill}: 1}, got); diff != "" {
		t.Error(diff)
	}
	h, err := b.store.LoadRegistry(t.Context())
	b.must(err)
	if len(h.Handlers) != 1 || h.Handlers[0].StoreID != "" {
		t.Errorf("handlers: %+v", h.Handlers)
	}
	p, err := b.store.Passing(t.Context(), []event.LaneRef{ordersA})
	b.must(err)
	if diff := cmp.Diff([]eventstore.Passed{{Name: "shipping"}}, p[0].Subscribers); diff != "" {
		t.Error(diff)
	}
}

// An operator adopts beside the process that has the store, which remembers where the lane ended: its next commit finds that out.
func TestOwnerGoesOnAfterAnAdoptionFromOutside(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relayed()
	b.mustCommit(publish("e-1"))
	b.mustCommit(publish("e-2"))
	b.must(b.store.Diverge(t.Context(), b.holding(ordersA, 1), eventstore.Divergence{Lane: ordersA, Sequence: 4, EventID: "lost"}))
	a, err := Attach(t.Context(), b.path)
	b.must(err)
	t.Cleanup(func() { b.must(a.Close()) })
	there, err := a.ListDiverged(t.Context(), event.LaneRef{}, 10)
	b.must(err)
	if len(there) != 1 {
		t.Fatalf("divergences: %+v", there)
	}
	_, err = a.Adopt(t.Context(), there[0].Position(), "ann", "the backup of monday")
	b.must(err)
	b.mustCommit(publish("e-3"))
	got, err := b.store.ReadLane(t.Context(), ordersA, 0, 10)
	b.must(err)
	var ids []string
	for i, e := range got {
		if e.Sequence != event.Sequence(i+1) {
			t.Errorf("record %d is #%d", i, e.Sequence)
		}
		if !e.Void() {
			ids = append(ids, fmt.Sprint(e.Sequence, " ", e.ID))
		}
	}
	if diff := cmp.Diff([]string{"5 e-1", "6 e-2", "7 e-3"}, ids); diff != "" {
		t.Error(diff)
	}
	b.stop()
	exact(t, "after an adoption", b.path)
	b.start()
}

// What a relay asks again and again begins at the right place of an index.
func TestNoQueryOfARelayGoesThroughAllLanesOrRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	b.relayed()
	b.mustCommit(publish("e-1"))
	b.must(b.store.NotePublished(t.Context(), b.holding(ordersA, 1), []eventstore.Published{{Lane: ordersA, Through: 1, Look: time.UnixMilli(1)}}))
	for range 2 { // a snapshot leaves it for later to prepare what it asks
		b.unpublished()
		_, due := b.store.DueLooks(t.Context(), parts(), time.UnixMilli(2), 10)
		_, read := b.store.ReadLanes(t.Context(), []eventstore.LaneRead{{Lane: ordersA, Limit: 1}})
		_, passing := b.store.Passing(t.Context(), []event.LaneRef{ordersA})
		b.must(errors.Join(due, read, passing))
	}
	scan := regexp.MustCompile(`SCAN (n|l|c|s|u|k|keyhold_[a-z]+)( |$)`)
	queries := 0
	check := func(query string) {
		queries++
		for _, step := range b.plan(query) {
			if scan.MatchString(step) {
				t.Errorf("%s\n  in the plan of\n%s", step, query)
			}
		}
	}
	b.store.opened.Load().readers.statements.Range(func(query, _ any) bool {
		check(query.(string))
		return true
	})
	if queries < 5 {
		t.Errorf("only %d queries were seen", queries)
	}
}

func TestFailedStartForARelayNotesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mustCommit(publish("e-1"))
	b.stop()
	db := b.raw()
	if _, err := db.ExecContext(t.Context(), `ALTER TABLE keyhold_unpublished RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	if id, err := b.store.Start(t.Context(), eventstore.StartOptions{Relayed: true}); err == nil || !strings.Contains(err.Error(), "keyhold_unpublished") {
		t.Fatalf("started as %+v, %v", id, err)
	}
	if _, err := db.ExecContext(t.Context(), `ALTER TABLE elsewhere RENAME TO keyhold_unpublished`); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.relayed()
	if got := b.unpublished(); len(got) != 1 || got[0].Tail != 1 {
		t.Errorf("after the next start: %+v", got)
	}
}
