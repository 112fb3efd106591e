package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Here two sessions commit, step by step: one is held between the sequences it drew and its COMMIT, the other begins.

// heldUp makes commits to the category "held" wait, when all is written, until release.
func (d *desk) heldUp() (release func()) {
	d.Helper()
	_, err := d.raw.Exec(d.Context(), `CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.category = 'held' THEN PERFORM pg_advisory_xact_lock_shared('keyhold_counts'::regclass::oid::int4, 7); END IF; RETURN NEW; END $$;
		CREATE TRIGGER held BEFORE INSERT ON keyhold_counts FOR EACH ROW EXECUTE FUNCTION held()`)
	d.must(err)
	return d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
}

func in(category string, c eventstore.Changes) eventstore.Changes {
	for i := range c.Publish {
		c.Publish[i].Category = category
		c.Publish[i].ID += "-" + category
	}
	return c
}

// all gives the ids of all events after a position.
func (d *desk) all(after eventstore.Position) (ids []string, end eventstore.Position) {
	d.Helper()
	found, end, err := d.store.ReadAll(d.Context(), after, nil, 100)
	d.must(err)
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	return ids, end
}

func (d *desk) same(what string, got, want any) {
	d.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		d.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestNoEventAppearsBelowOneThatWasRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("first", 1))
	release := d.heldUp()
	slow := d.committing(in("held", events("a", 2)))
	d.waiting(1)
	d.commit(events("b", 1)) // has a higher position, and is there
	ids, at := d.all("")
	d.same("while a lower one is under way", ids, []string{"e-first-1"})
	release()
	d.must(<-slow)
	ids, _ = d.all(at)
	d.same("afterwards", ids, []string{"e-a-1-held", "e-a-2-held", "e-b-1"})
}

func TestNobodyStallsTheOrderOfAllButWhoCommits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	other := newDesk(t) // another store in the same database
	defer other.heldUp()()
	other.committing(in("held", events("a", 1))) // its sequence is far below: what is told of it is lower than anything here
	other.waiting(1)
	defer d.hold(`CREATE TABLE something AS SELECT pg_current_xact_id()`)() // and a transaction of a program that has nothing to do with it
	begun := d.store.Begin("begun")
	_, err := begun.SQL(d.Context()) // nor does one stall it that has drawn nothing yet
	d.must(err)
	for range 20 {
		d.commit(events("a", 1))
	}
	ids, _ := d.all("")
	d.same("events", len(ids), 20)
	d.must(begun.Rollback())
}

func TestOrderOfSequencesIsOrderOfCommits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	release := d.heldUp()
	first := d.committing(in("held", events("a", 1)))
	d.waiting(1)
	second := d.committingBeside(in("held", events("a", 1)))
	d.waiting(2) // at the lane's row: it draws when the first one is over
	lane := event.LaneRef{Category: "held", Key: "a"}
	tail, err := d.store.LaneTail(d.Context(), lane)
	d.must(err)
	d.same("tail", tail, event.Sequence(0))
	release()
	d.must(<-first)
	d.must(<-second)
	found, err := d.store.ReadLane(d.Context(), lane, 0, 10)
	d.must(err)
	d.same("records", len(found), 2)
}

func TestTwoAppendsToOneStream(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	release := d.heldUp()
	appended := func(category string) eventstore.Changes {
		return eventstore.Changes{Append: []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: "7"}, Events: in(category, events("a", 1)).Publish}}}
	}
	first := d.committing(appended("held"))
	d.waiting(1)
	second := d.committingBeside(appended("order")) // sees version 0, and meets the other one at the stream
	d.waiting(2)
	release()
	d.must(<-first)
	conflict, ok := errors.AsType[*eventstore.VersionError](<-second)
	if !ok || conflict.Actual != 1 {
		t.Errorf("second append: %v", conflict)
	}
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1-held"})
}

func TestTwoAdvancesOfOneCheckpoint(t *testing.T) {
	t.Parallel()
	for from := range event.Sequence(2) {
		d := newDesk(t)
		d.commit(events("a", 3))
		if from > 0 {
			d.commit(moving(0, from))
		}
		release := d.heldUp()
		slow := in("held", events("told", 1))
		slow.Fence, slow.Advance = moving(from, from+1).Fence, moving(from, from+1).Advance
		first := d.committing(slow)
		d.waiting(1)
		second := d.committingBeside(moving(from, from+2))
		d.waiting(2)
		release()
		d.must(<-first)
		moved, ok := errors.AsType[*eventstore.CheckpointError](<-second)
		if !ok || moved.Actual != from+1 {
			t.Errorf("from %d: second advance: %v", from, moved)
		}
	}
}

