package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/eventstore"
)

// drop drops the tables of a build that is gone. Where that cannot be done, left says why: then all of them stay, and are written down for
// DropLeft, as nothing else is to fail of it.
func (c *connection) drop(name string, number int, tables []string) (left, err error) {
	if _, err := c.exec(`SAVEPOINT keyhold_drop`); err != nil {
		return nil, err
	}
	left = c.dropTables(number, tables)
	if left == nil {
		_, err = c.exec(`RELEASE SAVEPOINT keyhold_drop`)
		if err == nil {
			_, err = c.exec(`DELETE FROM keyhold_projection_left WHERE name = $1 AND number = $2`, name, number)
		}
		return nil, err
	}
	if code(left) != lockTimeout && errors.Is(trouble(left), eventstore.ErrTrouble) {
		return nil, left
	}
	for _, statement := range []string{`ROLLBACK TO SAVEPOINT keyhold_drop`, `RELEASE SAVEPOINT keyhold_drop`} { // which also brings the timeout back
		if _, err := c.exec(statement); err != nil {
			return nil, err
		}
	}
	list, err := json.Marshal(append([]string{}, tables...))
	if err != nil {
		return nil, err
	}
	left = fmt.Errorf("projection %q, build %d: %w", name, number, left)
	_, err = c.exec(`INSERT INTO keyhold_projection_left (name, number, tables, error) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name, number) DO UPDATE SET tables = excluded.tables, error = excluded.error`, name, number, string(list), words(left.Error()))
	return left, err
}

// lockTimeout is the SQLSTATE of a statement that somebody kept waiting: somebody reads a table.
const lockTimeout = "55P03"

// dropTables drops tables whatever refers to what among them.
func (c *connection) dropTables(number int, tables []string) error {
	if _, err := c.exec(briefly); err != nil {
		return err
	}
	own := map[string][]string{} // by what they are
	var oids []uint32
	for _, name := range tables {
		found, err := c.relation(eventstore.TableOf(name, number))
		if err != nil {
			return err
		}
		if found.kind == "table" || found.kind == "view" {
			own[found.kind] = append(own[found.kind], found.quoted())
			oids = append(oids, found.oid)
		}
	}
	var child, parent string
	referred, err := c.get(`SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
		WHERE contype = 'f' AND confrelid = ANY($1::oid[]) AND conrelid <> ALL($1::oid[]) ORDER BY 1, 2 LIMIT 1`, []any{oids}, &child, &parent)
	if err == nil && referred {
		err = fmt.Errorf("table %s has a foreign key to %s: drop it, or make it anew without the key", child, parent)
	}
	if err != nil {
		return err
	}
	for _, kind := range []string{"view", "table"} {
		if len(own[kind]) == 0 {
			continue
		}
		if _, err := c.exec(`DROP ` + kind + ` ` + strings.Join(own[kind], ", ")); err != nil {
			return fmt.Errorf("drop %s: %w", strings.Join(own[kind], ", "), detailed(err))
		}
	}
	_, err = c.exec(`SET LOCAL lock_timeout = DEFAULT`)
	return err
}

// detailed is an error of the database with what it says of it beyond: which view depends on a table, say.
func detailed(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Detail != "" {
		return fmt.Errorf("%w (%s)", err, strings.ReplaceAll(pg.Detail, "\n", "; "))
	}
	return err
}

// DropLeft implements [eventstore.ProjectionBuilds].
func (s *Store) DropLeft(ctx context.Context) error {
	var left error
	err := s.change(ctx, "drop tables that are left", func(c *connection) error {
		left = nil
		if _, err := c.exec(lockDeclared); err != nil {
			return err
		}
		var names []string
		if err := each(c.ctx, c, `SELECT DISTINCT name FROM keyhold_projection_left ORDER BY name`, nil, func(r rows) error {
			var name string
			err := r.Scan(&name)
			names = append(names, name)
			return err
		}); err != nil {
			return err
		}
		for _, name := range names {
			if err := c.lockProjection(name); err != nil {
				return err
			}
			all, err := loadLeft(c.ctx, c, name)
			if err != nil {
				return err
			}
			for _, l := range slices.Backward(all) {
				why, err := c.drop(name, l.Build, l.Tables)
				if err != nil {
					return err
				}
				left = errors.Join(left, why)
			}
		}
		return nil
	})
	return errors.Join(err, left)
}

func loadLeft(ctx context.Context, q queryer, name string) (all []eventstore.LeftTables, err error) {
	err = each(ctx, q, `SELECT number, tables, error FROM keyhold_projection_left WHERE name = $1 ORDER BY number`, []any{name}, func(r rows) error {
		var l eventstore.LeftTables
		err := r.Scan(&l.Build, list{&l.Tables}, &l.Error)
		all = append(all, l)
		return err
	})
	return all, err
}
