package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

// notices collects what a store tells.
type notices struct {
	mu  sync.Mutex
	all []eventstore.Notice
	one chan eventstore.Notice
}

func newNotices() *notices { return &notices{one: make(chan eventstore.Notice, 100)} }

func (n *notices) observe(notice eventstore.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, notice)
	n.one <- notice
}

func (n *notices) count(what string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, notice := range n.all {
		if notice.What == what {
			count++
		}
	}
	return count
}

// wait gives the next notice of a kind.
func (n *notices) wait(t *testing.T, what string) eventstore.Notice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		select {
		case notice := <-n.one:
			if notice.What == what {
				return notice
			}
		case <-ctx.Done():
			t.Fatalf("%q was not told", what)
		}
	}
}

func TestManyProcessesStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	const replicas = 8
	config := place(t)
	told := newNotices()
	set := 0 // guarded by the lock under which Setup runs
	config.Setup = func(ctx context.Context, db eventstore.SQL) error {
		set++
		_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS shipments (id text PRIMARY KEY); CREATE INDEX IF NOT EXISTS shipments_id ON shipments (id)`)
		return err
	}
	generations := make([]event.Generation, replicas)
	var group sync.WaitGroup
	for i := range replicas {
		group.Go(func() {
			s := New(config)
			id, err := s.Start(t.Context(), eventstore.StartOptions{Node: fmt.Sprintf("node-%d", i), Relayed: true, Observe: told.observe})
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			generations[i] = id.StartGeneration
			t.Cleanup(func() { _ = s.Stop(context.Background()) })
			if _, err := s.Begin("first").Commit(t.Context(), events("a", 1)); err != nil {
				t.Errorf("commit: %v", err)
			}
		})
	}
	group.Wait()
	seen := map[event.Generation]bool{}
	for _, g := range generations {
		seen[g] = g >= 1 && g <= replicas
	}
	if len(seen) != replicas || told.count("database created") != 1 || set != replicas {
		t.Errorf("generations %v, created %d times, set up %d times", generations, told.count("database created"), set)
	}
}

func TestLivingStarts(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Node: "one", Relayed: true})
	two := process(t, d.config)
	d.begin(two, eventstore.StartOptions{Node: "two", Relayed: true})
	nodes := func() (all []string) {
		living, err := living(d.Context(), single{d.raw})
		d.must(err)
		for _, s := range living {
			all = append(all, s.node)
		}
		return all
	}
	d.same("living", nodes(), []string{"one", "two"})
	_, err := New(d.config).Start(d.Context(), eventstore.StartOptions{Node: "alone"})
	owned, ok := errors.AsType[*eventstore.OwnedError](err)
	if !ok || owned.Node != "two" || owned.PID == 0 {
		t.Errorf("start of one that does not share: %v", err)
	}
	crash(t, two)
	d.same("living", nodes(), []string{"one"})
	three := New(d.config)
	id := d.begin(three, eventstore.StartOptions{Node: "three", Relayed: true})
	d.same("told of the crash", id.Unclean, true)
	d.must(three.Stop(d.Context()))
	d.same("told of no crash", d.begin(New(d.config), eventstore.StartOptions{Node: "four", Relayed: true}).Unclean, false)
}

func TestAProcessThatLosesItsPlaceTakesItAgain(t *testing.T) {
	t.Parallel()
	for _, relayed := range []bool{false, true} {
		d := newDesk(t)
		d.stop()
		told := newNotices()
		d.config.TransactionTimeout = 2 * time.Second
		d.start(eventstore.StartOptions{Node: "first", Observe: told.observe, Relayed: relayed})
		begun := d.store.Begin("begun")
		_, err := begun.SQL(d.Context())
		d.must(err)
		d.loseOwner(d.store)
		notice := told.wait(t, "place on the store lost")
		if !errors.Is(notice.Error, eventstore.ErrTrouble) || errors.Is(notice.Error, eventstore.ErrStale) {
			t.Errorf("notice: %v", notice.Error)
		}
		if _, err := begun.Commit(d.Context(), events("a", 1)); !errors.Is(err, eventstore.ErrTrouble) {
			t.Errorf("commit of what had begun: %v", err)
		}
		told.wait(t, "place on the store taken again")
		d.commit(events("a", 1))
		_, err = New(d.config).Start(d.Context(), eventstore.StartOptions{Node: "second", Relayed: !relayed})
		if owned, ok := errors.AsType[*eventstore.OwnedError](err); !ok || owned.Node != "first" {
			t.Errorf("start of a second: %v, want it owned by the first", err)
		}
		before := d.id
		d.stop()
		d.start(eventstore.StartOptions{Relayed: relayed})
		d.same("unclean", d.id.Unclean, false)
		d.same("generation", d.id.StartGeneration, before.StartGeneration+1)
		d.stop()
	}
}

// The first does not look after its place until the second has started and stopped.
func TestAProcessWhosePlaceAnotherTookCommitsNothingMore(t *testing.T) {
	t.Parallel()
	for _, relayed := range []bool{false, true} {
		d := newDesk(t)
		d.stop()
		told := newNotices()
		d.start(eventstore.StartOptions{Node: "first", Observe: told.observe, Relayed: relayed})
		o := d.store.opened.Load()
		d.must(o.owner.rest(d.Context()))
		d.loseOwner(d.store)
		second := New(d.config)
		d.begin(second, eventstore.StartOptions{Node: "second", Wait: true})
		d.must(second.Stop(d.Context()))
		d.must(o.owner.watch(d.Context(), time.Second, retake{o.config, o.identity, new(waiter)}, o.lost, o.taken, o.over))
		notice := told.wait(t, "place on the store lost for good")
		if !errors.Is(notice.Error, eventstore.ErrStale) || !strings.Contains(notice.Error.Error(), "start again") {
			t.Errorf("notice: %v", notice.Error)
		}
		if err := <-d.committing(events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("commit: %v", err)
		}
		if _, err := d.store.Begin("more").SQL(d.Context()); !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("SQL: %v", err)
		}
		if _, err := d.store.LaneTail(d.Context(), orders); err != nil {
			t.Errorf("what only reads: %v", err)
		}
		d.stop()
		d.start()
		d.commit(events("a", 1))
		d.stop()
	}
}

// A standby that did not get to see that the first started gives its generation to the next that starts there.
func TestAProcessWhoseStartWasLostAndDrawnAgainHasNoPlace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	told := newNotices()
	d.config.TransactionTimeout = 2 * time.Second
	d.start(eventstore.StartOptions{Node: "first", Observe: told.observe, Relayed: true})
	_, err := d.raw.Exec(d.Context(), `UPDATE keyhold_starts SET pid = pid + 1 WHERE generation = $1`, d.id.StartGeneration)
	d.must(err)
	d.loseOwner(d.store)
	told.wait(t, "place on the store lost for good")
	if err := <-d.committing(events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit: %v", err)
	}
}

func TestStopTakesTheDatabaseFromWhoDoesNotLetGo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	held := d.store.Begin("holds on")
	db, err := held.SQL(d.Context())
	d.must(err)
	over, cancel := context.WithCancel(d.Context())
	cancel()
	d.must(d.store.Stop(over))
	if _, err := db.ExecContext(d.Context(), `SELECT 1`); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("SQL: %v", err)
	}
	if _, err := held.Commit(d.Context(), events("a", 1)); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	config := place(t)
	_, err := New(config).Start(t.Context(), eventstore.StartOptions{NoMigrate: true})
	if wrong, ok := errors.AsType[*eventstore.FormatError](err); !ok || wrong.Found != 0 {
		t.Errorf("start on nothing: %v", err)
	}
	d := newDesk(t)
	d.stop()
	script := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	known, err := formats(migrations)
	d.must(err)
	next := fstest.MapFS{}
	for _, f := range known {
		next[f.name] = script(f.script)
	}
	const step = "migrations/9999_next.sql"
	next[step] = script(`ALTER TABLE keyhold_store ADD COLUMN more bigint; SELECT broken`)
	newer := New(d.config)
	newer.formats = next
	if _, err := newer.Start(d.Context(), eventstore.StartOptions{}); err == nil || !strings.Contains(err.Error(), fmt.Sprint("format ", len(known)+1)) {
		t.Errorf("a step that fails: %v", err)
	}
	next[step] = script(`ALTER TABLE keyhold_store ADD COLUMN more bigint`)
	told := newNotices()
	_, err = newer.Start(d.Context(), eventstore.StartOptions{Observe: told.observe})
	d.must(err)
	d.same("told", told.count(fmt.Sprintf("migrated from format %d to %d", len(known), len(known)+1)), 1)
	d.must(newer.Stop(d.Context()))
	_, err = New(d.config).Start(d.Context(), eventstore.StartOptions{})
	if wrong, ok := errors.AsType[*eventstore.FormatError](err); !ok || wrong.Found != len(known)+1 || wrong.Known != len(known) {
		t.Errorf("start of the older program: %v", err)
	}
}

func TestSetupFaults(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	for _, c := range []struct {
		name  string
		setup func(context.Context, eventstore.SQL) error
		want  string
	}{
		{"an error", func(context.Context, eventstore.SQL) error { return errors.New("no way") }, "no way"},
		{"a panic", func(context.Context, eventstore.SQL) error { panic("oh no") }, "oh no"},
		{"SQL that fails", func(ctx context.Context, db eventstore.SQL) error {
			_, _ = db.ExecContext(ctx, `SELECT nothing`)
			return nil
		}, "nothing"},
	} {
		config := d.config
		config.Setup = c.setup
		if _, err := New(config).Start(d.Context(), eventstore.StartOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	d.start()
	d.same("unclean", d.id.Unclean, false)
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{MaxConns: -1, Readers: -1, TransactionTimeout: 1, Schema: "a,b"}).Start(t.Context(), eventstore.StartOptions{})
	for _, want := range []string{"MaxConns", "Readers", "TransactionTimeout", "Schema", "URL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not told: %v", want, err)
		}
	}
	_, err = Open("postgres://%zz").Start(t.Context(), eventstore.StartOptions{})
	if err == nil {
		t.Error("no error of a URL that is none")
	}
	_, err = Open("postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2").Start(t.Context(), eventstore.StartOptions{})
	if !errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("no server: %v", err)
	}
}

func TestTheServerRestarts(t *testing.T) {
	t.Parallel()
	server := postgresserver.Run(t, postgresserver.Options{Fsync: true})
	d := &desk{T: t, config: Config{URL: server.Database(t), TransactionTimeout: 2 * time.Second}}
	told := newNotices()
	d.start(eventstore.StartOptions{Node: "first", Observe: told.observe})
	d.commit(events("a", 2))
	d.must(server.Kill())
	if err := <-d.committing(events("b", 1)); !errors.Is(err, eventstore.ErrTrouble) && !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit while there is none: %v", err)
	}
	if _, err := d.store.LaneTail(d.Context(), orders); !errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("read while there is none: %v", err)
	}
	told.wait(t, "place on the store lost")
	d.must(server.Restart(d.Context()))
	told.wait(t, "place on the store taken again")
	tail, err := d.store.LaneTail(d.Context(), orders)
	d.must(err)
	d.same("tail", tail, event.Sequence(2))
	d.commit(events("b", 1))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1", "e-a-2", "e-b-1"})
}

func TestTheServerFailsOverToItsStandby(t *testing.T) {
	t.Parallel()
	primary := postgresserver.Run(t, postgresserver.Options{})
	standby := postgresserver.Run(t, postgresserver.Options{StandbyOf: primary})
	d := &desk{T: t, config: Config{
		URL:                strings.Replace(primary.URL("postgres"), primary.Addr(), standby.Addr()+","+primary.Addr(), 1),
		TransactionTimeout: 2 * time.Second,
	}}
	told := newNotices()
	d.start(eventstore.StartOptions{Node: "first", Observe: told.observe}) // the first host is none that it could write on
	d.commit(events("a", 2))
	source, err := primary.Connect(d.Context(), "postgres")
	d.must(err)
	var written string
	d.must(source.QueryRow(d.Context(), `SELECT pg_current_wal_flush_lsn()::text`).Scan(&written))
	d.must(source.Close(d.Context()))
	replica, err := standby.Connect(d.Context(), "postgres")
	d.must(err)
	for there := false; !there; {
		d.must(replica.QueryRow(d.Context(), `SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, written).Scan(&there))
	}
	d.must(replica.Close(d.Context()))
	d.must(primary.Kill())
	told.wait(t, "place on the store lost")
	d.must(standby.Promote(d.Context()))
	told.wait(t, "place on the store taken again")
	d.commit(events("b", 1))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1", "e-a-2", "e-b-1"})
}
