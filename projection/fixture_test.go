package projection

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// sold is the event of these tests, noise one that nobody handles.
type (
	sold struct {
		Item string
		N    int
	}
	noise struct{}
)

var types = func() *codec.Registry {
	r, err := codec.NewRegistry([]codec.Declaration{codec.Of[sold]("sold", 1), codec.Of[noise]("noise", 1)})
	if err != nil {
		panic(err)
	}
	return r
}()

// bundle is a store, and what publishes into it.
type bundle struct {
	testing.TB
	store interface {
		eventstore.Store
		eventstore.Projections
		eventstore.ProjectionBuilds
	}
	sqlite  *sqlite.Store // nil on memory
	path    string
	emitted atomic.Int64
}

func onMemory(t testing.TB) *bundle {
	b := &bundle{TB: t, store: memory.Open()}
	b.startStore()
	return b
}

func onSQLite(t testing.TB) *bundle {
	b := &bundle{TB: t, path: filepath.Join(t.TempDir(), "store.db")}
	b.sqlite = sqlite.Open(b.path)
	b.store = b.sqlite
	b.startStore()
	return b
}

func (b *bundle) startStore() {
	b.Helper()
	_, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "test"})
	b.must(err)
	b.Cleanup(func() { b.must(b.store.Stop(context.Background())) })
}

func (b *bundle) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) same(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// program is a runtime, and what it was seen doing.
type running struct {
	*Runtime
	b       *bundle
	retried chan error
	halted  chan eventstore.ProjectionHalt
	waits   chan string
	moves   chan Progress
	trouble chan error
}

// start runs projections. The test ends them.
func (b *bundle) start(defs ...Definition) *running { return b.startOn(b.store, defs...) }

func (b *bundle) startOn(store Store, defs ...Definition) *running {
	b.Helper()
	r := b.prepare(store, defs...)
	b.must(r.Start(b.Context()))
	return r
}

func (b *bundle) prepare(store Store, defs ...Definition) *running {
	b.Helper()
	const room = 10_000
	r := &running{
		b: b, retried: make(chan error, room), halted: make(chan eventstore.ProjectionHalt, room), waits: make(chan string, room),
		moves: make(chan Progress, room), trouble: make(chan error, room),
	}
	var err error
	r.Runtime, err = NewRuntime(Config{Definitions: defs, Store: store, Codec: types, SQL: b.sqlite != nil, Observer: Observer{
		Retried:      func(_ Build, _ *event.Envelope, _ int, err error) { r.retried <- err },
		Halted:       func(_ Build, h eventstore.ProjectionHalt) { r.halted <- h },
		WaitsForType: func(_ Build, e *event.Envelope) { r.waits <- e.Type },
		Moved:        func(p Progress) { r.moves <- p },
		Trouble:      func(_ Build, _ string, err error) { r.trouble <- err },
	}})
	b.must(err)
	r.signals.read.Init(b)
	r.signals.idle.Init(b)
	r.signals.opened.Init(b)
	r.signals.moved.Init(b)
	b.Cleanup(func() { b.must(r.Stop(context.Background())) })
	return r
}

// until waits for steps until a condition holds.
func (r *running) until(holds func() bool) {
	r.b.Helper()
	for !holds() {
		r.signals.moved.Wait(r.b)
	}
}

// caughtUp waits until a build is current and through with everything.
func (r *running) caughtUp(name string, build int) {
	r.b.Helper()
	r.until(func() bool { return r.isCaughtUp(name, build) })
}

func (r *running) isCaughtUp(name string, build int) bool {
	b := r.b.build(name, build)
	if b == nil || b.State != eventstore.BuildCurrent || !b.SetUp {
		return false
	}
	lag, err := r.b.store.ProjectionLag(r.b.Context(), b.Position, r.programs[name].desc.Categories)
	r.b.must(err)
	return lag.Behind == 0
}

func (b *bundle) state(name string) eventstore.Projection {
	b.Helper()
	p, err := b.store.ReadProjection(b.Context(), name)
	b.must(err)
	return p
}

func (b *bundle) build(name string, number int) *eventstore.ProjectionBuild {
	b.Helper()
	p := b.state(name)
	return p.Build(number)
}

// envelope makes the envelope of an event of the category order, whose key is the item.
func (b *bundle) envelope(v any) event.Envelope { return envelope(b.emitted.Add(1), v) }

func envelope(n int64, v any) event.Envelope {
	enc, err := types.Encode(v)
	if err != nil {
		panic(err)
	}
	key := "-"
	if s, ok := v.(sold); ok {
		key = s.Item
	}
	return event.Envelope{
		ID: fmt.Sprintf("e-%d", n), Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data,
		Category: "order", Key: key, Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second),
	}
}

