package postgres

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// work is one unit of work as it is committed: two round trips where nothing is set aside and no projection moves. First goes everything up to
// the sequences that are drawn; the answers say whether all that was expected is so. Then go the counts and COMMIT.
//
// Locks are taken in one order by everybody: the store's, the unit's row, what the unit set aside, the row of a projection, checkpoints in lane order,
// lanes in lane order, counts. Each is taken in a statement of its own, and what is decided by is read in it or after it.
type work struct {
	*connection
	changes *eventstore.Changes
	mark    string // of the transaction that is open already; "" = none is
	script  script

	advanced []int64 // lanes of Changes.Advance
	grown    []grown
	done     eventstore.Committed
	xid      string // of the transaction, where it drew sequences
	sent     bool   // COMMIT was sent
}

// grown is a lane that grows.
type grown struct {
	ref   event.LaneRef
	id    int64
	count int
	last  event.Sequence // drawn
	next  int            // place, among those of the commit, of the event that comes next
}

func (w *work) apply() error {
	if err := w.lookUpLanes(); err != nil {
		return err
	}
	w.begin()
	w.fence()
	w.checkVersions()
	if w.setsAside() || w.changes.Projection != nil || len(w.changes.Take) > 0 {
		if err := w.aside(); err != nil {
			return err
		}
	}
	w.writeState()
	w.writeCheckpoints()
	w.draw()
	w.writeEvents()
	return w.run()
}

func (w *work) run() error { return w.script.run(w.ctx, w.conn) }

// lookUpLanes comes before the transaction, so that what it waits for does not hold anything.
func (w *work) lookUpLanes() error {
	var refs []event.LaneRef
	growth := w.changes.AppendGrowth(nil)
	for _, g := range growth {
		refs = append(refs, g.Lane)
	}
	for i := range w.changes.Advance {
		refs = append(refs, w.changes.Advance[i].Lane)
	}
	if len(refs) == 0 {
		return nil
	}
	ids, err := w.lanes.of(w.ctx, refs)
	if err != nil {
		return err
	}
	for i, g := range growth {
		w.grown = append(w.grown, grown{ref: g.Lane, id: ids[i], count: g.Count})
	}
	w.advanced = ids[len(growth):]
	return nil
}

func (w *work) begin() {
	if w.mark == "" {
		w.script.add(beginWork, nil, nil)
		return
	}
	var mark *string
	w.script.get(`SELECT current_setting('keyhold.unit', true)`, nil, func(bool) error {
		if mark == nil || *mark != w.mark {
			return fmt.Errorf("%w: the transaction of the unit of work was ended from inside, and another begun", ErrNotAllowed)
		}
		return nil
	}, &mark)
}

// lockUnit locks the row of a unit, and gives what is in it then.
const lockUnit = `SELECT generation FROM keyhold_units WHERE name = $1 AND key = $2 FOR NO KEY UPDATE`

func (w *work) fence() {
	w.script.add(shareStore, nil, nil)
	f := new(fence)
	w.script.get(readFence, nil, func(bool) error {
		if err := w.check(*f); err != nil {
			return err
		}
		if read := w.changes.Listed; read != 0 && read != f.revision {
			return &eventstore.ListMovedError{Read: read, Actual: f.revision}
		}
		return nil
	}, f.into()...)
	unit := w.changes.Fence
	if unit.Generation == 0 {
		return
	}
	var now event.Generation
	w.script.get(lockUnit, []any{unit.Unit.Name, unit.Unit.Key}, func(bool) error {
		if now != unit.Generation {
			return fmt.Errorf("unit %q is at generation %d, this is of %d: %w", unit.Unit, now, unit.Generation, eventstore.ErrStale)
		}
		return nil
	}, &now)
}

const streamVersion = `SELECT stream_version FROM keyhold_log WHERE stream_kind = $1 AND stream_id = $2 AND stream_version > 0 ORDER BY stream_version DESC LIMIT 1`

func (w *work) checkVersions() {
	for i := range w.changes.Append {
		a := &w.changes.Append[i]
		actual := new(uint64)
		w.script.get(streamVersion, []any{a.Stream.Kind, a.Stream.ID}, func(bool) error {
			if *actual != a.Expected {
				return &eventstore.VersionError{Stream: a.Stream, Expected: a.Expected, Actual: *actual}
			}
			return nil
		}, actual)
	}
}

