package postgres

import (
	"fmt"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// relation is something that has a name among tables.
type relation struct {
	oid  uint32
	name string // as it is, whatever case somebody wrote
	kind string // "table", "view", "index", ...; "" = there is none
}

func (r *relation) quoted() string { return quote(r.name) }

// relation finds what has a name, in any case: what the application wrote without quotes is there in small letters.
func (c *connection) relation(name string) (r relation, err error) {
	_, err = c.get(`SELECT c.oid, c.relname::text, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
			WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' ELSE 'type' END
		FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND lower(c.relname::text) = lower($1) ORDER BY c.relname::text = $1 DESC LIMIT 1`,
		[]any{name}, &r.oid, &r.name, &r.kind)
	return r, err
}

// maxName is how long names are; the database cuts longer ones without a word.
const maxName = 63

// ownTable finds the table that a build has for a name.
func (c *connection) ownTable(name string, build int) (own relation, err error) {
	wanted := eventstore.TableOf(name, build)
	if len(wanted) > maxName {
		return own, fmt.Errorf("table %q: %s is longer than the %d characters that PostgreSQL keeps of a name: choose a shorter one", name, wanted, maxName)
	}
	own, err = c.relation(wanted)
	switch {
	case err != nil:
		return own, err
	case own.kind == "":
		return own, fmt.Errorf("table %q: Setup asked for its name and did not make %s: make it by the name that ctx.Table gives, or do not ask", name, wanted)
	case own.kind != "table":
		return own, fmt.Errorf("table %q: Setup made %s as a %s: only tables can have the names that ctx.Table gives, so make it a table, or fill one from the events", name, wanted, own.kind)
	}
	return own, nil
}

// checkTables reports tables of a new build that are not there, or that readers could not see by their plain names.
func (c *connection) checkTables(p *eventstore.Projection, s *eventstore.ProjectionStep) error {
	mine := map[string]bool{}
	if current := p.In(eventstore.BuildCurrent); current != nil && current.Number != s.Build {
		for _, name := range current.Tables {
			mine[strings.ToLower(name)] = true
		}
	}
	for _, name := range s.Setup.Names {
		if _, err := c.ownTable(name, s.Build); err != nil {
			return err
		}
		var other string
		switch found, err := c.get(`SELECT b.name FROM keyhold_projection_builds b CROSS JOIN LATERAL jsonb_array_elements_text(b.tables::jsonb) t (name)
			WHERE b.name <> $1 AND lower(t.name) = lower($2) LIMIT 1`, []any{s.Name, name}, &other); {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("table %q: projection %q has it: choose another name", name, other)
		}
		if mine[strings.ToLower(name)] {
			continue // it is the view that readers see now
		}
		switch there, err := c.relation(name); {
		case err != nil:
			return err
		case there.kind != "":
			return fmt.Errorf("table %q: there is a %s of that name, and readers are to see the projection's table by it: rename the %[2]s, or choose another name", name, there.kind)
		}
	}
	return nil
}

// briefly is for how long a change of tables waits for those who read them, while those who come after wait for it.
const briefly = `SET LOCAL lock_timeout = '1s'`

// show gives readers the tables of a build by their plain names, in place of those of another. A view whose columns stay, or get more at the end, is
// replaced: then what others may do with it stays, and so does what depends on it. Else it is made anew.
func (c *connection) show(hide, show *eventstore.ProjectionBuild) error {
	if _, err := c.exec(briefly); err != nil {
		return err
	}
	there := map[string]relation{} // by the name in small letters
	if hide != nil {
		for _, name := range hide.Tables {
			view, err := c.relation(name)
			if err != nil {
				return err
			}
			if view.kind != "" && view.kind != "view" {
				return fmt.Errorf("table %q: a %s has taken the place of the view by which readers see it", name, view.kind)
			}
			if view.kind != "" {
				there[strings.ToLower(name)] = view
			}
		}
	}
	if show != nil {
		for _, name := range show.Tables {
			own, err := c.ownTable(name, show.Number)
			if err != nil {
				return err
			}
			if own.name != eventstore.TableOf(name, show.Number) { // it was written without quotes, and so it will be by readers
				name = strings.ToLower(name)
			}
			view, replaces := there[strings.ToLower(name)]
			delete(there, strings.ToLower(name))
			if replaces {
				name = view.name
			}
			if err := c.showTable(name, own, replaces); err != nil {
				return err
			}
		}
	}
	for _, view := range there {
		if _, err := c.exec(`DROP VIEW ` + view.quoted()); err != nil {
			return err
		}
	}
	_, err := c.exec(`SET LOCAL lock_timeout = DEFAULT`)
	return err
}

func (c *connection) showTable(name string, own relation, replaces bool) error {
	create := `VIEW ` + quote(name) + ` AS SELECT * FROM ` + own.quoted()
	if !replaces {
		_, err := c.exec(`CREATE ` + create)
		return err
	}
	if _, err := c.exec(`SAVEPOINT keyhold_view`); err != nil {
		return err
	}
	_, err := c.exec(`CREATE OR REPLACE ` + create)
	if err == nil {
		_, err = c.exec(`RELEASE SAVEPOINT keyhold_view`)
		return err
	}
	if code(err) != otherColumns {
		return err
	}
	for _, statement := range []string{`ROLLBACK TO SAVEPOINT keyhold_view`, `DROP VIEW ` + quote(name), `CREATE ` + create} {
		if _, err := c.exec(statement); err != nil {
			return err
		}
	}
	return nil
}

// otherColumns is the SQLSTATE of a view that cannot be replaced, as its columns are others.
const otherColumns = "42P16"
