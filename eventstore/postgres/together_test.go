package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/proxy"
)

// gather has a new process whose units of work gather behind one that is under way.
func (d *desk) gather(url string, opts eventstore.StartOptions) *gathering {
	d.Helper()
	d.stop()
	config := d.config
	config.URL = url
	d.store = New(config)
	d.store.gather = func(g *gathering) {
		g.slots, g.patience = 1, time.Hour
		g.signals.waiting.Init(d)
		g.signals.committed.Init(d)
	}
	d.id = d.begin(d.store, opts)
	return d.store.opened.Load().gathering
}

// together commits changes in one transaction: they gather while another one is held up.
func (d *desk) together(g *gathering, all ...eventstore.Changes) []error {
	d.Helper()
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	results := []<-chan error{d.committing(in("held", events("first", 1)))}
	d.waiting(1)
	for i, c := range all {
		results = append(results, d.committing(c))
		g.signals.waiting.WaitFor(d, func(n int) bool { return n == i+1 })
	}
	release()
	d.must(<-results[0])
	var errs []error
	for _, r := range results[1:] {
		errs = append(errs, <-r)
	}
	return errs
}

func (d *desk) triggers() {
	d.Helper()
	d.heldUp()() // makes the trigger
}

// appending has one event of an entity.
func appending(id string, expected uint64, key string) eventstore.Changes {
	return eventstore.Changes{Append: []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: id}, Expected: expected, Events: events(key, 1).Publish}}}
}

func TestUnitsOfWorkThatGatherShareOneTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{Relayed: true})
	d.commit(events("a", 3))
	d.commit(moving(0, 1))
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: event.Unit{Name: "shipping", Key: "b"}, Generation: 5}})
	d.must(err)
	fenced := advancing("b", 0, 2)
	fenced.Fence.Generation = 5
	full := appending("7", 0, "a")
	full.Snapshot = &eventstore.Snapshot{Stream: full.Append[0].Stream, Version: 1, StateVersion: 1, Data: []byte("s"), Encoding: event.JSON}
	full.Reply = &eventstore.Reply{Stream: full.Append[0].Stream, CommandID: "c-1", Data: []byte("r"), Time: then}
	full.Publish = events("b", 2).Publish
	for i, err := range d.together(g, full, moving(1, 2), fenced, events("a", 2), appending("8", 0, "c"), eventstore.Changes{}) {
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
	d.same("members", g.signals.committed.Wait(t), 6)
	var transactions int
	d.value(&transactions, `SELECT count(DISTINCT l.xmin::text) FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane WHERE n.category = 'order' AND (n.key <> 'a' OR l.sequence > 3)`)
	d.same("transactions", transactions, 1)
	for key, want := range map[string]int{"a": 6, "b": 2, "c": 1} {
		found, err := d.store.ReadLane(d.Context(), event.LaneRef{Category: "order", Key: key}, 0, 10)
		d.must(err)
		d.same("lane "+key, len(found), want)
	}
	stream, err := d.store.ReadStream(d.Context(), full.Append[0].Stream, 0, 10)
	d.must(err)
	d.same("stream", len(stream), 1)
	snapshot, err := d.store.ReadSnapshot(d.Context(), full.Append[0].Stream)
	d.must(err)
	d.same("snapshot", snapshot, full.Snapshot)
	reply, err := d.store.ReadReply(d.Context(), full.Append[0].Stream, "c-1")
	d.must(err)
	d.same("reply", string(reply.Data), "r")
	for key, want := range map[string]event.Sequence{"a": 2, "b": 2} {
		var at event.Sequence
		d.value(&at, `SELECT c.sequence FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane WHERE c.name = 'shipping' AND n.key = $1`, key)
		d.same("checkpoint of "+key, at, want)
	}
	var unpublished, wrong int
	d.value(&unpublished, `SELECT count(DISTINCT lane) FROM keyhold_unpublished`)
	d.same("lanes unpublished", unpublished, 4)
	d.value(&wrong, `SELECT count(*) FROM (SELECT position < lag(position) OVER (PARTITION BY lane ORDER BY sequence) AS wrong FROM keyhold_log) x WHERE wrong`)
	d.same("positions against sequences", wrong, 0)
	d.exact("afterwards")
}

