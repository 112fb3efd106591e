package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// DeclareProjections implements [eventstore.ProjectionBuilds].
func (s *Store) DeclareProjections(ctx context.Context, declared []eventstore.ProjectionDeclared) (all []eventstore.Projection, err error) {
	err = s.change(ctx, "declare projections", func(c *connection) error {
		all = nil
		if _, err := c.exec(`UPDATE keyhold_projections SET declared = 0`); err != nil {
			return err
		}
		for _, d := range declared {
			p, err := c.declare(d)
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		return nil
	})
	return all, err
}

func (c *connection) declare(d eventstore.ProjectionDeclared) (eventstore.Projection, error) {
	var kind eventstore.HandlerKind
	taken, err := c.get(`SELECT kind FROM keyhold_handlers WHERE name = ?`, []any{d.Name}, &kind)
	if err == nil && taken {
		err = eventstore.ProjectionNameTaken(d.Name, kind)
	}
	if err != nil {
		return eventstore.Projection{}, err
	}
	p, err := loadProjection(noContext, c, d.Name)
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		return p, err
	}
	if p.Left, err = loadLeft(noContext, c, d.Name); err != nil {
		return p, err
	}
	p.StartAfter(p.Left)
	turn, err := p.Declare(d, actTime(time.Time{}))
	if err != nil {
		return p, err
	}
	if _, err := c.turn(&p, &turn); err != nil { // what is left is said by DropLeft
		return p, err
	}
	if err := c.saveProjection(&p); err != nil {
		return p, err
	}
	p.Left, err = loadLeft(noContext, c, d.Name)
	return p, err
}

// DropBuild implements [eventstore.ProjectionBuilds].
func (s *Store) DropBuild(ctx context.Context, name string, number int) error {
	var left error
	err := s.change(ctx, "drop build", func(c *connection) error {
		p, err := loadProjection(noContext, c, name)
		if errors.Is(err, eventstore.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		b := p.Build(number)
		if b == nil || b.State != eventstore.BuildOld {
			return nil
		}
		left, err = c.turn(&p, &eventstore.ProjectionTurn{Gone: []eventstore.ProjectionBuild{*b}})
		return err
	})
	if err = errors.Join(err, left); err != nil {
		return fmt.Errorf("drop build %d of projection %q: %w", number, name, err)
	}
	return nil
}

// checkStep gives the projection as it is after a step, and what that means for its tables.
func (c *connection) checkStep(s *eventstore.ProjectionStep) (p eventstore.Projection, turn eventstore.ProjectionTurn, err error) {
	if s == nil {
		return p, turn, nil
	}
	p, err = loadProjection(noContext, c, s.Name)
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		return p, turn, err
	}
	turn, err = p.Step(s, func() (bool, error) {
		after, err := parsePosition(s.To)
		if err != nil {
			return false, err
		}
		rest, err := placed(noContext, c, c.storeID, after, p.Categories, 1)
		return len(rest) == 0, err
	})
	return p, turn, err
}

// writeStep makes a step that was checked part of the transaction.
func (c *connection) writeStep(s *eventstore.ProjectionStep) error {
	if s == nil {
		return nil
	}
	p, turn, err := c.checkStep(s)
	if err != nil {
		return err
	}
	if s.Setup != nil {
		if err := c.checkTables(&p, s); err != nil {
			return err
		}
	}
	if _, err := c.turn(&p, &turn); err != nil {
		return err
	}
	if turn.Hide != nil {
		return c.saveProjection(&p)
	}
	return c.saveBuild(p.Name, p.Build(s.Build))
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
		own := eventstore.TableOf(name, s.Build)
		var kind, other string
		switch found, err := c.get(`SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')`, []any{own}, &kind); {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("table %q: Setup asked for its name and did not make %s: make it by the name that ctx.Table gives, or do not ask", name, own)
		case kind != "table":
			return fmt.Errorf("table %q: Setup made %s as a %s: only tables can have the names that ctx.Table gives, so make it a table, or fill one from the events", name, own, kind)
		}
		switch found, err := c.get(`SELECT b.name FROM keyhold_projection_builds b JOIN json_each(b.tables) t WHERE b.name <> ? AND t.value = ? COLLATE NOCASE LIMIT 1`,
			[]any{s.Name, name}, &other); {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("table %q: projection %q has it: choose another name", name, other)
		}
		if mine[strings.ToLower(name)] {
			continue // it is the view that readers see now
		}
		switch found, err := c.get(`SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE`, []any{name}, &kind); {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("table %q: there is a %s of that name, and readers are to see the projection's table by it: rename the %[2]s, or choose another name", name, kind)
		}
	}
	return nil
}

