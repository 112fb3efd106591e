package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// drop drops the tables of a build that is gone. Where that cannot be done, left says why: then all of them stay, and are written down for
// DropLeft, as nothing else is to fail of it.
func (c *connection) drop(name string, number int, tables []string) (left, err error) {
	if _, err := c.conn.ExecContext(noContext, `SAVEPOINT keyhold_drop`); err != nil {
		return nil, err
	}
	left = c.dropTables(number, tables)
	if left == nil {
		_, err = c.conn.ExecContext(noContext, `RELEASE keyhold_drop`)
		if err == nil {
			_, err = c.exec(`DELETE FROM keyhold_projection_left WHERE name = ? AND number = ?`, name, number)
		}
		return nil, err
	}
	if err := trouble(left); errors.Is(err, eventstore.ErrTrouble) {
		return nil, err // it may have ended the transaction
	}
	if _, err := c.conn.ExecContext(noContext, `ROLLBACK TO keyhold_drop; RELEASE keyhold_drop`); err != nil {
		return nil, err
	}
	list, err := json.Marshal(append([]string{}, tables...))
	if err != nil {
		return nil, err
	}
	left = fmt.Errorf("projection %q, build %d: %w", name, number, left)
	_, err = c.exec(`INSERT OR REPLACE INTO keyhold_projection_left (name, number, tables, error) VALUES (?, ?, ?, ?)`, name, number, string(list), left.Error())
	return left, err
}

// dropTables drops tables whatever refers to what among them. A DROP deletes the rows first and heeds foreign keys: children go before
// parents, so that no action of a key runs; where they go round in a circle, keys wait for the end, and there is nothing left to check.
func (c *connection) dropTables(number int, tables []string) error {
	own := make([]string, len(tables))
	for i, name := range tables {
		own[i] = strings.ToLower(eventstore.TableOf(name, number))
	}
	children, err := c.children(own)
	if err != nil {
		return err
	}
	if _, err := c.conn.ExecContext(noContext, `PRAGMA defer_foreign_keys = ON`); err != nil {
		return err
	}
	for len(own) > 0 && err == nil {
		i := max(slices.IndexFunc(own, func(table string) bool { return len(children[table]) == 0 }), 0)
		table := own[i]
		own = slices.Delete(own, i, i+1)
		for parent := range children {
			delete(children[parent], table)
		}
		err = c.dropOne(table)
	}
	_, after := c.conn.ExecContext(noContext, `PRAGMA defer_foreign_keys = OFF`) // which forgets what it counted
	return errors.Join(err, after)
}

func (c *connection) dropOne(table string) error {
	var kind string
	if found, err := c.get(`SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')`, []any{table}, &kind); err != nil || !found {
		return err
	}
	if _, err := c.conn.ExecContext(noContext, `DROP `+kind+` "`+table+`"`); err != nil { // letters, digits and _ alone
		return fmt.Errorf("drop %s: %w", table, err)
	}
	return nil
}

// children gives, of each of some tables in lower case, which others of them have foreign keys to it. A table that is none of them and
// has one is an error: its rows would refer to what is not there.
func (c *connection) children(tables []string) (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	return all, each(noContext, c, `SELECT lower(m.name), lower(f."table") FROM sqlite_schema m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' AND m.rootpage <> 0`,
		nil, func(rows *sql.Rows) error {
			var child, parent string
			if err := rows.Scan(&child, &parent); err != nil {
				return err
			}
			switch {
			case !slices.Contains(tables, parent), child == parent:
			case !slices.Contains(tables, child):
				return fmt.Errorf("table %s has a foreign key to %s: drop it, or make it anew without the key", child, parent)
			case all[parent] == nil:
				all[parent] = map[string]bool{child: true}
			default:
				all[parent][child] = true
			}
			return nil
		})
}

// DropLeft implements [eventstore.ProjectionBuilds].
func (s *Store) DropLeft(ctx context.Context) error {
	var left error
	err := s.change(ctx, "drop tables that are left", func(c *connection) error {
		left = nil
		var names []string
		if err := each(noContext, c, `SELECT DISTINCT name FROM keyhold_projection_left ORDER BY name`, nil, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		}); err != nil {
			return err
		}
		for _, name := range names {
			all, err := loadLeft(noContext, c, name)
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
	return all, each(ctx, q, `SELECT number, tables, error FROM keyhold_projection_left WHERE name = ? ORDER BY number`, []any{name}, func(rows *sql.Rows) error {
		var l eventstore.LeftTables
		err := rows.Scan(&l.Build, list{&l.Tables}, &l.Error)
		all = append(all, l)
		return err
	})
}