func moving(from, to event.Sequence) eventstore.Changes {
	return eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Advance: []eventstore.Advance{{Lane: orders, From: from, To: to}}}
}

func TestRaiseWaitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	d.commit(events("a", 2))
	raise := func(g event.Generation) eventstore.Recovered {
		found, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: shipping, Generation: g, Lanes: []event.LaneRef{orders}}})
		d.must(err)
		return found[0]
	}
	raise(5)
	release := d.heldUp()
	slow := in("held", events("told", 1))
	slow.Fence, slow.Advance = eventstore.Fence{Unit: shipping, Generation: 5}, moving(0, 1).Advance
	first := d.committing(slow)
	d.waiting(1)
	raised := make(chan eventstore.Recovered, 1)
	go func() { raised <- raise(6) }()
	d.waiting(2)
	release()
	d.must(<-first)
	if r := <-raised; !r.Raised || r.Checkpoints[0].Sequence != 1 {
		t.Errorf("raised: %+v, want the checkpoint that was under way", r)
	}
	late := moving(1, 2)
	late.Fence.Generation = 5
	if err := <-d.committing(late); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit of the former owner: %v", err)
	}
}

func TestStartWaitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	release := d.heldUp()
	slow := d.committing(in("held", events("a", 1)))
	d.waiting(1)
	begun := d.store.Begin("begun before")
	_, err := begun.SQL(d.Context())
	d.must(err)
	d.must(d.store.opened.Load().owner.rest(d.Context())) // it is not to find out by itself
	d.loseOwner(d.store)                                  // its place is free, though it works on
	next := New(d.config)
	started := background(func() error {
		_, err := next.Start(context.Background(), eventstore.StartOptions{Node: "next", Wait: true})
		return err
	})
	t.Cleanup(func() { _ = next.Stop(context.Background()) })
	d.waiting(2)
	release()
	if err := <-slow; err != nil && !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit that was under way: %v", err)
	}
	d.must(<-started)
	tail, err := next.LaneTail(d.Context(), event.LaneRef{Category: "held", Key: "a"})
	d.must(err)
	d.same("tail", tail, event.Sequence(1))
	if _, err := begun.Commit(d.Context(), events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit of what was begun before: %v", err)
	}
	if err := <-d.committing(events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit after: %v", err)
	}
}

// loseOwner ends the session that holds the place of a process.
func (d *desk) loseOwner(s *Store) {
	d.Helper()
	pid := s.opened.Load().owner.conn.PgConn().PID()
	_, err := d.session().Exec(d.Context(), `SELECT pg_terminate_backend($1, 10000)`, int(pid))
	d.must(err)
}

// The fence itself, where the process has not found out yet that it lost its place.
func TestFenceAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range []struct {
		name          string
		shared        bool
		start, owned  event.Generation
		passes        bool
		ofAnOperators bool
	}{
		{name: "nobody else", start: 7, owned: 7, passes: true},
		{name: "another owner", start: 8, owned: 8},
		{name: "one that shares, after an owner", start: 8, owned: 7},
		{name: "shared: another that shares", shared: true, start: 9, owned: 3, passes: true},
		{name: "shared: an owner since", shared: true, start: 9, owned: 8},
		{name: "an operator", start: 9, owned: 9, passes: true, ofAnOperators: true},
	} {
		conn := &connection{generation: 7, shared: c.shared}
		if c.ofAnOperators {
			conn.generation = 0
		}
		if err := conn.check(fence{start: c.start, owned: c.owned}); errors.Is(err, eventstore.ErrStale) == c.passes {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := d.raw.Exec(d.Context(), `UPDATE keyhold_store SET start_generation = start_generation + 1`)
	d.must(err)
	begun := d.store.Begin("begun")
	if _, err := begun.SQL(d.Context()); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("SQL: %v", err)
	}
	if err := <-d.committing(events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit: %v", err)
	}
	if err := d.store.Abandon(d.Context(), orders, 1, "gone"); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("another change: %v", err)
	}
}