// turn has readers see other tables, and drops those of builds that are gone; left tells which could not be dropped.
func (c *connection) turn(p *eventstore.Projection, t *eventstore.ProjectionTurn) (left, err error) {
	if t.Hide != nil {
		if err := c.eachTable(`DROP VIEW IF EXISTS %[1]s`, t.Hide); err != nil {
			return nil, shown(err)
		}
	}
	if t.Show != nil {
		if err := c.eachTable(`CREATE VIEW %[1]s AS SELECT * FROM %[2]s`, t.Show); err != nil {
			return nil, shown(err)
		}
	}
	for i := len(t.Gone) - 1; i >= 0; i-- { // a table of a later build may refer to one of an earlier
		gone := &t.Gone[i]
		if _, err := c.exec(`DELETE FROM keyhold_projection_builds WHERE name = ? AND number = ?`, p.Name, gone.Number); err != nil {
			return nil, err
		}
		why, err := c.drop(p.Name, gone.Number, gone.Tables)
		if err != nil {
			return nil, err
		}
		left = errors.Join(left, why)
	}
	return left, nil
}

// shown is an error of what readers are to see. The store's own trouble is not made one.
func shown(err error) error {
	if errors.Is(trouble(err), eventstore.ErrTrouble) {
		return err
	}
	return fmt.Errorf("%w: %w", eventstore.ErrNotShown, err)
}