// setsAside reports whether the changes are about anything that stands in the way of the unit.
func (w *work) setsAside() bool {
	c := w.changes
	return c.LiftHalt != nil || c.Halt != nil || len(c.Dead) > 0 || len(c.Park) > 0 || c.Settle != nil || c.Suspect != nil || c.Tried != nil || c.Untry
}

// aside makes what is rare part of the transaction, statement by statement.
func (w *work) aside() error {
	if err := w.run(); err != nil {
		return err
	}
	for i := range w.changes.Advance { // or it would be refused for its halt
		if err := w.checkCheckpoint(&w.changes.Advance[i]); err != nil {
			return err
		}
	}
	if err := w.take(); err != nil {
		return err
	}
	if err := w.checkAsides(w.changes); err != nil {
		return err
	}
	if err := w.writeAsides(w.changes); err != nil {
		return err
	}
	if err := w.checkStep(w.changes.Projection); err != nil {
		return err
	}
	return w.writeStep(w.changes.Projection)
}

func (w *work) checkCheckpoint(a *eventstore.Advance) error {
	now, err := checkpoint(w.ctx, w, w.changes.Fence.Unit.Name, a.Lane)
	if err == nil && now.Sequence != a.From {
		err = &eventstore.CheckpointError{Name: w.changes.Fence.Unit.Name, Lane: a.Lane, From: a.From, Actual: now.Sequence}
	}
	return err
}