func TestRefusalInASharedTransactionIsItsOwn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{Relayed: true})
	d.commit(appending("7", 0, "a"))
	d.commit(moving(0, 1))
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: event.Unit{Name: "shipping", Key: "b"}, Generation: 5}})
	d.must(err)
	d.commit(advancing("m", 0, 1))
	stale := advancing("b", 0, 1)
	stale.Fence.Generation = 4
	listed := advancing("d", 0, 1)
	listed.Listed = 4711
	errs := d.together(g, appending("7", 0, "x"), events("x", 1), stale, moving(0, 2), listed, events("y", 1), advancing("m", 2, 3))
	for i, want := range []error{eventstore.ErrVersionConflict, nil, eventstore.ErrStale, eventstore.ErrCheckpointMoved, eventstore.ErrListMoved, nil, eventstore.ErrCheckpointMoved} {
		if !errors.Is(errs[i], want) || want == nil && errs[i] != nil {
			t.Errorf("member %d: %v, want %v", i, errs[i], want)
		}
	}
	d.same("members", g.signals.committed.Wait(t), 2)
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1", "e-first-1-held", "e-x-1", "e-y-1"})
	d.exact("afterwards")
}

func TestFailedWriteInASharedTransactionIsItsOwn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	_, err := d.raw.Exec(d.Context(), `CREATE FUNCTION bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fault'; END $$;
		CREATE TRIGGER bad BEFORE INSERT ON keyhold_log FOR EACH ROW WHEN (NEW.type = 'bad') EXECUTE FUNCTION bad()`)
	d.must(err)
	g := d.gather(d.config.URL, eventstore.StartOptions{})
	bad := events("b", 2)
	bad.Publish[1].Type = "bad"
	errs := d.together(g, events("a", 1), bad, events("b", 1))
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "fault") {
		t.Errorf("%v", errs)
	}
	ids, _ := d.all("")
	d.same("events", len(ids), 3)
	d.exact("afterwards")
}

func TestProcessThatLostItsPlaceCommitsNothingTogether(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{})
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	first := d.committing(in("held", events("first", 1)))
	d.waiting(1)
	results := []<-chan error{d.committing(events("a", 1)), d.committing(events("b", 1))}
	g.signals.waiting.WaitFor(t, func(n int) bool { return n == 2 })
	_, err := d.session().Exec(d.Context(), `UPDATE keyhold_store SET start_generation = start_generation + 1`)
	d.must(err)
	release()
	d.must(<-first)
	for _, r := range results {
		if err := <-r; !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("commit: %v", err)
		}
	}
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-first-1-held"})
}

// Somebody has a lane, a unit and a checkpoint in hand, and does not let go: only those wait who want them.
func TestSharedTransactionWaitsForNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{Relayed: true})
	d.commit(events("lane", 1))
	d.commit(advancing("checkpoint", 0, 1))
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: event.Unit{Name: "shipping", Key: "unit"}, Generation: 5}})
	d.must(err)
	other := d.session()
	_, err = other.Exec(d.Context(), `BEGIN; UPDATE keyhold_lanes SET last = last WHERE key = 'lane'; UPDATE keyhold_units SET generation = generation;
		UPDATE keyhold_checkpoints SET sequence = sequence`)
	d.must(err)
	unit := events("u", 1)
	unit.Fence = eventstore.Fence{Unit: event.Unit{Name: "shipping", Key: "unit"}, Generation: 5}
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	held := d.committing(in("held", events("first", 1)))
	d.waiting(1)
	var results []<-chan error
	for i, c := range []eventstore.Changes{events("lane", 1), unit, advancing("checkpoint", 1, 2), events("a", 1), events("b", 1)} {
		results = append(results, d.committing(c))
		g.signals.waiting.WaitFor(t, func(n int) bool { return n == i+1 })
	}
	release()
	d.must(<-held)
	d.must(<-results[3])
	d.must(<-results[4])
	d.same("members", g.signals.committed.Wait(t), 2)
	d.waiting(3)
	_, err = other.Exec(d.Context(), `COMMIT`)
	d.must(err)
	for _, r := range results[:3] {
		d.must(<-r)
	}
	d.exact("afterwards")
}

// A lock that cannot be passed over is not waited for either: the members wait for it, each alone.
func TestSharedTransactionGivesUpWhatItWouldWaitFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{})
	d.commit(eventstore.Changes{Publish: append(events("a", 1).Publish, events("b", 1).Publish...)})
	other := d.session()
	_, err := other.Exec(d.Context(), `BEGIN; INSERT INTO keyhold_log (position, lane, sequence, id, type, version, encoding, time, stream_kind, stream_id, stream_version)
		VALUES (nextval('keyhold_position'), 0, 1, 'theirs', 't', 1, 'json', 0, 'order', '7', 1)`)
	d.must(err)
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	held := d.committing(in("held", events("first", 1)))
	d.waiting(1)
	same, beside := d.committing(appending("7", 0, "a")), d.committing(events("b", 1))
	g.signals.waiting.WaitFor(t, func(n int) bool { return n == 2 })
	release()
	d.must(<-held)
	d.must(<-beside)
	d.waiting(1)
	_, err = other.Exec(d.Context(), `ROLLBACK`)
	d.must(err)
	d.must(<-same)
}

