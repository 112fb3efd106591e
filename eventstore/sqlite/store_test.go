package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
)

func TestWhatCannotBeAStoreIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "letter.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Dear database, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "name the database file"},
		{Config{Path: ":memory:"}, "use eventstore/memory"},
		{Config{Path: "file::memory:?cache=shared"}, "use eventstore/memory"},
		{Config{Path: "file:x.db?mode=memory"}, "use eventstore/memory"},
		{Config{Path: "file:x.db"}, "give the path of the file"},
		{Config{Path: filepath.Join(dir, "nowhere", "x.db")}, "create it first"},
		{Config{Path: text}, "is not a SQLite database"},
		{Config{Path: dir}, "cannot be opened"},
		{Config{Path: filepath.Join(dir, "x.db"), Readers: -1}, "cannot be negative"},
	} {
		s := New(c.config)
		_, err := s.Start(t.Context(), eventstore.StartOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("%+v: stop: %v", c.config, err)
		}
	}
}

func TestPathMayHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "50%.db", "what?.db", "a#b&c=d.db", "ü.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := Open(path)
		if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := s.Begin("x").Commit(t.Context(), publish("e-1")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStopLeavesOneFileAndTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(<-b.commit(publish("e-1")))
	var n int
	b.must(b.store.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM keyhold_log`).Scan(&n))
	if b.tail() != 1 || n != 1 {
		t.Errorf("tail %d, %d events", b.tail(), n)
	}
	b.stop()
	files, err := os.ReadDir(filepath.Dir(b.path))
	b.must(err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if got := fmt.Sprint(names); got != "[store.db store.db.lock]" {
		t.Errorf("files: %v", got)
	}
	if b.store.Reader() != nil {
		t.Error("a reader of a stopped store")
	}
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, query := range []string{
		`INSERT INTO shipments (id) VALUES ('s-1')`, `DELETE FROM keyhold_log`, `CREATE TABLE mine (id)`,
	} {
		if _, err := b.store.Reader().ExecContext(t.Context(), query); err == nil || !strings.Contains(err.Error(), "readonly") {
			t.Errorf("%s: %v", query, err)
		}
	}
	other := filepath.Join(t.TempDir(), "other.db")
	for _, query := range []string{
		`ATTACH '` + dsn(b.path, url.Values{"mode": {"rw"}}) + `' AS w`, `ATTACH '` + other + `' AS w`, `VACUUM INTO '` + other + `'`,
	} {
		if _, err := b.store.Reader().ExecContext(t.Context(), query); err == nil || !(strings.Contains(err.Error(), "not authorized") || strings.Contains(err.Error(), "denied")) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestSetupThatFailsFailsTheStartAndLeavesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		setup func(ctx context.Context, db eventstore.SQL) error
		want  error
	}{
		"its own error": {func(ctx context.Context, db eventstore.SQL) error {
			if err := createShipments(ctx, db); err != nil {
				return err
			}
			return wrong
		}, wrong},
		"a statement that is not allowed": {func(ctx context.Context, db eventstore.SQL) error {
			if err := createShipments(ctx, db); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, `COMMIT`)
			return err
		}, ErrNotAllowed},
	} {
		s := New(Config{Path: path, Setup: c.setup})
		if _, err := s.Start(t.Context(), eventstore.StartOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	panics := New(Config{Path: path, Setup: func(ctx context.Context, db eventstore.SQL) error {
		if err := createShipments(ctx, db); err != nil {
			return err
		}
		panic("no such luck")
	}})
	if _, err := panics.Start(t.Context(), eventstore.StartOptions{}); err == nil || !strings.Contains(err.Error(), "panic: no such luck") {
		t.Errorf("a panic: %v", err)
	}
	s := Open(path)
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop(context.Background())
	if _, err := s.Reader().QueryContext(t.Context(), `SELECT * FROM shipments`); err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("the table of a setup that failed: %v", err)
	}
}

// service starts a store as lifecycletest knows it.
type service struct{ *Store }

func (s service) Start(ctx context.Context) error {
	_, err := s.Store.Start(ctx, eventstore.StartOptions{Node: "stress"})
	return err
}

func TestStoreStartedAndStoppedByMany(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress(t, service{Open(filepath.Join(t.TempDir(), "store.db"))}, eventstore.ErrOwned)
}

func TestStopTakesTheConnectionFromAVisitorWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	waiting := b.commit(publish("e-1"))
	stopNow(t, b.store)
	b.must(<-waiting) // it was in the queue
	if _, err := tx.Commit(t.Context(), eventstore.Changes{}); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	b.start()
	if b.shipments() != 0 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestStopWaitsForAVisitor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	closing := b.writer().closing
	stopped := background(func() error { return b.store.Stop(t.Context()) })
	<-closing
	if _, err := b.store.Begin("late").Commit(t.Context(), publish("late")); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("commit after stop began: %v", err)
	}
	_, err := tx.Commit(t.Context(), publish("e-1"))
	b.must(err)
	b.must(<-stopped)
	b.start()
	if b.shipments() != 1 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestCommitAllocatesLittle(t *testing.T) { // counts allocations, so not in parallel
	b := setup(t)
	c := emit("o-1", 0)
	version := uint64(0)
	got := testing.AllocsPerRun(100, func() {
		c.Append[0].Expected = version
		version++
		if _, err := b.store.Begin("x").Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	})
	const most = 110 // alone in its transaction: BEGIN, fence and COMMIT are all its own
	if got > most {
		t.Errorf("%.0f allocations for a unit of work, at most %d", got, most)
	}
	t.Logf("%.0f allocations", got)
}

// An acknowledged commit survives a power cut by these settings. A test cannot cut the power, so it looks at them.
func TestWriterSyncsEveryCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		b.must(b.store.change(t.Context(), "test", func(c *connection) error {
			_, err := c.get(`PRAGMA `+pragma, nil, &got)
			return err
		}))
		if got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
}
