package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// laneIDs knows the numbers of lanes, and makes those that are not there yet in a transaction of its own, on a connection that nobody holds for long. On one server they
// never change. But a server that crashed, or a standby that took over, may have lost a lane that was just made, and may give its number to another one: whoever
// writes by a number has the statement compare the name as well, and forgets the number where that is another's.
type laneIDs struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	known map[event.LaneRef]int64
}

// maxLanes bounds how many lanes are remembered, at about 200 bytes each.
const maxLanes = 50_000

func newLaneIDs(pool *pgxpool.Pool) *laneIDs {
	return &laneIDs{pool: pool, known: make(map[event.LaneRef]int64)}
}

// of gives the numbers of lanes, in the order asked.
func (l *laneIDs) of(ctx context.Context, refs []event.LaneRef) ([]int64, error) {
	ids := make([]int64, len(refs))
	if l.recall(refs, ids) {
		return ids, nil
	}
	missing, err := l.lookUp(ctx, refs, ids)
	if err == nil && len(missing) > 0 {
		if err = l.learn(ctx, missing); err == nil {
			missing, err = l.lookUp(ctx, refs, ids)
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("look up lanes: %w", err)
	case len(missing) > 0:
		return nil, fmt.Errorf("lane %s was made, and is not there", missing[0])
	}
	l.keep(refs, ids)
	return ids, nil
}

// lookUp fills in the numbers of lanes that are there, and gives the others.
func (l *laneIDs) lookUp(ctx context.Context, refs []event.LaneRef, ids []int64) (missing []event.LaneRef, err error) {
	var asked laneList
	for _, ref := range refs {
		asked.add(ref)
	}
	err = each(ctx, pooled{l.pool}, `SELECT a.i, n.id FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[]) AS a (i, category, key, lane)
		JOIN keyhold_lanes n ON n.category = a.category AND n.key = a.key AND n.lane = a.lane`, asked.args(), func(row rows) error {
		var i int
		var id int64
		err := row.Scan(&i, &id)
		ids[i] = id
		return err
	})
	for i, id := range ids {
		if id == 0 {
			missing = append(missing, refs[i])
		}
	}
	return missing, err
}

func (l *laneIDs) recall(refs []event.LaneRef, ids []int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, ref := range refs {
		id, found := l.known[ref]
		if !found {
			return false
		}
		ids[i] = id
	}
	return true
}

func (l *laneIDs) keep(refs []event.LaneRef, ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known)+len(refs) > maxLanes {
		clear(l.known)
	}
	for i, ref := range refs {
		l.known[ref] = ids[i]
	}
}

// forget has the numbers of lanes looked up anew, and gives the error of whoever went by them: it is to try again.
func (l *laneIDs) forget(refs ...event.LaneRef) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range refs {
		delete(l.known, ref)
	}
	return fmt.Errorf("%w: lane %s has another number than before: the server crashed or failed over, and has lost commits", eventstore.ErrTrouble, refs[0])
}

// compare has a transaction go on only if lanes have these numbers on its server.
func (l *laneIDs) compare(s *script, refs []event.LaneRef, ids []int64) {
	if len(refs) == 0 {
		return
	}
	var asked laneList
	for _, ref := range refs {
		asked.add(ref)
	}
	same := new(int)
	s.get(`SELECT count(*) FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[], $5::bigint[]) AS a (i, category, key, lane, id)
		JOIN keyhold_lanes n ON n.id = a.id AND n.category = a.category AND n.key = a.key AND n.lane = a.lane`, append(asked.args(), ids), func(bool) error {
		if *same != len(refs) {
			return l.forget(refs...)
		}
		return nil
	}, same)
}

// learn makes lanes that are not there. Nobody needs them to be on the disk before what refers to them is, and that comes later in the log.
func (l *laneIDs) learn(ctx context.Context, refs []event.LaneRef) error {
	sorted := slices.Clone(refs)
	slices.SortFunc(sorted, event.LaneRef.Compare)
	batch := new(pgx.Batch)
	batch.Queue(`SET LOCAL synchronous_commit = off`)
	for _, ref := range slices.Compact(sorted) {
		batch.Queue(`INSERT INTO keyhold_lanes (category, key, lane, part)
			SELECT $1, $2, $3, $4 WHERE NOT EXISTS (SELECT 1 FROM keyhold_lanes WHERE category = $1 AND key = $2 AND lane = $3)
			ON CONFLICT DO NOTHING`, ref.Category, ref.Key, int16(ref.Lane), int16(ref.Part()))
	}
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
	if err != nil {
		return fmt.Errorf("make lanes: %w", err)
	}
	return nil
}
