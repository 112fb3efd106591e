package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// shared is one transaction of several units of work, in two round trips. First it locks and compares what all of them expect, one statement for each kind of thing:
// who does not get a lock at once, or expected something else, is left out and commits alone. So nobody waits here for a lock, and nobody is
// refused for another one. As the lanes are locked, their next sequences are known; what is written, and COMMIT, go in one piece. An error of any of it
// rolls all back, and each commits alone.
type shared struct {
	*work   // of none of the members: the connection, the counts, and the script
	members []*member
	tails   map[int64]event.Sequence // of lanes that are locked
	events  columns
}

// lockPatience is for locks that are not of a row that is there: of an index entry that somebody else has just written, of the store while a process starts.
const lockPatience = `SET LOCAL lock_timeout = 100`

// commitTogether commits members, and answers them.
func (o *opened) commitTogether(ctx context.Context, members []*member) {
	ctx, stop := o.whileOneWaits(ctx, members)
	defer stop()
	s := &shared{work: &work{connection: o.connection(ctx)}}
	for _, m := range members {
		if err := m.gone(); err != nil {
			m.answer(trouble(err))
			continue
		}
		s.members = append(s.members, m)
	}
	if len(s.members) == 0 {
		return
	}
	all := s.members
	err := s.commit(o)
	if err == nil {
		o.gathering.signals.committed.Send(len(s.members))
	}
	settled := err == nil || s.sent && !isRefused(err)
	for _, m := range all {
		if settled && slices.Contains(s.members, m) {
			m.answer(err)
			continue
		}
		m.apart = true
		m.answer(nil)
	}
}

