package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// migrations holds one file for each format, in order of their names. A file that was released is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// format is one step of the layout.
type format struct {
	number int // from 1
	name   string
	script string
}

// formats reads the migrations of fsys; format n is the n-th file in order of names.
func formats(fsys fs.FS) ([]format, error) {
	files, err := fs.Glob(fsys, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make([]format, len(files))
	for i, name := range files {
		script, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		all[i] = format{number: i + 1, name: name, script: string(script)}
	}
	return all, nil
}

// migrate brings the database to the newest of the formats known: each in a transaction of its own together with the row
// that says so. So a crash in between leaves a format that exists, from which the next start goes on.
func migrate(ctx context.Context, path string, c *connection, known []format, opts eventstore.StartOptions) error {
	found, err := formatOf(ctx, c.conn)
	if err != nil {
		return err
	}
	if found > len(known) || (found < len(known) && opts.NoMigrate) {
		return &eventstore.FormatError{Path: path, Found: found, Known: len(known)}
	}
	began := time.Now()
	for _, f := range known[found:] {
		if err := c.migrateTo(ctx, f); err != nil {
			return fmt.Errorf("migrate to format %d (%s): %w", f.number, f.name, err)
		}
	}
	if found < len(known) && opts.Observe != nil {
		what := "database created"
		if found > 0 {
			what = fmt.Sprintf("migrated from format %d to %d", found, len(known))
		}
		opts.Observe(eventstore.Notice{What: what, Took: time.Since(began), Routine: true})
	}
	return nil
}

// formatOf gives the database's format, 0 when Keyhold was never there. It changes nothing.
func formatOf(ctx context.Context, q rowQueryer) (int, error) {
	var there bool
	err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'keyhold_format')`).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	var found int
	err = q.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM keyhold_format`).Scan(&found)
	return found, err
}

func (c *connection) migrateTo(ctx context.Context, f format) (err error) {
	exec := func(query string, args ...any) error {
		_, err := c.conn.ExecContext(ctx, query, args...)
		return err
	}
	if err := exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// An error of it would say that the database rolled back by itself.
			_, _ = c.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	if err := exec(`CREATE TABLE IF NOT EXISTS keyhold_format (number INTEGER PRIMARY KEY, name TEXT NOT NULL, time INTEGER NOT NULL) STRICT`); err != nil {
		return err
	}
	if err := exec(f.script); err != nil {
		return err
	}
	if err := exec(`INSERT INTO keyhold_format VALUES (?, ?, ?)`, f.number, f.name, time.Now().UnixMilli()); err != nil {
		return err
	}
	return exec("COMMIT")
}
