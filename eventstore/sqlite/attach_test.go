package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var shipping = event.Unit{Name: "shipping", Key: "a"}

// attach attaches to the store at a path, until the test ends.
func attach(t *testing.T, path string) *Attached {
	t.Helper()
	a, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

// register saves handlers, each with its categories.
func (b *bundle) register(handlers ...[]string) {
	b.Helper()
	now, err := b.store.LoadRegistry(b.Context())
	b.must(err)
	saved := eventstore.Registered{Revision: now.Revision}
	for _, h := range handlers {
		saved.Handlers = append(saved.Handlers, eventstore.Handler{Name: h[0], Kind: eventstore.EventHandler, Categories: h[1:]})
		for _, c := range h[1:] {
			saved.Categories = append(saved.Categories, eventstore.Category{Name: c, KeyField: "key"})
		}
	}
	b.must(b.store.SaveRegistry(b.Context(), saved, nil))
}

func (b *bundle) mustCommit(c eventstore.Changes) {
	b.Helper()
	_, err := b.store.Begin(b.Name()).Commit(b.Context(), c)
	b.must(err)
}

// halted is a unit of work that halts a unit before the first event of its lane.
func halted(u event.Unit) eventstore.Changes {
	return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{
		Unit: u, Lane: event.LaneRef{Category: "order", Key: u.Key}, Sequence: 1, EventID: "e-1", Reason: "poison", Since: time.UnixMilli(1_750_000_000_000).UTC(),
	}}
}

func pausing(u event.Unit) eventstore.Act {
	return eventstore.Act{Kind: eventstore.ActPause, Unit: u, Actor: "ann"}
}

func removing(name string) eventstore.Act {
	return eventstore.Act{Kind: eventstore.ActRemove, Unit: event.Unit{Name: name}, Actor: "ann", Reason: "gone"}
}

func TestAttachRefusesWhatItCannotOperate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("empty.db", "")
	write("text.db", strings.Repeat("this is no database. ", 100))
	create(t, filepath.Join(dir, "older.db"), released(t, 1))
	future := released(t, count(t))
	future["migrations/9999_future.sql"] = released(t, 1)["migrations/0001_layout.sql"]
	future["migrations/9999_future.sql"].Data = []byte(`CREATE TABLE keyhold_future (id INTEGER)`)
	create(t, filepath.Join(dir, "newer.db"), future)
	for name, want := range map[string]string{
		"missing.db":      "is not there",
		"nowhere/file.db": "directory is not there",
		"empty.db":        "is no Keyhold store",
		"text.db":         "is not a SQLite database",
		"older.db":        "run `keyhold migrate up`",
		"newer.db":        "run the newer program",
		".":               "is no file",
	} {
		a, err := Attach(t.Context(), filepath.Join(dir, name))
		if err == nil {
			t.Errorf("%s is attached to", name)
			_ = a.Close()
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for _, name := range []string{"missing.db", "missing.db.lock", "empty.db-wal"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want nothing there", name, err)
		}
	}
}

func TestOperatorAndOwnerSeeWhatTheOtherDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	b.mustCommit(publish("e-1"))
	a := attach(t, b.path)
	done, err := a.Act(t.Context(), pausing(shipping))
	b.must(err)
	acts, err := b.store.ActsAfter(t.Context(), 0, 10)
	b.must(err)
	if diff := cmp.Diff([]eventstore.ActRecord{done}, acts); diff != "" {
		t.Errorf("acts that the owner finds (-done +found):\n%s", diff)
	}
	known, err := b.store.Recover(t.Context(), []eventstore.Ask{{Unit: shipping}})
	b.must(err)
	if known[0].Pause == nil || known[0].Pause.Actor != "ann" {
		t.Errorf("the owner recovers %+v", known[0].Pause)
	}
	b.mustCommit(publish("e-2")) // nothing was taken from the owner
	tail, err := a.LaneTail(t.Context(), event.LaneRef{Category: "order", Key: "a"})
	if err != nil || tail != 2 {
		t.Errorf("the operator sees tail %d, %v", tail, err)
	}
	o, err := a.Overview(t.Context())
	b.must(err)
	if want := (eventstore.Owner{PID: os.Getpid(), Node: "orders@test", Generation: b.id.StartGeneration}); o.Owner == nil || *o.Owner != want || o.Unclean || o.StoreID != b.id.StoreID {
		t.Errorf("overview %+v, owner %+v, want %+v", o, o.Owner, want)
	}
}

func TestOverviewTellsWhetherTheStoreWasLeftAsItShouldBe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crashed := crashImage(t, b.path)
	b.stop()
	for path, unclean := range map[string]bool{b.path: false, crashed: true} {
		o, err := attach(t, path).Overview(t.Context())
		b.must(err)
		if o.Owner != nil || o.Unclean != unclean {
			t.Errorf("owner %+v, unclean %v, want none and %v", o.Owner, o.Unclean, unclean)
		}
	}
	next := New(Config{Path: crashed, Setup: func(context.Context, eventstore.SQL) error { return errors.New("no setup today") }})
	if _, err := next.Start(t.Context(), eventstore.StartOptions{}); err == nil {
		t.Fatal("it started")
	}
	for _, unclean := range []bool{true, false} { // a start that came to nothing does not hide how the store was left
		next := Open(crashed)
		id, err := next.Start(t.Context(), eventstore.StartOptions{})
		b.must(err)
		if id.Unclean != unclean {
			t.Errorf("unclean %v, want %v", id.Unclean, unclean)
		}
		b.must(next.Stop(t.Context()))
	}
}