// whileOneWaits gives the context of a transaction of all members: that of none of them, and over when that of each is.
func (o *opened) whileOneWaits(ctx context.Context, members []*member) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	ctx, stop := within(ctx, o.ending())
	var left atomic.Int64
	left.Store(int64(len(members)))
	var detach []func() bool
	for _, m := range members {
		detach = append(detach, m.onGone(func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, d := range detach {
			d()
		}
		stop()
		cancel()
	}
}

// commit leaves out of s.members who is to commit alone. An error is that of all.
func (s *shared) commit(o *opened) error {
	conn, err := o.writers.Acquire(s.ctx)
	if err != nil {
		return err // each says it of itself
	}
	defer conn.Release()
	s.conn = conn.Conn()
	if err = s.lock(); err == nil && len(s.members) == 0 {
		err = errNobody
	}
	if err == nil {
		s.write()
		err = s.work.commit()
	}
	if err == nil {
		return nil
	}
	if !s.sent || isRefused(err) {
		rollback(s.conn)
		return err
	}
	return s.outcome(o, err)
}

// errNobody: nothing of what was expected is so.
var errNobody = errors.New("nobody is left in the transaction")

// outcome is that of the transaction, told by the first member that has events.
func (s *shared) outcome(o *opened, why error) error {
	for _, m := range s.members {
		if m.events > 0 {
			m.work.xid = s.xid
			_, err := o.outcome(s.ctx, m.work, why)
			return err
		}
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, why)
}

// lock begins the transaction, and leaves out who cannot take part.
func (s *shared) lock() error {
	held := make([]int, len(s.members)) // how much of what each expects is so
	want := make([]int, len(s.members))
	s.tails = make(map[int64]event.Sequence)
	s.script.add(beginWork, nil, nil)
	s.script.add(lockPatience, nil, nil)
	s.script.add(shareStore, nil, nil)
	f := new(fence)
	s.script.get(readFence, nil, func(bool) error {
		for i, m := range s.members {
			if listed := m.work.changes.Listed; listed != 0 {
				want[i]++
				if listed == f.revision {
					held[i]++
				}
			}
		}
		return s.check(*f) // each is told by its own transaction
	}, f.into()...)
	s.lockUnits(want, held)
	s.compareVersions(want, held)
	s.lockCheckpoints(want, held)
	s.lockLanes()
	s.script.get(drawing, nil, nil, &s.xid, new(string))
	if err := s.run(); err != nil {
		return err
	}
	var in []*member
	for i, m := range s.members {
		lanes := !slices.ContainsFunc(m.work.grown, func(g grown) bool { _, locked := s.tails[g.id]; return !locked })
		if lanes && held[i] == want[i] {
			in = append(in, m)
		}
	}
	s.members = in
	return nil
}

// found counts, for each member, the rows of a query, which name the member.
func (s *shared) found(query string, args []any, held []int) {
	s.script.each(query, args, func(r rows) error {
		var i int
		err := r.Scan(&i)
		if err == nil {
			held[i]++
		}
		return err
	})
}

func (s *shared) lockUnits(want, held []int) {
	var at []int32
	var names, keys []string
	var generations []int64
	for i, m := range s.members {
		if f := m.work.changes.Fence; f.Generation != 0 {
			want[i]++
			at, names, keys, generations = append(at, int32(i)), append(names, f.Unit.Name), append(keys, f.Unit.Key), append(generations, int64(f.Generation))
		}
	}
	if len(at) > 0 {
		s.found(`SELECT a.i FROM unnest($1::int4[], $2::text[], $3::text[], $4::bigint[]) AS a (i, name, key, generation)
			JOIN keyhold_units u ON u.name = a.name AND u.key = a.key AND u.generation = a.generation FOR NO KEY UPDATE OF u SKIP LOCKED`,
			[]any{at, names, keys, generations}, held)
	}
}

func (s *shared) compareVersions(want, held []int) {
	var at []int32
	var kinds, ids []string
	var expected []int64
	for i, m := range s.members {
		for j := range m.work.changes.Append {
			a := &m.work.changes.Append[j]
			want[i]++
			at, kinds, ids, expected = append(at, int32(i)), append(kinds, a.Stream.Kind), append(ids, a.Stream.ID), append(expected, int64(a.Expected))
		}
	}
	if len(at) > 0 {
		s.found(`SELECT a.i FROM unnest($1::int4[], $2::text[], $3::text[], $4::bigint[]) AS a (i, kind, id, expected) WHERE a.expected = coalesce(
			(SELECT l.stream_version FROM keyhold_log l WHERE l.stream_kind = a.kind AND l.stream_id = a.id AND l.stream_version > 0 ORDER BY l.stream_version DESC LIMIT 1), 0)`,
			[]any{at, kinds, ids, expected}, held)
	}
}

func (s *shared) lockCheckpoints(want, held []int) {
	var made, moved advances
	for i, m := range s.members {
		for j := range m.work.changes.Advance {
			want[i]++
			to := &moved
			if m.work.changes.Advance[j].From == 0 {
				to = &made
			}
			to.add(i, m.work, j)
		}
	}
	const asked = `SELECT a.i FROM unnest($1::int4[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::int2[]) AS a (i, name, lane, sequence, category, key, kind)
		JOIN keyhold_lanes n ON n.id = a.lane AND n.category = a.category AND n.key = a.key AND n.lane = a.kind `
	if len(made.at) > 0 {
		s.found(asked+`WHERE NOT EXISTS (SELECT 1 FROM keyhold_checkpoints c WHERE c.name = a.name AND c.lane = a.lane)`, made.expected(), held)
	}
	if len(moved.at) > 0 {
		s.found(asked+`JOIN keyhold_checkpoints c ON c.name = a.name AND c.lane = a.lane AND c.sequence = a.sequence FOR NO KEY UPDATE OF c SKIP LOCKED`, moved.expected(), held)
	}
}

// lockLanes locks the lanes that grow, and reads what was drawn last from each.
func (s *shared) lockLanes() {
	var asked laneList
	var ids []int64
	for _, m := range s.members {
		for i := range m.work.grown {
			if g := &m.work.grown[i]; !slices.Contains(ids, g.id) {
				ids = append(ids, g.id)
				asked.add(g.ref)
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	s.script.each(`SELECT n.id, n.last FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[], $5::bigint[]) AS a (i, category, key, lane, id)
		JOIN keyhold_lanes n ON n.id = a.id AND n.category = a.category AND n.key = a.key AND n.lane = a.lane FOR NO KEY UPDATE OF n SKIP LOCKED`,
		append(asked.args(), ids), func(r rows) error {
			var id int64
			var last event.Sequence
			err := r.Scan(&id, &last)
			s.tails[id] = last
			return err
		})
}

// write puts together all that is written, but for the counts and COMMIT. What it changes is locked, and is as it was found.
func (s *shared) write() {
	s.moveCheckpoints()
	s.writeStates()
	grown := make(map[int64]event.LaneRef)
	for _, m := range s.members {
		s.draw(m.work, grown)
	}
	if len(grown) == 0 {
		return
	}
	var lanes, tails []int64
	var parts []int16
	for id, ref := range grown {
		lanes, tails, parts = append(lanes, id), append(tails, int64(s.tails[id])), append(parts, int16(ref.Part()))
	}
	s.script.add(`UPDATE keyhold_lanes n SET last = a.last FROM unnest($1::bigint[], $2::bigint[]) AS a (id, last) WHERE n.id = a.id`, []any{lanes, tails}, nil)
	s.script.add(`INSERT INTO keyhold_log (position, lane, sequence, id, type, version, encoding, time, stream_kind, stream_id, stream_version,
			tenant, correlation, causation, trace_parent, trace_state, data)
		SELECT nextval('keyhold_position'), e.lane, e.sequence, e.id, e.type, e.version, e.encoding, e.time, nullif(e.kind, ''), nullif(e.stream, ''), nullif(e.stream_version, 0),
			nullif(e.tenant, ''), nullif(e.correlation, ''), nullif(e.causation, ''), nullif(e.parent, ''), nullif(e.state, ''), e.data
		FROM (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::bigint[],
			$11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bytea[]) WITH ORDINALITY
			AS u (lane, sequence, id, type, version, encoding, time, kind, stream, stream_version, tenant, correlation, causation, parent, state, data, at) ORDER BY at) AS e`,
		s.events.args(), nil)
	if s.relayed {
		s.script.add(`INSERT INTO keyhold_unpublished (part, lane, tail) SELECT * FROM unnest($1::int2[], $2::bigint[], $3::bigint[])`, []any{parts, lanes, tails}, nil)
	}
}

// draw gives the events of a unit of work their places.
func (s *shared) draw(w *work, lanes map[int64]event.LaneRef) {
	for i := range w.grown {
		g := &w.grown[i]
		first := s.tails[g.id] + 1
		g.last = first + event.Sequence(g.count) - 1
		s.tails[g.id], lanes[g.id] = g.last, g.ref
		w.done.Tails = append(w.done.Tails, event.Tail{Lane: g.ref, First: first, Last: g.last})
		s.counts.drawn(g.ref.Category, g.count, first == 1)
	}
	for i := range w.changes.Append {
		a := &w.changes.Append[i]
		for j := range a.Events {
			s.place(w, &a.Events[j], a.Stream, a.Expected+uint64(j)+1)
		}
		w.done.Versions = append(w.done.Versions, a.Expected+uint64(len(a.Events)))
	}
	for i := range w.changes.Publish {
		s.place(w, &w.changes.Publish[i], event.Stream{}, 0)
	}
}

func (s *shared) place(w *work, e *event.Envelope, stream event.Stream, version uint64) {
	g := w.laneOf(e)
	g.next++
	s.events.add(g.id, g.last-event.Sequence(g.count-g.next), e, stream, version)
}

func (s *shared) moveCheckpoints() {
	var made, moved advances
	for i, m := range s.members {
		for j := range m.work.changes.Advance {
			a := &m.work.changes.Advance[j]
			to := &moved
			if a.From == 0 {
				to = &made
			}
			to.add(i, m.work, j)
			s.counts.moved(m.work.changes.Fence.Unit.Name, a.Lane.Category, int64(a.To-a.From))
		}
	}
	if len(moved.at) > 0 {
		s.script.add(`UPDATE keyhold_checkpoints c SET sequence = a.sequence, event_id = a.event FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
			AS a (name, lane, sequence, event) WHERE c.name = a.name AND c.lane = a.lane`, moved.wanted(), nil)
	}
	if len(made.at) > 0 { // one that somebody else has made since is an error
		s.script.add(`INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])`, made.wanted(), nil)
	}
}

// writeStates writes replies and snapshots, which are few, by the statements that a unit of work alone has.
func (s *shared) writeStates() {
	for _, m := range s.members {
		w := &work{connection: s.connection, changes: m.work.changes}
		w.writeState()
		s.script.append(&w.script)
	}
}

// advances are checkpoints in columns.
type advances struct {
	at         []int32 // member
	names      []string
	lanes      []int64
	from, to   []int64
	events     []string
	categories []string
	keys       []string
	kinds      []int16
}

func (a *advances) add(member int, w *work, j int) {
	move := &w.changes.Advance[j]
	a.at, a.names, a.lanes = append(a.at, int32(member)), append(a.names, w.changes.Fence.Unit.Name), append(a.lanes, w.advanced[j])
	a.from, a.to, a.events = append(a.from, int64(move.From)), append(a.to, int64(move.To)), append(a.events, move.EventID)
	a.categories, a.keys, a.kinds = append(a.categories, move.Lane.Category), append(a.keys, move.Lane.Key), append(a.kinds, int16(move.Lane.Lane))
}

func (a *advances) expected() []any {
	return []any{a.at, a.names, a.lanes, a.from, a.categories, a.keys, a.kinds}
}

func (a *advances) wanted() []any { return []any{a.names, a.lanes, a.to, a.events} }

// columns are events in columns, as the statement that writes them takes them.
type columns struct {
	lanes, sequences          []int64
	ids, types                []string
	versions                  []int64
	encodings                 []string
	times                     []int64
	kinds, streams            []string
	streamVersions            []int64
	tenants                   []string
	correlations, causations  []string
	traceParents, traceStates []string
	data                      [][]byte
}

func (c *columns) add(lane int64, sequence event.Sequence, e *event.Envelope, s event.Stream, version uint64) {
	c.lanes, c.sequences = append(c.lanes, lane), append(c.sequences, int64(sequence))
	c.ids, c.types, c.versions, c.encodings = append(c.ids, e.ID), append(c.types, e.Type), append(c.versions, int64(e.Version)), append(c.encodings, string(e.Encoding))
	c.times, c.kinds, c.streams, c.streamVersions = append(c.times, millis(e.Time)), append(c.kinds, s.Kind), append(c.streams, s.ID), append(c.streamVersions, int64(version))
	c.tenants, c.correlations, c.causations = append(c.tenants, e.Tenant), append(c.correlations, e.CorrelationID), append(c.causations, e.CausationID)
	c.traceParents, c.traceStates, c.data = append(c.traceParents, e.Trace.Parent), append(c.traceStates, e.Trace.State), append(c.data, e.Data)
}

func (c *columns) args() []any {
	return []any{c.lanes, c.sequences, c.ids, c.types, c.versions, c.encodings, c.times, c.kinds, c.streams, c.streamVersions,
		c.tenants, c.correlations, c.causations, c.traceParents, c.traceStates, c.data}
}
