package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
)

func TestMigrationStatusTellsWhatIsPendingAndChangesNothing(t *testing.T) {
	t.Parallel()
	newest := count(t)
	dir := t.TempDir()
	missing, older, empty := filepath.Join(dir, "missing.db"), filepath.Join(dir, "older.db"), filepath.Join(dir, "empty.db")
	create(t, older, released(t, 1))
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{missing: 0, empty: 0, older: 1} {
		for range 2 {
			found, known, pending, err := MigrationStatus(t.Context(), path)
			if err != nil || found != want || known != newest || len(pending) != newest-want {
				t.Fatalf("%s: format %d of %d, %d pending, %v", path, found, known, len(pending), err)
			}
			if m := pending[len(pending)-1]; m.Number != newest || !strings.HasPrefix(m.Name, "migrations/") || !strings.Contains(m.SQL, " TABLE keyhold_") {
				t.Errorf("%s: the last one is %d %s", path, m.Number, m.Name)
			}
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a file: %v", err)
	}
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := MigrationStatus(t.Context(), text); err == nil || !strings.Contains(err.Error(), "is not a SQLite database") {
		t.Errorf("text: %v", err)
	}
}

func TestMigrateBringsAStoreToTheNewestFormatOnce(t *testing.T) {
	t.Parallel()
	newest := count(t)
	dir := t.TempDir()
	older, missing := filepath.Join(dir, "older.db"), filepath.Join(dir, "missing.db")
	id := create(t, older, released(t, 1))
	for path, from := range map[string]int{missing: 0, older: 1} {
		done, err := Migrate(t.Context(), path)
		if err != nil || len(done) != newest-from || done[len(done)-1].Number != newest {
			t.Fatalf("%s: %v, %v", path, done, err)
		}
		if done, err = Migrate(t.Context(), path); err != nil || len(done) > 0 {
			t.Errorf("%s again: %v, %v", path, done, err)
		}
		s := Open(path)
		now, err := s.Start(t.Context(), eventstore.StartOptions{NoMigrate: true})
		if err != nil || now.StartGeneration != 1 || now.Unclean || (path == older && now.StoreID != id) {
			t.Errorf("%s: started as %+v, %v", path, now, err)
		}
		var owned *eventstore.OwnedError
		if _, err := Migrate(t.Context(), path); !errors.As(err, &owned) || owned.PID != os.Getpid() {
			t.Errorf("%s is migrated under its owner: %v", path, err)
		}
		if found, _, _, err := MigrationStatus(t.Context(), path); err != nil || found != newest {
			t.Errorf("%s: status beside the owner: %d, %v", path, found, err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestMigrateRefusesANewerFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	future := released(t, count(t))
	future["migrations/9999_future.sql"] = released(t, 1)["migrations/0001_layout.sql"]
	future["migrations/9999_future.sql"].Data = []byte(`CREATE TABLE keyhold_future (id INTEGER)`)
	create(t, path, future)
	var refused *eventstore.FormatError
	if _, err := Migrate(t.Context(), path); !errors.As(err, &refused) || refused.Found != count(t)+1 {
		t.Errorf("migrate: %v", err)
	}
	if found, known, pending, err := MigrationStatus(t.Context(), path); err != nil || found != known+1 || len(pending) > 0 {
		t.Errorf("status: %d of %d, %v, %v", found, known, pending, err)
	}
	if _, err := Migrate(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "Path is empty") {
		t.Errorf("no path: %v", err)
	}
}

// SQL of the application stays off the tables of operations, by triggers of its own too.
func TestTablesOfOperationsAreKeptFromTheApplication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tables := []string{"keyhold_parked", "keyhold_tried", "keyhold_pauses", "keyhold_acts", "keyhold_jobs", "keyhold_counts"}
	for _, table := range tables {
		for _, query := range []string{
			`DELETE FROM ` + table,
			`DROP TABLE ` + table,
			`CREATE INDEX mine ON ` + table + ` (name)`,
			`CREATE TRIGGER mine AFTER DELETE ON ` + table + ` BEGIN SELECT 1; END`,
		} {
			tx, db := b.visit(t.Context())
			if _, err := db.ExecContext(t.Context(), query); !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s: %v", query, err)
			}
			b.must(tx.Rollback())
		}
		tx, db := b.visit(t.Context())
		_, err := db.ExecContext(t.Context(), `CREATE TEMP TRIGGER mine AFTER INSERT ON shipments BEGIN DELETE FROM `+table+`; END`)
		if err == nil {
			_, err = db.ExecContext(t.Context(), `INSERT INTO shipments (id) VALUES ('a')`)
		}
		if !errors.Is(err, ErrNotAllowed) {
			t.Errorf("a trigger that deletes from %s: %v", table, err)
		}
		b.must(tx.Rollback())
	}
}