// eachTable runs a statement for each table of a build: %[1]s is its plain name, %[2]s its own. Names are letters, digits and _ alone.
func (c *connection) eachTable(statement string, b *eventstore.ProjectionBuild) error {
	for _, name := range b.Tables {
		query := fmt.Sprintf(statement, `"`+name+`"`, `"`+eventstore.TableOf(name, b.Number)+`"`)
		if _, err := c.conn.ExecContext(noContext, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// ReadPlaced implements [eventstore.ProjectionBuilds].
func (s *Store) ReadPlaced(ctx context.Context, db eventstore.SQL, after eventstore.Position, categories []string, limit int) (found []eventstore.Placed, err error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	from, err := parsePosition(after)
	if err != nil {
		return nil, err
	}
	err = s.read(ctx, func(r *readers) error {
		var q queryer = r
		if db != nil {
			q = within{db}
		}
		found, err = placed(ctx, q, r.storeID, from, categories, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read after position %q: %w", after, err)
	}
	return found, nil
}

// Barren implements [eventstore.ProjectionBuilds].
func (s *Store) Barren(ctx context.Context, after eventstore.Position, categories []string) (eventstore.Position, error) {
	from, err := parsePosition(after)
	if err != nil {
		return after, err
	}
	to := after
	err = s.read(ctx, func(r *readers) error {
		var end int64 // before the search: what comes meanwhile may be what is searched for
		if _, err := get(ctx, r, `SELECT coalesce(max(position), 0) FROM keyhold_log`, nil, &end); err != nil || end-from <= scanRun {
			return err
		}
		found, err := placed(ctx, r, r.storeID, from, categories, 1)
		if err == nil && len(found) == 0 {
			to = position(end)
		}
		return err
	})
	if err != nil {
		return after, fmt.Errorf("look for events after position %q: %w", after, err)
	}
	return to, nil
}

// placed reads run by run, as ReadAll does.
func placed(ctx context.Context, q queryer, storeID string, after int64, categories []string, limit int) (found []eventstore.Placed, err error) {
	var end int64
	if _, err := get(ctx, q, `SELECT coalesce(max(position), 0) FROM keyhold_log`, nil, &end); err != nil {
		return nil, err
	}
	wanted, args, err := wantedCategories(categories)
	if err != nil {
		return nil, err
	}
	for at := after; at < end && len(found) < limit; at += scanRun {
		err := each(ctx, q, `SELECT `+envelopeColumns+`, l.position FROM keyhold_log l CROSS JOIN keyhold_lanes n ON n.id = l.lane
			WHERE l.position > ?1 AND l.position <= ?2 AND l.void = 0 AND n.category `+wanted+` ORDER BY l.position LIMIT ?3`,
			append([]any{at, at + scanRun, limit - len(found)}, args...), func(rows *sql.Rows) error {
				var at int64
				e, _, err := scanEnvelope(rows, storeID, &at)
				found = append(found, eventstore.Placed{Envelope: e, Position: position(at)})
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// wantedCategories is what a category must be: one of those named, or none of commands. The parameter is the fourth.
func wantedCategories(categories []string) (condition string, args []any, err error) {
	if len(categories) == 0 {
		return `NOT IN (SELECT name FROM keyhold_categories WHERE commands)`, nil, nil
	}
	names, err := json.Marshal(categories)
	return `IN (SELECT value FROM json_each(?4))`, []any{string(names)}, err
}

// within runs queries inside a unit of work.
type within struct{ db eventstore.SQL }

func (d within) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.db.QueryContext(ctx, query, args...)
}

// ProjectionLag implements [eventstore.Projections].
func (s operations) ProjectionLag(ctx context.Context, after eventstore.Position, categories []string) (lag eventstore.ProjectionLag, err error) {
	lag.End = after
	from, err := parsePosition(after)
	if err != nil {
		return lag, err
	}
	wanted, args, err := wantedCategories(categories)
	if err != nil {
		return lag, err
	}
	err = s.read(ctx, func(r *readers) error {
		var end int64
		if _, err := get(ctx, r, `SELECT coalesce(max(position), 0) FROM keyhold_log`, nil, &end); err != nil {
			return err
		}
		for at := from; at < end; at += scanRun {
			var n, last int64
			if _, err := get(ctx, r, `SELECT count(*), coalesce(max(l.position), 0) FROM keyhold_log l CROSS JOIN keyhold_lanes n ON n.id = l.lane
				WHERE ?3 AND l.position > ?1 AND l.position <= ?2 AND l.void = 0 AND n.category `+wanted,
				append([]any{at, min(at+scanRun, end), 1}, args...), &n, &last); err != nil {
				return err
			}
			if n > 0 && lag.Behind == 0 {
				found, err := placed(ctx, r, r.storeID, at, categories, 1)
				if err != nil {
					return err
				}
				if len(found) == 1 {
					lag.First = found[0].Time
				}
			}
			if n > 0 {
				lag.Behind, lag.End = lag.Behind+uint64(n), position(last)
			}
		}
		return nil
	})
	if err != nil {
		return eventstore.ProjectionLag{}, fmt.Errorf("count events after position %q: %w", after, err)
	}
	return lag, nil
}

// projectionFloor is the lowest position of all builds that are given the events of category n.category: what is above it has still to be
// given to one. Those of other versions than the program's are among them: a program that is put back goes on with its own.
const projectionFloor = `coalesce((SELECT min(b.position) FROM keyhold_projections p JOIN keyhold_projection_builds b ON b.name = p.name
	WHERE b.state <> 'old' AND CASE p.categories
		WHEN '[]' THEN NOT EXISTS (SELECT 1 FROM keyhold_categories c WHERE c.name = n.category AND c.commands)
		ELSE EXISTS (SELECT 1 FROM json_each(p.categories) j WHERE j.value = n.category) END), 9223372036854775807)`