func TestWhoGivesUpBeforeASharedTransactionBeginsIsLeftOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	g := d.gather(d.config.URL, eventstore.StartOptions{})
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	held := d.committing(in("held", events("first", 1)))
	d.waiting(1)
	ctx, cancel := context.WithCancel(d.Context())
	gone := background(func() error {
		_, err := d.store.Begin("impatient").Commit(ctx, events("a", 1))
		return err
	})
	g.signals.waiting.WaitFor(t, func(n int) bool { return n == 1 })
	stays := d.committing(events("b", 1))
	g.signals.waiting.WaitFor(t, func(n int) bool { return n == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("gave up: %v", err)
	}
	release()
	d.must(<-held)
	d.must(<-stays)
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-first-1-held", "e-b-1"})
}

func TestASharedCommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, withEvents := range map[string]bool{"is found out by its events": true, "stays unknown without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.triggers()
			u, err := url.Parse(d.config.URL)
			d.must(err)
			p := proxy.Run(d, u.Host)
			u.Host = p.Addr()
			g := d.gather(u.String(), eventstore.StartOptions{})
			for range 2 { // statements are prepared
				d.commit(events("a", 1))
			}
			for _, err := range d.together(g, advancing("x", 0, 1), advancing("y", 0, 1), events("x", 1)) {
				d.must(err)
			}
			members := []eventstore.Changes{advancing("x", 1, 2), advancing("y", 1, 2)}
			if withEvents {
				members = append(members, events("z", 1))
			}
			lost := p.LoseReply(statement(`COMMIT`), 1, false) // after that of the one that is held up
			for i, err := range d.together(g, members...) {
				if withEvents && err != nil || !withEvents && !errors.Is(err, eventstore.ErrUnknownCommit) {
					t.Errorf("member %d: %v", i, err)
				}
			}
			<-lost
			for _, key := range []string{"x", "y"} {
				var at int
				d.value(&at, `SELECT c.sequence FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane WHERE n.key = $1`, key)
				d.same("checkpoint of "+key, at, 2)
			}
		})
	}
}