// publish commits events and tells the runtimes.
func (b *bundle) publish(tell *running, events ...any) {
	b.Helper()
	var all []event.Envelope
	for _, e := range events {
		all = append(all, b.envelope(e))
	}
	done, err := b.store.Begin("publish").Commit(b.Context(), eventstore.Changes{Publish: all})
	b.must(err)
	if tell != nil {
		tell.Wake(done.Tails)
	}
}

func some(n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = sold{Item: string(rune('a' + i%5)), N: 1}
	}
	return all
}

func (b *bundle) act(r *running, a eventstore.ProjectionAct) {
	b.Helper()
	a.Name, a.Actor, a.Reason = "sales", "ann", "a test"
	_, err := b.store.ActOnProjection(b.Context(), a)
	b.must(err)
	if r != nil {
		b.must(r.Look(b.Context()))
	}
}

// seller keeps two tables: every event once, and a total that must agree.
type seller struct{ refuse func(Context, sold) error }

func (s *seller) sold(ctx Context, e sold) error {
	if s.refuse != nil {
		if err := s.refuse(ctx, e); err != nil {
			return err
		}
	}
	if _, err := ctx.Tx().ExecContext(ctx, `INSERT INTO `+ctx.Table("sales")+` (event, lane_sequence, item) VALUES ($1, $2, $3)`,
		ctx.Meta().ID, int64(ctx.Meta().Sequence), e.Item); err != nil {
		return err
	}
	_, err := ctx.Tx().ExecContext(ctx, `UPDATE `+ctx.Table("total")+` SET n = n + $1`, e.N)
	return err
}

func salesTables(ctx Context) error {
	for _, query := range []string{
		`CREATE TABLE ` + ctx.Table("sales") + ` (place INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL UNIQUE, lane_sequence INTEGER NOT NULL, item TEXT NOT NULL)`,
		`CREATE TABLE ` + ctx.Table("total") + ` (n INTEGER NOT NULL)`,
		`INSERT INTO ` + ctx.Table("total") + ` VALUES (0)`,
	} {
		if _, err := ctx.Tx().ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

var quick = actors.RetryPolicy{Attempts: 3, Min: time.Millisecond, Max: 2 * time.Millisecond}

// sales is the projection of a seller, changed by what is given.
func sales(refuse func(Context, sold) error, change ...func(*Projection[*seller])) Projection[*seller] {
	p := Projection[*seller]{
		Name: "sales", Categories: []string{"order"}, Setup: salesTables, Retry: quick,
		New: func() *seller { return &seller{refuse: refuse} },
		On:  Cases[*seller]{On((*seller).sold)},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// tables reads what readers see: how many sales, and their total.
func (b *bundle) tables() (rows, total int) {
	b.Helper()
	b.must(b.sqlite.Reader().QueryRowContext(b.Context(), `SELECT (SELECT count(*) FROM sales), (SELECT n FROM total)`).Scan(&rows, &total))
	return rows, total
}

// exact checks that readers see every event once, in the order of commits.
func (b *bundle) exact() {
	b.Helper()
	rows, err := b.sqlite.Reader().QueryContext(b.Context(), `SELECT event FROM sales ORDER BY place`)
	b.must(err)
	var got, want []string
	for rows.Next() {
		var id string
		b.must(rows.Scan(&id))
		got = append(got, id)
	}
	b.must(errors.Join(rows.Err(), rows.Close()))
	for at := eventstore.Position(""); ; {
		events, next, err := b.store.ReadAll(b.Context(), at, []string{"order"}, eventstore.MaxLimit)
		b.must(err)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Type == "sold" {
				want = append(want, e.ID)
			}
		}
		at = next
	}
	b.same("events in order", got, want)
	count, total := b.tables()
	b.same("total", total, count)
}

// startAgain starts the store as the next process would.
func (b *bundle) startAgain() {
	b.Helper()
	_, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "test"})
	b.must(err)
}

// partial checks that the tables hold exactly the events up to the position of their build.
func (b *bundle) partial() {
	b.Helper()
	p := b.state("sales")
	for i := range p.Builds {
		build := &p.Builds[i]
		if !build.SetUp {
			continue
		}
		var rows, total, last int
		b.must(b.sqlite.Reader().QueryRowContext(b.Context(), fmt.Sprintf(
			`SELECT (SELECT count(*) FROM sales__%[1]d), (SELECT n FROM total__%[1]d), (SELECT count(*) FROM keyhold_log WHERE position <= CAST($1 AS INTEGER))`, build.Number),
			string(build.Position)).Scan(&rows, &total, &last))
		b.same(fmt.Sprintf("build %d: rows, total, events up to its position", build.Number), []int{rows, total, int(build.Applied)}, []int{last, last, last})
	}
}
