package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

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
// that says so. So a crash in between leaves a format that exists, from which the next start goes on. Of many that start at once, one does it.
func (r *resolved) migrate(ctx context.Context, conn *pgx.Conn, known []format, opts eventstore.StartOptions) error {
	found, err := formatOf(ctx, single{conn})
	if err != nil {
		return trouble(err)
	}
	if found > len(known) || (found < len(known) && opts.NoMigrate) {
		return &eventstore.FormatError{Path: r.name, Found: found, Known: len(known)}
	}
	began := time.Now()
	var did []int // of the formats: others may take a step between two of ours
	for _, f := range known[found:] {
		done, err := r.migrateTo(ctx, conn, f)
		if err != nil {
			return fmt.Errorf("migrate store %s to format %d (%s): %w%s", r.name, f.number, f.name, trouble(err), mayNot(err, r.Schema))
		}
		if done {
			did = append(did, f.number)
		}
	}
	if len(did) > 0 && opts.Observe != nil {
		what := "database created"
		if from := did[0] - 1; from > 0 {
			what = fmt.Sprintf("migrated from format %d to %d", from, did[len(did)-1])
		}
		opts.Observe(eventstore.Notice{What: what, Took: time.Since(began), Routine: true})
	}
	return nil
}

// formatOf gives the database's format, 0 when Keyhold was never there. It changes nothing.
func formatOf(ctx context.Context, q queryer) (found int, err error) {
	var there bool
	if _, err := get(ctx, q, `SELECT to_regclass('keyhold_format') IS NOT NULL`, nil, &there); err != nil || !there {
		return 0, err
	}
	_, err = get(ctx, q, `SELECT coalesce(max(number), 0) FROM keyhold_format`, nil, &found)
	return found, err
}

// migrateTo takes one step, unless somebody else has while this one waited for its turn.
func (r *resolved) migrateTo(ctx context.Context, conn *pgx.Conn, f format) (done bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, r.key64("migrate")); err != nil {
			return err
		}
		if r.Schema != "" {
			var there bool // who may not make a schema may well use one
			if _, err := get(ctx, snapshot{tx: tx}, `SELECT to_regnamespace($1) IS NOT NULL`, []any{quote(r.Schema)}, &there); err != nil {
				return err
			}
			if !there {
				if _, err := tx.Exec(ctx, `CREATE SCHEMA `+quote(r.Schema)); err != nil {
					return err
				}
			}
		}
		// Not by its name, as formatOf does: the session remembers that it was not there before this one waited for its turn.
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS keyhold_format (number bigint PRIMARY KEY, name text NOT NULL, time bigint NOT NULL)`); err != nil {
			return err
		}
		var now int
		if _, err := get(ctx, snapshot{tx: tx}, `SELECT coalesce(max(number), 0) FROM keyhold_format`, nil, &now); err != nil || now >= f.number {
			return err
		}
		if _, err := tx.Exec(ctx, f.script, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO keyhold_format VALUES ($1, $2, $3)`, f.number, f.name, time.Now().UnixMilli())
		done = true
		return err
	})
	return done, err
}

// mayNot says what to do where the role may not make what is to be made; "" for any other error.
func mayNot(err error, schema string) string {
	switch {
	case code(err) != "42501":
		return ""
	case schema == "":
		return ": the role makes the tables in the first schema of its search_path: GRANT USAGE, CREATE ON that SCHEMA to it, or set Config.Schema to one of its own"
	}
	return ": GRANT CREATE ON DATABASE to the role, which lets it make the schema, or USAGE, CREATE ON SCHEMA " + quote(schema) + " where that is there"
}
