package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Recover implements [eventstore.Units].
func (s *Store) Recover(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error { return recoverUnits(ctx, q, asked, found) })
	})
	if err != nil {
		return nil, fmt.Errorf("recover units: %w", err)
	}
	return found, nil
}

// Raise implements [eventstore.Units]. It waits for the commits of these units that are under way; what it gives is read after that.
func (s *Store) Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	order := make([]int, len(asked)) // in which everybody locks units
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(asked[a].Unit.Name, asked[b].Unit.Name), cmp.Compare(asked[a].Unit.Key, asked[b].Unit.Key))
	})
	err := s.change(ctx, "raise", func(c *connection) error {
		var raise script
		for _, i := range order {
			a := &asked[i]
			raise.add(`INSERT INTO keyhold_units AS u (name, key, generation) SELECT $1, $2, $3::bigint WHERE $3::bigint > 0
				ON CONFLICT (name, key) DO UPDATE SET generation = excluded.generation WHERE excluded.generation > u.generation`,
				[]any{a.Unit.Name, a.Unit.Key, int64(a.Generation)}, func(tag pgconn.CommandTag) error {
					found[i].Raised = tag.RowsAffected() == 1
					return nil
				})
		}
		questions, stopped := aboutUnits(asked, found)
		for _, q := range questions { // in the same round trip: a unit that moves waits for it
			raise.each(q.query, q.args, q.row)
		}
		if err := raise.run(c.ctx, c.conn); err != nil {
			return err
		}
		return recoverStopped(c.ctx, c, found, *stopped)
	})
	if err != nil {
		return nil, fmt.Errorf("raise units: %w", err)
	}
	return found, nil
}

// recoverUnits fills in what is known of the units asked for.
func recoverUnits(ctx context.Context, q queryer, asked []eventstore.Ask, found []eventstore.Recovered) error {
	questions, stopped := aboutUnits(asked, found)
	for _, ask := range questions {
		if err := each(ctx, q, ask.query, ask.args, ask.row); err != nil {
			return err
		}
	}
	return recoverStopped(ctx, q, found, *stopped)
}

// question is a query, and who takes its rows.
type question struct {
	query string
	args  []any
	row   func(rows) error
}

// aboutUnits gives the questions that fill in what is known of units, of all of them at once, and the places of those in whose way something stands: these
// cost more ([recoverStopped]).
func aboutUnits(asked []eventstore.Ask, found []eventstore.Recovered) (questions []question, stopped *[]int) {
	stopped = new([]int)
	if len(asked) == 0 {
		return nil, stopped
	}
	var names, keys []string
	var at []int32
	var lanes laneList
	var places [][2]int // of the lanes asked
	for i := range asked {
		a := &asked[i]
		found[i] = eventstore.Recovered{Unit: a.Unit, Checkpoints: make([]event.Position, len(a.Lanes))} // it may be the second attempt
		names, keys, at = append(names, a.Unit.Name), append(keys, a.Unit.Key), append(at, int32(i))
		for j, ref := range a.Lanes {
			found[i].Checkpoints[j].Lane = ref
			lanes.add(ref)
			lanes.names = append(lanes.names, a.Unit.Name)
			places = append(places, [2]int{i, j})
		}
	}
	return []question{{
		`SELECT a.i, coalesce(u.generation, 0),
			EXISTS (SELECT 1 FROM keyhold_halts h WHERE h.name = a.name AND h.key = a.key)
			OR EXISTS (SELECT 1 FROM keyhold_pauses p WHERE p.name = a.name AND p.key IN (a.key, ''))
			OR EXISTS (SELECT 1 FROM keyhold_parked p WHERE p.name = a.name AND p.key = a.key)
			OR EXISTS (SELECT 1 FROM keyhold_dead d WHERE d.name = a.name AND d.key = a.key AND d.due > 0)
			OR EXISTS (SELECT 1 FROM keyhold_tried t WHERE t.name = a.name AND t.key = a.key)
		FROM unnest($1::int4[], $2::text[], $3::text[]) AS a (i, name, key)
		LEFT JOIN keyhold_units u ON u.name = a.name AND u.key = a.key`, []any{at, names, keys}, func(row rows) error {
			var i int
			var g event.Generation
			var something bool
			if err := row.Scan(&i, &g, &something); err != nil {
				return err
			}
			found[i].Generation = g
			if something {
				*stopped = append(*stopped, i)
			}
			return nil
		},
	}, {
		`SELECT a.i, c.sequence, c.event_id FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[], $5::text[]) AS a (i, category, key, lane, name)
		JOIN keyhold_lanes n ON n.category = a.category AND n.key = a.key AND n.lane = a.lane
		JOIN keyhold_checkpoints c ON c.name = a.name AND c.lane = n.id`, append(lanes.args(), lanes.names), func(row rows) error {
			var i int
			var p event.Position
			if err := row.Scan(&i, &p.Sequence, &p.EventID); err != nil {
				return err
			}
			to := &found[places[i][0]].Checkpoints[places[i][1]]
			to.Sequence, to.EventID = p.Sequence, p.EventID
			return nil
		},
	}}, stopped
}

// recoverStopped fills in what stands in the way of units.
func recoverStopped(ctx context.Context, q queryer, found []eventstore.Recovered, stopped []int) error {
	slices.Sort(stopped)
	for _, i := range stopped {
		if err := recoverStanding(ctx, q, &found[i]); err != nil {
			return err
		}
	}
	return nil
}

// laneList is lanes as columns.
type laneList struct {
	at         []int32
	categories []string
	keys       []string
	lanes      []int16
	names      []string // beside, where there are
}

func (l *laneList) add(ref event.LaneRef) {
	l.at = append(l.at, int32(len(l.at)))
	l.categories, l.keys, l.lanes = append(l.categories, ref.Category), append(l.keys, ref.Key), append(l.lanes, int16(ref.Lane))
}

// args are for unnest($1::int4[], $2::text[], $3::text[], $4::int2[]).
func (l *laneList) args() []any { return []any{l.at, l.categories, l.keys, l.lanes} }

// checkpoint gives what a name has applied of a lane.
func checkpoint(ctx context.Context, q queryer, name string, ref event.LaneRef) (event.Position, error) {
	p := event.Position{Lane: ref}
	_, err := get(ctx, q, `SELECT c.sequence, c.event_id FROM keyhold_lanes n JOIN keyhold_checkpoints c ON c.lane = n.id AND c.name = $4
		WHERE n.category = $1 AND n.key = $2 AND n.lane = $3`, laneArgs(ref, name), &p.Sequence, &p.EventID)
	return p, err
}