// Sessions are killed while many commit to few lanes and streams: what was told to be committed is there once, what was refused is not, and no lane has a gap.
func TestManyCommitTogetherWhileSessionsDie(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("KEYHOLD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	const writers, each = 24, 12
	var mu sync.Mutex
	told := map[string]string{} // by event: what its commit came to
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			version, passed := uint64(0), event.Sequence(0)
			for n := range each {
				key := fmt.Sprint("k", r.IntN(5))
				c := events(key, 1+r.IntN(2))
				for i := range c.Publish {
					c.Publish[i].ID = fmt.Sprintf("p-%d-%d-%d", w, n, i)
				}
				stream := event.Stream{Kind: "order", ID: fmt.Sprint(w)}
				a := events(fmt.Sprint("k", r.IntN(5)), 1)
				a.Publish[0].ID = fmt.Sprintf("a-%d-%d", w, n)
				c.Append = []eventstore.Append{{Stream: stream, Expected: version, Events: a.Publish}}
				c.Fence.Unit = event.Unit{Name: "shipping", Key: fmt.Sprint("w", w)}
				c.Advance = []eventstore.Advance{{Lane: event.LaneRef{Category: "order", Key: fmt.Sprint("w", w)}, From: passed, To: passed + 1}}
				_, err := d.store.Begin("writer").Commit(d.Context(), c)
				outcome := "committed"
				switch {
				case err == nil:
					version, passed = version+1, passed+1
				case errors.Is(err, eventstore.ErrUnknownCommit):
					outcome = "unknown"
					if found, err := d.store.ReadStream(d.Context(), stream, 0, 1000); err == nil && uint64(len(found)) > version {
						version, passed = version+1, passed+1
					}
				case errors.Is(err, eventstore.ErrTrouble):
					outcome = "refused"
				default:
					t.Errorf("writer %d: %v", w, err)
				}
				mu.Lock()
				for _, e := range append(c.Publish, c.Append[0].Events...) {
					told[e.ID] = outcome
				}
				mu.Unlock()
				if w%8 == 0 && n%2 == 0 { // one of those that commit
					mu.Lock()
					_, _ = d.raw.Exec(d.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()
						AND backend_xid IS NOT NULL LIMIT 1`, d.config.Schema)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	there := map[string]int{}
	rows, err := d.session().Query(d.Context(), `SELECT id, count(*) FROM keyhold_log GROUP BY id`)
	d.must(err)
	for rows.Next() {
		var id string
		var n int
		d.must(rows.Scan(&id, &n))
		there[id] = n
	}
	d.must(rows.Err())
	counts := map[string]int{}
	for id, outcome := range told {
		counts[outcome]++
		if n := there[id]; outcome == "committed" && n != 1 || outcome == "refused" && n != 0 || n > 1 {
			t.Errorf("%s was told to be %s, and is there %d times", id, outcome, n)
		}
	}
	t.Logf("events: %v", counts)
	if counts["committed"] == 0 {
		t.Error("nothing was committed")
	}
	var gaps, wrong int
	d.value(&gaps, `SELECT count(*) FROM keyhold_lanes n WHERE n.last <> (SELECT count(*) FROM keyhold_log l WHERE l.lane = n.id)`)
	d.value(&wrong, `SELECT count(*) FROM (SELECT position < lag(position) OVER (PARTITION BY lane ORDER BY sequence) AS wrong FROM keyhold_log) x WHERE wrong`)
	d.same("lanes with gaps", gaps, 0)
	d.same("positions against sequences", wrong, 0)
	d.exact("afterwards")
}

// One that waits for somebody's lock keeps those waiting that want the same, and nobody else.
func TestACommitThatWaitsDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.triggers()
	d.gather(d.config.URL, eventstore.StartOptions{}).patience = time.Millisecond
	release := d.hold(`SELECT pg_advisory_xact_lock('keyhold_counts'::regclass::oid::int4, 7)`)
	held := d.committing(in("held", events("a", 1)))
	d.waiting(1)
	same := d.committing(in("held", events("a", 1)))
	d.must(<-d.committing(events("b", 1)))
	release()
	d.must(<-held)
	d.must(<-same)
}

// members makes units of work as they come to be committed together.
func (d *desk) members(ctx context.Context, all ...eventstore.Changes) (members []*member) {
	d.Helper()
	for i := range all {
		w := &work{connection: d.store.opened.Load().connection(ctx), changes: &all[i]}
		d.must(w.lookUpLanes())
		members = append(members, newMember(ctx, w))
	}
	return members
}

func TestAMemberWhoseContextIsOverIsNotCommitted(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	over, cancel := context.WithCancel(d.Context())
	late := d.members(over, events("a", 1))
	stays := d.members(d.Context(), events("b", 1))
	cancel()
	d.store.opened.Load().commitTogether(d.Context(), append(late, stays...))
	if err := late[0].err; !errors.Is(err, context.Canceled) || late[0].apart {
		t.Errorf("the one that is over: %v", err)
	}
	d.must(stays[0].err)
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-b-1"})
}

func TestNoEventAppearsBelowThoseOfASharedTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	o := d.store.opened.Load()
	conn, err := o.writers.Acquire(d.Context())
	d.must(err)
	defer conn.Release()
	s := &shared{work: &work{connection: o.connection(d.Context())}, members: d.members(d.Context(), events("a", 1), events("c", 1))}
	s.conn = conn.Conn()
	d.must(s.lock())
	s.write()
	d.must(s.run())
	d.commit(events("b", 1))
	ids, at := d.all("")
	d.same("while it is under way", len(ids), 0)
	d.must(s.work.commit())
	ids, _ = d.all(at)
	d.same("afterwards", ids, []string{"e-a-1", "e-c-1", "e-b-1"})
}

// A field of changes that a shared transaction does not write would be lost: who has one commits alone.
func TestChangesThatCannotBeSharedGoAlone(t *testing.T) {
	t.Parallel()
	written := []string{"Fence", "Append", "Publish", "Advance", "Listed", "Snapshot", "Reply"}
	for f := range reflect.TypeFor[eventstore.Changes]().Fields() {
		var c eventstore.Changes
		switch v := reflect.ValueOf(&c).Elem().FieldByIndex(f.Index); v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(f.Type.Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(f.Type, 1, 1))
		case reflect.Bool:
			v.SetBool(true)
		}
		if w := (&work{changes: &c}); w.shares() != slices.Contains(written, f.Name) {
			t.Errorf("%s is shared: %t", f.Name, w.shares())
		}
	}
}