// E13: an owner that is frozen in its transaction has locked what a start, and its successor, need.
// TestLocksOfAFrozenOwnerEnd: a process that stands still in the middle of a commit has the row of its unit, or that of a lane from which it drew; others need them.
func TestLocksOfAFrozenOwnerEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: shipping, Generation: 5}})
	d.must(err)
	d.commit(events("a", 1))
	frozen := d.config
	frozen.TransactionTimeout = time.Second
	r, err := frozen.resolve()
	d.must(err)
	for row, lock := range map[string]string{
		"unit": `SELECT generation FROM keyhold_units WHERE name = 'shipping' AND key = 'a' FOR NO KEY UPDATE`,
		"lane": `UPDATE keyhold_lanes SET last = last + 1 RETURNING last`,
	} {
		conn := session(t, r)
		for _, statement := range []string{beginWork, shareStore, lock} {
			tag, err := conn.Exec(d.Context(), statement)
			d.must(err)
			if statement == lock && tag.RowsAffected() != 1 {
				t.Fatalf("%s: %d rows are locked", row, tag.RowsAffected())
			}
		}
		ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
		defer cancel()
		switch row {
		case "unit":
			found, err := d.store.Raise(ctx, []eventstore.Ask{{Unit: shipping, Generation: 6}})
			if err != nil || !found[0].Raised {
				t.Errorf("raise: %+v, %v", found, err)
			}
		case "lane":
			next := events("a", 2)
			next.Publish = next.Publish[1:]
			done, err := d.store.Begin("another").Commit(ctx, next)
			if err != nil || done.Tails[0].First != 2 {
				t.Errorf("the next of the lane: %+v, %v", done, err)
			}
		}
		if _, err := conn.Exec(d.Context(), `COMMIT`); err == nil {
			t.Errorf("%s: the frozen owner committed", row)
		}
	}
}

func TestDeadlocksAreTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.must(d.store.change(d.Context(), "test", func(c *connection) error { return nil }))
	calls := 0
	err := d.store.change(d.Context(), "test", func(c *connection) error {
		calls++
		if calls < 3 {
			_, err := c.exec(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$`)
			return err
		}
		return nil
	})
	d.must(err)
	d.same("calls", calls, 3)
	calls = 0
	err = d.store.change(d.Context(), "test", func(c *connection) error {
		calls++
		_, err := c.exec(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$`)
		return err
	})
	if !errors.Is(err, eventstore.ErrTrouble) || calls != attempts {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

// What is in the log is in no other order than by position, and nothing of it is locked in circles, whoever commits what.
func TestManyCommitToManyLanes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const writers, each = 6, 15
	var done []<-chan error
	for w := range writers {
		done = append(done, background(func() error {
			for i := range each {
				keys := []string{"a", "b", "c"}
				slices.SortFunc(keys, func(x, y string) int { return int(x[0]+byte(w*i))%5 - int(y[0]+byte(w*i))%5 })
				var c eventstore.Changes
				for _, k := range keys {
					c.Publish = append(c.Publish, events(k, 1+i%3).Publish...)
				}
				if _, err := d.store.Begin("writer").Commit(d.Context(), c); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, result := range done {
		d.must(<-result)
	}
	for _, key := range []string{"a", "b", "c"} {
		found, err := d.store.ReadLane(d.Context(), event.LaneRef{Category: "order", Key: key}, 0, 1000)
		d.must(err)
		d.same("lane "+key, len(found), writers*each*2)
	}
	var positions, sequences int
	d.value(&positions, `SELECT count(*) FROM (SELECT position < lag(position) OVER (PARTITION BY lane ORDER BY sequence) AS wrong FROM keyhold_log) x WHERE wrong`)
	d.value(&sequences, `SELECT count(*) FROM keyhold_log`)
	d.same("positions against sequences", positions, 0)
	d.same("events", sequences, 3*writers*each*2)
}

// Who passes events over by the lists of before has committed when the lists change, or is refused.
func TestListsChangeBetweenCommits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	registered, err := d.store.LoadRegistry(d.Context())
	d.must(err)
	passing := func(from event.Sequence) eventstore.Changes {
		c := moving(from, from+1)
		c.Listed = registered.Revision
		return c
	}
	release := d.heldUp()
	slow := passing(0)
	slow.Publish = in("held", events("told", 1)).Publish
	first := d.committing(slow)
	d.waiting(1)
	saved := background(func() error { return d.store.SaveRegistry(d.Context(), registered, nil) })
	d.waiting(2)
	second := d.committingBeside(passing(1)) // begins before the lists have changed, and comes after
	d.waiting(3)
	release()
	d.must(<-first)
	d.must(<-saved)
	if err := <-second; !errors.Is(err, eventstore.ErrListMoved) {
		t.Errorf("commit by the lists of before: %v", err)
	}
}
