package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"modernc.org/sqlite"

	"github.com/keyhold/keyhold/eventstore"
)

// released are the formats as they are, the first n of them.
func released(t *testing.T, n int) fstest.MapFS {
	t.Helper()
	all, err := formats(migrations)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, f := range all[:n] {
		files[f.name] = &fstest.MapFile{Data: []byte(f.script)}
	}
	return files
}

func count(t *testing.T) int {
	t.Helper()
	all, err := formats(migrations)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// startWith starts the store at path with those formats, stops it, and gives the notices.
func startWith(t *testing.T, path string, formats fs.FS, opts eventstore.StartOptions) (eventstore.Identity, []eventstore.Notice, error) {
	t.Helper()
	s := Open(path)
	s.formats = formats
	var notices []eventstore.Notice
	opts.Observe = func(n eventstore.Notice) { notices = append(notices, n) }
	id, err := s.Start(t.Context(), opts)
	if stop := s.Stop(context.Background()); stop != nil {
		t.Errorf("stop: %v", stop)
	}
	return id, notices, err
}

func TestStoreOfEveryEarlierFormatIsMigratedAndKeepsItsID(t *testing.T) {
	t.Parallel()
	newest := count(t)
	for earlier := 1; earlier <= newest; earlier++ {
		path := filepath.Join(t.TempDir(), "store.db")
		id := create(t, path, released(t, earlier))
		after, notices, err := startWith(t, path, migrations, eventstore.StartOptions{})
		if err != nil || (len(notices) > 0) != (earlier < newest) {
			t.Fatalf("format %d to %d: %v, notices %v", earlier, newest, err, notices)
		}
		if after.StoreID != id || after.StartGeneration != 1 || after.Unclean {
			t.Errorf("format %d to %d: %+v, the store id was %s", earlier, newest, after, id)
		}
	}
}

// create makes a store of those formats that nobody has started, and gives its id.
func create(t *testing.T, path string, files fs.FS) (id string) {
	t.Helper()
	connector, err := sqlite.NewConnector(writerDSN(path))
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{connector: connector, patience: defaultPatience}
	known, err := formats(files)
	if err == nil {
		err = c.open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	var notices []eventstore.Notice
	err = migrate(t.Context(), path, c, known, eventstore.StartOptions{Observe: func(n eventstore.Notice) { notices = append(notices, n) }})
	if err != nil || len(notices) != 1 || notices[0].What != "database created" || !notices[0].Routine {
		t.Fatalf("%d formats: %v, notices %v", len(known), err, notices)
	}
	if _, err := c.get(`SELECT store_id FROM keyhold_store`, nil, &id); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestMigrationTellsFromWhichFormatToWhich(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if _, _, err := startWith(t, path, migrations, eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	newest := count(t)
	next := released(t, newest)
	next["migrations/9999_next.sql"] = &fstest.MapFile{Data: []byte(`CREATE TABLE keyhold_next (id INTEGER)`)}
	_, notices, err := startWith(t, path, next, eventstore.StartOptions{})
	want := fmt.Sprintf("migrated from format %d to %d", newest, newest+1)
	if err != nil || len(notices) != 1 || notices[0].What != want || !notices[0].Routine {
		t.Errorf("%v, notices %+v, want %q", err, notices, want)
	}
}

func TestNewerFormatIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	newest := count(t)
	future := released(t, newest)
	future["migrations/9999_future.sql"] = &fstest.MapFile{Data: []byte(`CREATE TABLE keyhold_future (id INTEGER)`)}
	before, _, err := startWith(t, path, future, eventstore.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var refused *eventstore.FormatError
	if _, _, err := startWith(t, path, migrations, eventstore.StartOptions{}); !errors.As(err, &refused) {
		t.Fatalf("start: %v", err)
	}
	if refused.Found != newest+1 || refused.Known != newest || !strings.Contains(refused.Path, path) {
		t.Errorf("refused with %+v", refused)
	}
	after, _, err := startWith(t, path, future, eventstore.StartOptions{})
	if err != nil || after.StartGeneration != before.StartGeneration+1 {
		t.Errorf("the refused start left a trace: %+v, %v", after, err)
	}
}

func TestWithNoMigrateAnOlderFormatIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	newest := count(t)
	var refused *eventstore.FormatError
	for found := range newest + 1 {
		if found > 0 {
			path = filepath.Join(t.TempDir(), "store.db")
			create(t, path, released(t, found))
		}
		_, notices, err := startWith(t, path, migrations, eventstore.StartOptions{NoMigrate: true})
		switch {
		case found == newest:
			if err != nil || len(notices) > 0 {
				t.Errorf("start on the newest format: %v, notices %v", err, notices)
			}
		case !errors.As(err, &refused) || refused.Found != found || refused.Known != newest:
			t.Errorf("start on format %d: %v", found, err)
		}
	}
}

func TestMigrationThatFailsLeavesAFormatFromWhichTheNextStartGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	newest := count(t)
	steps := released(t, newest)
	steps["migrations/9001_good.sql"] = &fstest.MapFile{Data: []byte(`CREATE TABLE keyhold_good (id INTEGER); INSERT INTO keyhold_good VALUES (1)`)}
	steps["migrations/9002_bad.sql"] = &fstest.MapFile{Data: []byte(`INSERT INTO keyhold_good VALUES (2); INSERT INTO keyhold_nowhere VALUES (1)`)}
	_, _, err := startWith(t, path, steps, eventstore.StartOptions{})
	if err == nil || !strings.Contains(err.Error(), "9002_bad.sql") || !strings.Contains(err.Error(), "keyhold_nowhere") {
		t.Fatalf("start: %v", err)
	}
	steps["migrations/9002_bad.sql"] = &fstest.MapFile{Data: []byte(`INSERT INTO keyhold_good VALUES (3)`)}
	s := Open(path)
	s.formats = steps
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop(context.Background())
	var rows string
	if err := s.Reader().QueryRowContext(t.Context(), `SELECT group_concat(id ORDER BY id) FROM keyhold_good`).Scan(&rows); err != nil || rows != "1,3" {
		t.Errorf("rows %q, %v: want 1 of the step that held, 3 of the one repaired, and nothing of the one that failed", rows, err)
	}
}
