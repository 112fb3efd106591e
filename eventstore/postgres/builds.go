package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// lockDeclared keeps others from declaring projections, and from dropping what is left of them, until the transaction ends.
const lockDeclared = `SELECT pg_advisory_xact_lock('keyhold_projections'::regclass::oid::int4, 0)`

// DeclareProjections implements [eventstore.ProjectionBuilds].
func (s *Store) DeclareProjections(ctx context.Context, declared []eventstore.ProjectionDeclared) (all []eventstore.Projection, err error) {
	err = s.change(ctx, "declare projections", func(c *connection) error {
		all = nil
		if _, err := c.exec(lockDeclared); err != nil {
			return err
		}
		if _, err := c.exec(`SELECT FROM keyhold_projections ORDER BY name FOR UPDATE`); err != nil {
			return err
		}
		if _, err := c.exec(`UPDATE keyhold_projections SET declared = FALSE WHERE declared`); err != nil {
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
	taken, err := c.get(`SELECT kind FROM keyhold_handlers WHERE name = $1`, []any{d.Name}, &kind)
	if err == nil && taken {
		err = eventstore.ProjectionNameTaken(d.Name, kind)
	}
	if err != nil {
		return eventstore.Projection{}, err
	}
	p, err := loadProjection(c.ctx, c, d.Name)
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		return p, err
	}
	if p.Left, err = loadLeft(c.ctx, c, d.Name); err != nil {
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
	p.Left, err = loadLeft(c.ctx, c, d.Name)
	return p, err
}

// DropBuild implements [eventstore.ProjectionBuilds].
func (s *Store) DropBuild(ctx context.Context, name string, number int) error {
	var left error
	err := s.change(ctx, "drop build", func(c *connection) error {
		left = nil
		p, err := c.lockedProjection(name)
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

// projectionStep is what a step of a build makes of its projection.
type projectionStep struct {
	projection eventstore.Projection
	turn       eventstore.ProjectionTurn
}

// checkStep locks the projection of a step, and finds out what becomes of it.
func (c *connection) checkStep(s *eventstore.ProjectionStep) error {
	if s == nil {
		return nil
	}
	p, err := c.lockedProjection(s.Name)
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		return err
	}
	turn, err := p.Step(s, func() (bool, error) {
		after, err := parsePosition(s.To)
		if err != nil {
			return false, err
		}
		rest, err := placed(c.ctx, c, c.storeID, after, p.Categories, 1)
		return len(rest) == 0, err
	})
	c.step = projectionStep{projection: p, turn: turn}
	return err
}

// writeStep makes a step that was checked part of the transaction.
func (c *connection) writeStep(s *eventstore.ProjectionStep) error {
	if s == nil {
		return nil
	}
	p, turn := &c.step.projection, &c.step.turn
	if s.Setup != nil {
		if err := c.checkTables(p, s); err != nil {
			return err
		}
	}
	if _, err := c.turn(p, turn); err != nil {
		return err
	}
	if turn.Hide != nil {
		return c.saveProjection(p)
	}
	return c.saveBuild(p.Name, p.Build(s.Build))
}

// turn has readers see other tables, and drops those of builds that are gone; left tells which could not be dropped.
func (c *connection) turn(p *eventstore.Projection, t *eventstore.ProjectionTurn) (left, err error) {
	if t.Hide != nil || t.Show != nil {
		if err := c.show(t.Hide, t.Show); err != nil {
			return nil, shown(err)
		}
	}
	for i := len(t.Gone) - 1; i >= 0; i-- {
		gone := &t.Gone[i]
		if _, err := c.exec(`DELETE FROM keyhold_projection_builds WHERE name = $1 AND number = $2`, p.Name, gone.Number); err != nil {
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

// ReadPlaced implements [eventstore.ProjectionBuilds]. Inside a unit of work it first has everybody wait who would add something, until the unit of work ends: if that is not to be had in a
// second, which becomes two, four and so on at the next attempts, it is lost ([eventstore.ErrTrouble]).
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
			if err := s.stretch.try(ctx, r, db); err != nil {
				return err
			}
			q = inside{db}
		}
		found, err = placed(ctx, q, r.storeID, from, categories, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read after position %q: %w", after, err)
	}
	return found, nil
}

// stretch is what is known of those that would have the store alone inside a unit of work, of whom each attempt is in another one.
type stretch struct {
	mu sync.Mutex
	w  waiter
}

func (s *stretch) try(ctx context.Context, q queryer, db eventstore.SQL) error {
	s.mu.Lock()
	w := s.w
	s.mu.Unlock()
	err := w.try(ctx, q, func(patience time.Duration) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d; %s; SET LOCAL lock_timeout = DEFAULT`, patience.Milliseconds(), aloneStore))
		return notAlone(err)
	})
	s.mu.Lock()
	s.w = w
	s.mu.Unlock()
	return err
}

// farOff is from how many places on an end is far enough away to move there without an event.
const farOff = 4096

// Barren implements [eventstore.ProjectionBuilds].
func (s *Store) Barren(ctx context.Context, after eventstore.Position, categories []string) (eventstore.Position, error) {
	from, err := parsePosition(after)
	if err != nil {
		return after, err
	}
	to := after
	err = s.read(ctx, func(r *readers) error {
		end, err := horizon(ctx, r)
		if err != nil || end-from <= farOff {
			return err
		}
		found, err := placedUpTo(ctx, r, r.storeID, from, end, categories, 1)
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

// placed reads as far as nothing is still to appear.
func placed(ctx context.Context, q queryer, storeID string, after int64, categories []string, limit int) ([]eventstore.Placed, error) {
	end, err := horizon(ctx, q)
	if err != nil {
		return nil, err
	}
	return placedUpTo(ctx, q, storeID, after, end, categories, limit)
}

// placedUpTo reads run by run, as ReadAll does, so that a search for what is rare never reads more than that at once.
func placedUpTo(ctx context.Context, q queryer, storeID string, after, end int64, categories []string, limit int) (found []eventstore.Placed, err error) {
	for at := after; at < end && len(found) < limit; at += scanRun {
		args := arguments{at, min(at+scanRun, end), limit - len(found)}
		err := each(ctx, q, `SELECT `+envelopeColumns+`, l.position FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane
			WHERE l.position > $1 AND l.position <= $2 AND NOT l.void AND `+args.wanted(categories)+` ORDER BY l.position LIMIT $3`, args, func(r rows) error {
			var at int64
			e, _, err := scanEnvelope(r, storeID, &at)
			found = append(found, eventstore.Placed{Envelope: e, Position: position(at)})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// wanted is the condition on categories: one of those named, or none of commands.
func (a *arguments) wanted(categories []string) string {
	if len(categories) == 0 {
		return `n.category NOT IN (SELECT name FROM keyhold_categories WHERE commands)`
	}
	return `n.category = ANY(` + a.add(categories) + `)`
}

// inside runs queries inside a unit of work.
type inside struct{ db eventstore.SQL }

func (d inside) query(ctx context.Context, query string, args ...any) (rows, error) {
	found, err := d.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return insideRows{found}, nil
}

type insideRows struct{ *sql.Rows }

// Close implements rows. What it would say, Err has said.
func (r insideRows) Close() { _ = r.Rows.Close() }

// ProjectionLag implements [eventstore.Projections].
func (s operations) ProjectionLag(ctx context.Context, after eventstore.Position, categories []string) (lag eventstore.ProjectionLag, err error) {
	lag.End = after
	from, err := parsePosition(after)
	if err != nil {
		return lag, err
	}
	err = s.read(ctx, func(r *readers) error {
		end, err := horizon(ctx, r)
		if err != nil {
			return err
		}
		for at := from; at < end; at += scanRun {
			args := arguments{at, min(at+scanRun, end)}
			var n, last int64
			if _, err := get(ctx, r, `SELECT count(*), coalesce(max(l.position), 0) FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane
				WHERE l.position > $1 AND l.position <= $2 AND NOT l.void AND `+args.wanted(categories), args, &n, &last); err != nil {
				return err
			}
			if n > 0 && lag.Behind == 0 {
				found, err := placedUpTo(ctx, r, r.storeID, at, end, categories, 1)
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
		ELSE p.categories::jsonb ? n.category END), 9223372036854775807)`