func (w *work) writeState() {
	if r := w.changes.Reply; r != nil {
		w.script.add(`INSERT INTO keyhold_replies (stream_kind, stream_id, command_id, command, type, version, encoding, rejected, time, data)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
			[]any{r.Stream.Kind, r.Stream.ID, r.CommandID, r.Command, r.Type, r.Version, string(r.Encoding), words(r.Rejected), millis(r.Time), r.Data}, nil)
	}
	if s := w.changes.Snapshot; s != nil {
		w.script.add(`INSERT INTO keyhold_snapshots AS s (stream_kind, stream_id, version, state_version, encoding, data)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (stream_kind, stream_id) DO UPDATE SET
			version = excluded.version, state_version = excluded.state_version, encoding = excluded.encoding, data = excluded.data
			WHERE excluded.version >= s.version`,
			[]any{s.Stream.Kind, s.Stream.ID, s.Version, s.StateVersion, string(s.Encoding), s.Data}, nil)
	}
}

// A checkpoint is compared and set in one statement: what it is compared with is the newest version of the row that is set.
const (
	ofLane         = `EXISTS (SELECT 1 FROM keyhold_lanes n WHERE n.id = $2 AND n.category = $6 AND n.key = $7 AND n.lane = $8)`
	moveCheckpoint = `UPDATE keyhold_checkpoints SET sequence = $4, event_id = $5 WHERE name = $1 AND lane = $2 AND sequence = $3 AND ` + ofLane
	makeCheckpoint = `INSERT INTO keyhold_checkpoints AS c (name, lane, sequence, event_id) SELECT $1, $2, $4, $5 WHERE ` + ofLane + `
		ON CONFLICT (name, lane) DO UPDATE SET sequence = excluded.sequence, event_id = excluded.event_id WHERE c.sequence = $3::bigint`
)

// writeCheckpoints moves them in lane order.
func (w *work) writeCheckpoints() {
	name := w.changes.Fence.Unit.Name
	order := make([]int, len(w.changes.Advance))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return w.changes.Advance[a].Lane.Compare(w.changes.Advance[b].Lane) })
	for _, i := range order {
		a := &w.changes.Advance[i]
		query := moveCheckpoint
		if a.From == 0 {
			query = makeCheckpoint
		}
		w.script.add(query, append([]any{name, w.advanced[i], int64(a.From), int64(a.To), a.EventID}, laneArgs(a.Lane)...), func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				return &movedError{a}
			}
			return nil
		})
		w.counts.moved(name, a.Lane.Category, int64(a.To-a.From))
	}
}

// movedError: a checkpoint was not where it was expected; where it is says explain.
type movedError struct{ advance *eventstore.Advance }

func (e *movedError) Error() string { return "checkpoint moved" }

// draw takes the sequences of all events from the counters of their lanes, in lane order.
func (w *work) draw() {
	if len(w.grown) == 0 {
		return
	}
	w.done.Tails = make([]event.Tail, len(w.grown))
	for i := range w.grown {
		g := &w.grown[i]
		w.script.get(`UPDATE keyhold_lanes SET last = last + $2 WHERE id = $1 AND category = $3 AND key = $4 AND lane = $5 RETURNING last`,
			append([]any{g.id, int64(g.count)}, laneArgs(g.ref)...), func(found bool) error {
				if !found {
					return w.lanes.forget(g.ref)
				}
				first := g.last - event.Sequence(g.count) + 1
				w.done.Tails[i] = event.Tail{Lane: g.ref, First: first, Last: g.last}
				w.counts.drawn(g.ref.Category, g.count, first == 1)
				return nil
			}, &g.last)
	}
	w.script.get(drawing, nil, nil, &w.xid, new(string))
}

// drawing has a transaction say, before it draws positions, below which all of its own cannot be.
const drawing = `SELECT pg_current_xact_id()::text, pg_advisory_xact_lock_shared('keyhold_log'::regclass::oid::int4, last_value::bit(32)::int4)::text
	FROM keyhold_position`

const insertEvent = `INSERT INTO keyhold_log (position, lane, sequence, id, type, version, encoding, time,
		stream_kind, stream_id, stream_version, tenant, correlation, causation, trace_parent, trace_state, data)
	VALUES (nextval('keyhold_position'), $1, (SELECT last FROM keyhold_lanes WHERE id = $1) - $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

func (w *work) writeEvents() {
	if len(w.changes.Append) > 0 {
		w.done.Versions = make([]uint64, len(w.changes.Append))
	}
	for i := range w.changes.Append {
		a := &w.changes.Append[i]
		for j := range a.Events {
			w.insert(&a.Events[j], a.Stream, a.Expected+uint64(j)+1)
		}
		w.done.Versions[i] = a.Expected + uint64(len(a.Events))
	}
	for i := range w.changes.Publish {
		w.insert(&w.changes.Publish[i], event.Stream{}, 0)
	}
	if w.relayed {
		for i := range w.grown {
			g := &w.grown[i]
			w.script.add(`INSERT INTO keyhold_unpublished (part, lane, tail) SELECT $1, $2, last FROM keyhold_lanes WHERE id = $2`,
				[]any{int16(g.ref.Part()), g.id}, nil)
		}
	}
}

// laneOf gives the lane in which an event goes.
func (w *work) laneOf(e *event.Envelope) *grown {
	at := 0
	if len(w.grown) > 1 {
		at, _ = slices.BinarySearchFunc(w.grown, e.Ref(), func(g grown, ref event.LaneRef) int { return g.ref.Compare(ref) })
	}
	return &w.grown[at]
}

// insert writes one event at the next place of its lane, which is told from the end: the lane's row has the last sequence of this commit.
func (w *work) insert(e *event.Envelope, s event.Stream, version uint64) {
	g := w.laneOf(e)
	g.next++
	var streamVersion any
	if version > 0 {
		streamVersion = int64(version)
	}
	w.script.add(insertEvent, []any{g.id, int64(g.count - g.next), e.ID, e.Type, e.Version, string(e.Encoding), millis(e.Time),
		null(s.Kind), null(s.ID), streamVersion, null(e.Tenant), null(e.CorrelationID), null(e.CausationID), null(e.Trace.Parent), null(e.Trace.State), e.Data}, nil)
}

// explain says what a refusal of the database means, once the transaction is rolled back.
func (w *work) explain(err error) error {
	if moved, ok := errors.AsType[*movedError](err); ok {
		a := moved.advance
		refused := &eventstore.CheckpointError{Name: w.changes.Fence.Unit.Name, Lane: a.Lane, From: a.From}
		again := w.lanes.forget(a.Lane)
		now, err := checkpoint(w.ctx, w, refused.Name, a.Lane)
		if err == nil && now.Sequence == a.From {
			return again
		}
		if err == nil {
			refused.Actual = now.Sequence
		}
		return refused
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == uniqueViolated && pg.ConstraintName == "keyhold_log_stream" {
		for i := range w.changes.Append { // somebody was first
			a := &w.changes.Append[i]
			var actual uint64
			if _, failed := w.get(streamVersion, []any{a.Stream.Kind, a.Stream.ID}, &actual); failed == nil && actual != a.Expected {
				return &eventstore.VersionError{Stream: a.Stream, Expected: a.Expected, Actual: actual}
			}
		}
	}
	return err
}