// The handler is one that the program that started last has, or one that it does not have any more; a program runs, or none does.
func TestHandlerIsRemovedFromBesideOnlyWhereNoProgramRunsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"billing", "order"}, []string{"shipping", "order"})
	a := attach(t, b.path)
	if _, err := a.Act(t.Context(), removing("billing")); !errors.Is(err, eventstore.ErrInUse) {
		t.Fatalf("it is in use: %v", err)
	}
	b.stop()
	_, err := a.Act(t.Context(), removing("billing"))
	b.must(err)
	b.start()
	if _, err := a.Act(t.Context(), removing("shipping")); err != nil {
		t.Fatalf("the program that runs has not saved it: %v", err)
	}
	r, err := a.LoadRegistry(t.Context())
	if err != nil || len(r.Handlers) > 0 {
		t.Errorf("handlers %+v, %v", r.Handlers, err)
	}
}

func TestAnActOnAHandlerThatWouldHoldUpEverybodyIsForAStoppedProgram(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"billing", "order"})
	for _, key := range []string{"a", "b", "c"} {
		b.mustCommit(eventstore.Changes{Publish: []event.Envelope{{ID: "e-" + key, Type: "order.placed", Category: "order", Key: key, Time: time.UnixMilli(1).UTC()}}})
	}
	b.stop()
	b.start() // with a program that does not have it any more
	a := attach(t, b.path)
	c := <-a.turn
	c.mostLanes = 2
	a.turn <- c
	rename := eventstore.Act{Kind: eventstore.ActRename, Unit: event.Unit{Name: "billing"}, To: "invoices", Actor: "ann", Reason: "better"}
	reset := eventstore.Act{Kind: eventstore.ActReset, Unit: event.Unit{Name: "billing"}, Start: &eventstore.Start{}, Actor: "ann", Reason: "again"}
	for _, act := range []eventstore.Act{rename, reset} {
		if _, err := a.Act(t.Context(), act); !errors.Is(err, eventstore.ErrInUse) {
			t.Errorf("%s beside a program: %v", act.Kind, err)
		}
	}
	b.stop()
	for _, act := range []eventstore.Act{reset, rename} {
		if _, err := a.Act(t.Context(), act); err != nil {
			t.Errorf("%s of a store that nobody has open: %v", act.Kind, err)
		}
	}
	b.start()
}

func TestLookingForTheOwnerTakesNoLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if who, err := holderOf(path); who != nil || err != nil {
		t.Fatalf("before the first start: %+v, %v", who, err)
	}
	for range 3 {
		first, err := own(t.Context(), path, eventstore.StartOptions{Node: "first"})
		if err != nil {
			t.Fatal(err)
		}
		who, err := holderOf(path)
		if err != nil || who == nil || *who != (eventstore.Owner{PID: os.Getpid(), Node: "first"}) {
			t.Errorf("owner %+v, %v", who, err)
		}
		if err := first.release(); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		if marked, err := isMarked(file, 0); marked || err != nil { // and the file stays open: what it took, it would keep
			t.Errorf("after the end: %v, %v", marked, err)
		}
		t.Cleanup(func() { _ = file.Close() })
	}
}

func TestActWaitsForItsTurnAsLongAsItsContextAllows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	a := attach(t, b.path)
	tx, db := b.visit(t.Context()) // the owner's behavior has the writer
	b.exec(db, `INSERT INTO shipments (id) VALUES ('a')`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in which it begins to wait
	defer cancel()
	_, err := a.Act(ctx, pausing(event.Unit{Name: "shipping"}))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "no turn") {
		t.Fatalf("the act gave %v", err)
	}
	acted := background(func() error {
		_, err := a.Act(b.Context(), pausing(event.Unit{Name: "shipping"}))
		return err
	})
	select {
	case err := <-acted:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if _, err := a.ListPauses(t.Context(), "", event.Unit{}, 10); err != nil {
		t.Errorf("reading waits for nobody: %v", err)
	}
	b.must(tx.Rollback())
	b.must(<-acted)
}

func TestOwnerWaitsForAShortForeignTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := b.raw().Conn(t.Context())
	b.must(err)
	_, err = other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	b.must(err)
	committed := b.commit(publish("e-1"))
	_, err = other.ExecContext(t.Context(), `COMMIT`)
	b.must(err)
	b.must(other.Close())
	b.must(<-committed)
}

func TestAttachedThatIsClosedDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := attach(t, b.path)
	b.must(a.Close())
	if _, err := a.Overview(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("overview: %v", err)
	}
	if _, err := a.Act(t.Context(), pausing(shipping)); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("act: %v", err)
	}
	b.must(a.Close())
}

func TestAttachedRefusesAFormatThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	a := attach(t, b.path)
	if _, err := b.raw().ExecContext(t.Context(), `INSERT INTO keyhold_format VALUES (99, 'future', 0)`); err != nil {
		t.Fatal(err)
	}
	var refused *eventstore.FormatError
	if _, err := a.Act(t.Context(), pausing(event.Unit{Name: "shipping"})); !errors.As(err, &refused) || refused.Found != 99 {
		t.Errorf("act: %v", err)
	}
}
