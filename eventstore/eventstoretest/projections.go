package eventstoretest

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// projected is what the projections of a store are tested with.
type projected interface {
	eventstore.Projections
	eventstore.ProjectionBuilds
}

func (f *fixture) projections() projected {
	f.Helper()
	p, ok := f.store.(projected)
	if !ok {
		f.Fatalf("%T has no projections", f.store)
	}
	return p
}

// declare declares projections, as the start of a program does.
func (f *fixture) declare(all ...eventstore.ProjectionDeclared) []eventstore.Projection {
	f.Helper()
	got, err := f.projections().DeclareProjections(f.ctx, all)
	f.must(err)
	return got
}

func (f *fixture) projection(name string) eventstore.Projection {
	f.Helper()
	p, err := f.projections().ReadProjection(f.ctx, name)
	f.must(err)
	return p
}

func (f *fixture) build(name string, number int) eventstore.ProjectionBuild {
	f.Helper()
	p := f.projection(name)
	b := p.Build(number)
	if b == nil {
		f.Fatalf("projection %q has no build %d: %+v", name, number, p)
	}
	return *b
}

func totals(version int, categories ...string) eventstore.ProjectionDeclared {
	return eventstore.ProjectionDeclared{Name: "totals", Version: version, Categories: categories}
}

// placedEvents reads all that a projection of the categories is given.
func (f *fixture) placedEvents(after eventstore.Position, categories ...string) []eventstore.Placed {
	f.Helper()
	got, err := f.projections().ReadPlaced(f.ctx, nil, after, categories, eventstore.MaxLimit)
	f.must(err)
	return got
}

// setUp is the step that a build begins with.
func (f *fixture) setUp(build int) {
	f.Helper()
	f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: build, Time: base, Setup: &eventstore.BuildTables{}}})
}

// moveTo is a step from one position to that of an event.
func moveTo(build int, from eventstore.Position, to eventstore.Placed, applied int) *eventstore.ProjectionStep {
	return &eventstore.ProjectionStep{
		Name: "totals", Build: build, From: from, To: to.Position, Event: to.ID, EventTime: to.Time, Applied: applied, Time: base,
	}
}

func haltAt(e eventstore.Placed) *eventstore.ProjectionHalt {
	return &eventstore.ProjectionHalt{
		Event: eventstore.ProjectionEvent{
			ID: e.ID, Type: e.Type, Position: e.Position, Time: e.Time,
			Place: event.Position{Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID},
		},
		Attempts: 5, Reason: "retries exhausted", Error: "cannot", Since: base,
	}
}

func (f *fixture) actOnTotals(a eventstore.ProjectionAct) (eventstore.ActRecord, error) {
	f.Helper()
	if a.Actor == "" {
		a.Actor = "ann"
	}
	if a.Name == "" {
		a.Name = "totals"
	}
	return f.projections().ActOnProjection(f.ctx, a)
}

func (f *fixture) mustActOnTotals(kind eventstore.ActKind) eventstore.ActRecord {
	f.Helper()
	r, err := f.actOnTotals(eventstore.ProjectionAct{Kind: kind, Reason: "because"})
	f.must(err)
	return r
}

var projections = []check{
	{"what is new begins with a build that is current", func(f *fixture) {
		got := f.declare(totals(1, "order"))
		f.same("builds", len(got[0].Builds), 1)
		b := got[0].Builds[0]
		f.same("build", []any{b.Number, b.Version, b.State, b.Position, b.SetUp}, []any{1, 1, eventstore.BuildCurrent, eventstore.Position(""), false})
		f.same("read again", f.projection("totals"), got[0])
		f.same("declared again", f.declare(totals(1, "order")), got)
		all, err := f.projections().ListProjections(f.ctx)
		f.must(err)
		f.same("list", all, got)
	}},
	{"one that is not there is not found", func(f *fixture) {
		_, err := f.projections().ReadProjection(f.ctx, "none")
		f.is(err, eventstore.ErrNotFound)
		_, err = f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActPause, Name: "none"})
		f.is(err, eventstore.ErrNotFound)
	}},
	{"what a program declares no more is not declared, and stays", func(f *fixture) {
		f.declare(totals(1))
		f.declare(eventstore.ProjectionDeclared{Name: "other", Version: 1})
		f.same("declared", f.projection("totals").Declared, false)
		f.same("other declared", f.projection("other").Declared, true)
	}},
	{"categories that change without the version, and the name of a handler, are refused and change nothing", func(f *fixture) {
		before := f.declare(totals(1, "order"))
		_, err := f.projections().DeclareProjections(f.ctx, []eventstore.ProjectionDeclared{{Name: "new", Version: 1}, totals(1, "payment")})
		if err == nil {
			f.Fatal("no error")
		}
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Handlers: []eventstore.Handler{{Name: "ship", Kind: eventstore.EventHandler}}}, nil))
		if _, err := f.projections().DeclareProjections(f.ctx, []eventstore.ProjectionDeclared{{Name: "ship", Version: 1}}); err == nil {
			f.Fatal("no error")
		}
		all, err := f.projections().ListProjections(f.ctx)
		f.must(err)
		f.same("projections", all, before)
	}},
	{"a step moves from exactly where the build is", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at[1], 2)})
		f.refused(eventstore.Changes{Projection: moveTo(1, "", at[2], 3)}, eventstore.ErrProjectionMoved)
		f.refused(eventstore.Changes{Projection: moveTo(1, at[0].Position, at[2], 2)}, eventstore.ErrProjectionMoved)
		f.refused(eventstore.Changes{Projection: moveTo(2, at[1].Position, at[2], 1)}, eventstore.ErrProjectionMoved)
		b := f.build("totals", 1)
		f.same("build", []any{b.Position, b.EventID, b.EventTime, b.Applied, b.Passed}, []any{at[1].Position, at[1].ID, at[1].Time, uint64(2), uint64(0)})
	}},
	{"a step that is refused takes everything with it", func(f *fixture) {
		f.declare(totals(1))
		e := f.event("order", "a")
		f.refused(eventstore.Changes{
			Publish:    []event.Envelope{e},
			Projection: &eventstore.ProjectionStep{Name: "totals", Build: 1, From: "7", To: "8", Applied: 1, Time: base},
		}, eventstore.ErrProjectionMoved)
		f.same("events", f.everything(10), []event.Envelope{})
	}},
	{"lag is exact: what the projection is given, and nothing else", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Categories: []eventstore.Category{{Name: "order.commands", Commands: true}}}, nil))
		for range 3 {
			f.publish(f.event("order", "a"), f.event("payment", "b"), f.event("order.commands", "7"))
		}
		f.must(f.store.Abandon(f.ctx, lane("order", "a"), 2, "bad"))
		lag := func(after eventstore.Position, categories ...string) eventstore.ProjectionLag {
			got, err := f.projections().ProjectionLag(f.ctx, after, categories)
			f.must(err)
			return got
		}
		all, orders := f.placedEvents(""), f.placedEvents("", "order")
		f.same("events", []int{len(all), len(orders)}, []int{5, 2})
		f.same("of all", lag(""), eventstore.ProjectionLag{Behind: 5, First: all[0].Time, End: all[4].Position})
		f.same("of one", lag("", "order"), eventstore.ProjectionLag{Behind: 2, First: orders[0].Time, End: orders[1].Position})
		f.same("after the first", lag(orders[0].Position, "order"), eventstore.ProjectionLag{Behind: 1, First: orders[1].Time, End: orders[1].Position})
		f.same("at the end", lag(all[4].Position), eventstore.ProjectionLag{End: all[4].Position})
	}},
	{"a build may move past many events of others, and past none of its own", func(f *fixture) {
		barren := func(after eventstore.Position, categories ...string) eventstore.Position {
			f.Helper()
			at, err := f.projections().Barren(f.ctx, after, categories)
			f.must(err)
			return at
		}
		f.publish(f.event("order", "a"))
		orders := f.placedEvents("", "order")
		f.publish(f.events("payment", "a", 10)...)
		f.same("where there are few", barren(orders[0].Position, "order"), orders[0].Position)
		for range 5 {
			f.publish(f.events("payment", "a", 1000)...)
		}
		f.same("before one of its own", barren("", "order"), eventstore.Position(""))
		f.same("of all", barren(orders[0].Position), orders[0].Position)
		to := barren(orders[0].Position, "order")
		f.same("after it", len(f.placedEvents(to)), 0)
		f.publish(f.event("order", "a"))
		f.same("of its own after it", len(f.placedEvents(to, "order")), 1)
		f.same("moved there", barren(to, "order"), to)
	}},
	{"events come with their positions", func(f *fixture) {
		f.publish(f.events("order", "a", 4)...)
		var got []eventstore.Placed
		for at := eventstore.Position(""); ; at = got[len(got)-1].Position {
			page, err := f.projections().ReadPlaced(f.ctx, nil, at, nil, 1)
			f.must(err)
			if len(page) == 0 {
				break
			}
			events, position := f.readAll(at, 1)
			f.same("event", page, []eventstore.Placed{{Envelope: events[0], Position: position}})
			got = append(got, page...)
		}
		f.same("events", len(got), 4)
	}},
	{"a halt stops a build until a person retries or skips", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")
		halt := func() {
			f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 1, Halt: haltAt(at[0]), Time: base}})
		}
		halt()
		f.same("halt", f.build("totals", 1).Halt, haltAt(at[0]))
		f.refused(eventstore.Changes{Projection: moveTo(1, "", at[0], 1)}, eventstore.ErrProjectionMoved)
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: at[1].ID})
		f.is(err, eventstore.ErrStateMoved)
		_, err = f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: at[0].ID, Build: 2})
		f.is(err, eventstore.ErrStateMoved)
		done, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: at[0].ID})
		f.must(err)
		f.same("event of the act", done.Event, haltAt(at[0]).Event.Place)
		f.same("halt lifted", f.build("totals", 1).Halt == nil, true)
		halt()
		_, err = f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActSkip, Event: at[0].ID, Reason: "a test"})
		f.must(err)
		b := f.build("totals", 1)
		f.same("skipped", []any{b.Position, b.EventID, b.Skipped, b.Applied, b.Halt == nil}, []any{at[0].Position, at[0].ID, uint64(1), uint64(0), true})
		_, err = f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActSkip, Event: at[0].ID, Reason: "a test"})
		f.is(err, eventstore.ErrStateMoved)
	}},
	{"attempts are kept until the build moves", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")[0]
		tried := &eventstore.ProjectionTried{Event: haltAt(at).Event, Attempts: 2, Error: "cannot", Time: base, Again: base.Add(time.Minute)}
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 1, Tried: tried, Time: base}})
		f.same("tried", f.build("totals", 1).Tried, tried)
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at, 1)})
		f.same("tried after", f.build("totals", 1).Tried == nil, true)
	}},
	{"a projection that is paused does not move", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")[0]
		f.mustActOnTotals(eventstore.ActPause)
		pause := f.projection("totals").Pause
		if pause == nil || pause.Actor != "ann" || pause.Reason != "because" || pause.Since.IsZero() {
			f.Fatalf("pause: %+v", pause)
		}
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActPause})
		f.is(err, eventstore.ErrStateMoved)
		f.refused(eventstore.Changes{Projection: moveTo(1, "", at, 1)}, eventstore.ErrProjectionMoved)
		f.mustActOnTotals(eventstore.ActResume)
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at, 1)})
		_, err = f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActResume})
		f.is(err, eventstore.ErrStateMoved)
	}},
	{"a build takes the place of another when nothing is left for it, and not before", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.declare(totals(1, "order"))
		f.setUp(1)
		f.mustActOnTotals(eventstore.ActRebuild)
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
		f.is(err, eventstore.ErrStateMoved)
		f.setUp(2)
		at := f.placedEvents("")
		step := moveTo(2, "", at[0], 1)
		step.Switch = true
		f.commit(eventstore.Changes{Projection: step})
		f.same("one is left", f.build("totals", 2).State, eventstore.BuildMaking)
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at[1], 2)})
		step = moveTo(2, at[0].Position, at[1], 1)
		step.Switch = true
		f.commit(eventstore.Changes{Publish: []event.Envelope{f.event("order", "a")}, Projection: step}) // events come after what moves
		p := f.projection("totals")
		f.same("states", []any{p.Build(1).State, p.Build(2).State}, []any{eventstore.BuildOld, eventstore.BuildCurrent})
		f.same("switched", p.Build(2).Switched, base)
		f.publish(f.event("payment", "a"))
		at = f.placedEvents("", "order")
		f.refused(eventstore.Changes{Projection: moveTo(1, at[1].Position, at[2], 1)}, eventstore.ErrProjectionMoved)
		f.commit(eventstore.Changes{Projection: moveTo(2, at[1].Position, at[2], 1)})
		f.must(f.projections().DropBuild(f.ctx, "totals", 2)) // not old: it stays
		f.must(f.projections().DropBuild(f.ctx, "totals", 1))
		f.must(f.projections().DropBuild(f.ctx, "totals", 1))
		f.same("builds", len(f.projection("totals").Builds), 1)
	}},
	{"events of other categories do not keep a build from its place", func(f *fixture) {
		f.publish(f.event("payment", "a"))
		f.declare(totals(1, "order"))
		f.mustActOnTotals(eventstore.ActRebuild)
		f.setUp(2)
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 2, Switch: true, Time: base}})
		f.same("state", f.build("totals", 2).State, eventstore.BuildCurrent)
	}},
	{"another version makes another build, and the one before stays as it is", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")[0]
		f.declare(totals(2))
		f.refused(eventstore.Changes{Projection: moveTo(1, "", at, 1)}, eventstore.ErrProjectionMoved)
		f.setUp(2)
		f.commit(eventstore.Changes{Projection: moveTo(2, "", at, 1)})
		got := f.declare(totals(2))
		f.same("goes on where it was", []any{len(got[0].Builds), got[0].Builds[1].Position, got[0].Builds[1].State}, []any{2, at.Position, eventstore.BuildMaking})
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActCancelRebuild})
		f.is(err, eventstore.ErrStateMoved)
		got = f.declare(totals(3))
		f.same("given up for a newer one", []any{len(got[0].Builds), got[0].Builds[1].Number, got[0].Builds[1].Version}, []any{2, 3, 3})
		got = f.declare(totals(1))
		f.same("given up", len(got[0].Builds), 1)
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at, 1)})
		f.mustActOnTotals(eventstore.ActRebuild)
		f.same("number", f.build("totals", 4).State, eventstore.BuildMaking)
	}},
	{"a rebuild is cancelled, old builds are dropped, and what is declared no more is removed", func(f *fixture) {
		f.declare(totals(1))
		for _, kind := range []eventstore.ActKind{eventstore.ActCancelRebuild, eventstore.ActDropBuild} {
			_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: kind})
			f.is(err, eventstore.ErrStateMoved)
		}
		f.mustActOnTotals(eventstore.ActRebuild)
		f.mustActOnTotals(eventstore.ActCancelRebuild)
		f.same("builds", len(f.projection("totals").Builds), 1)
		f.mustActOnTotals(eventstore.ActRebuild)
		f.setUp(3)
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 3, Switch: true, Time: base}})
		f.mustActOnTotals(eventstore.ActDropBuild)
		f.same("builds", len(f.projection("totals").Builds), 1)
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActRemove, Reason: "gone"})
		f.is(err, eventstore.ErrInUse)
		f.declare()
		f.mustActOnTotals(eventstore.ActRemove)
		_, err = f.projections().ReadProjection(f.ctx, "totals")
		f.is(err, eventstore.ErrNotFound)
		f.declare(totals(1))
	}},
	{"acts need an actor, and some a reason", func(f *fixture) {
		f.declare(totals(1))
		for _, a := range []eventstore.ProjectionAct{
			{Kind: eventstore.ActPause, Name: "totals"},
			{Kind: eventstore.ActSkip, Name: "totals", Actor: "ann", Reason: "no event"},
			{Kind: eventstore.ActRemove, Name: "totals", Actor: "ann"},
			{Kind: eventstore.ActRename, Name: "totals", Actor: "ann"},
		} {
			if _, err := f.projections().ActOnProjection(f.ctx, a); err == nil {
				f.Errorf("%+v: no error", a)
			}
		}
	}},
	{"a purge keeps what a projection has still to be given", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.publish(f.event("payment", "a"))
		f.declare(totals(1, "order"))
		f.setUp(1)
		at := f.placedEvents("", "order")
		f.purgeAll(base.Add(time.Hour))
		f.same("events kept", len(f.everything(10)), 3)
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at[1], 2)})
		f.purgeAll(base.Add(time.Hour))
		f.same("events kept", ids(f.everything(10)), []string{at[2].ID})
		f.commit(eventstore.Changes{Projection: moveTo(1, at[1].Position, at[2], 1)})
		f.purgeAll(base.Add(time.Hour))
		f.same("events kept", len(f.everything(10)), 0)
	}},
	purgeOfVersions,
	{"everything is there after a crash", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")[0]
		f.commit(eventstore.Changes{Projection: moveTo(1, "", at, 1)})
		f.mustActOnTotals(eventstore.ActRebuild)
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 2, Halt: haltAt(at), Time: base}})
		f.mustActOnTotals(eventstore.ActPause)
		before := f.projection("totals")
		f.restart(f.crash)
		f.same("projection", f.projection("totals"), before)
	}},
	{"of two that move one build from one place, one does", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		f.setUp(1)
		at := f.placedEvents("")[0]
		const rivals = 8
		outcomes := make(chan error, rivals)
		for range rivals {
			go func() {
				_, err := f.try(eventstore.Changes{Projection: moveTo(1, "", at, 1)})
				outcomes <- err
			}()
		}
		moved := 0
		for range rivals {
			if err := <-outcomes; err == nil {
				moved++
			} else {
				f.is(err, eventstore.ErrProjectionMoved)
			}
		}
		f.same("moved", moved, 1)
		f.same("applied", f.build("totals", 1).Applied, uint64(1))
	}},
}

// needSQL ends the check on a store without SQL.
func (f *fixture) needSQL() {
	f.Helper()
	if !f.id.Capabilities.SQL {
		f.Skip("this store has no SQL")
	}
}

// query reads one value.
func (f *fixture) query(query string, into any) {
	f.Helper()
	tx, door, _ := f.sql()
	f.must(door.QueryRowContext(f.ctx, query).Scan(into))
	f.must(tx.Rollback())
}

// tables names the tables and views of the application, in order.
func (f *fixture) tables() (names []string) {
	f.Helper()
	var all string
	if f.harness.Postgres {
		f.query(`SELECT coalesce(string_agg(relname::text, ' ' ORDER BY relname::text COLLATE "C"), '') FROM pg_class
			WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v') AND relname NOT LIKE 'keyhold@_%' ESCAPE '@'`, &all)
		return strings.Fields(all)
	}
	f.query(`SELECT coalesce(group_concat(name, ' ' ORDER BY name), '') FROM sqlite_schema
		WHERE type IN ('table', 'view') AND name NOT LIKE 'keyhold@_%' ESCAPE '@' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'`, &all)
	return strings.Fields(all)
}

// projectionSQL are the checks of a store with SQL.
var projectionSQL = []check{
	{"readers see the tables of the current build, by their plain names", func(f *fixture) {
		f.needSQL()
		f.publish(f.event("order", "a"))
		f.declare(totals(1))
		make1 := func(build int, value int) {
			tx := f.store.Begin("setup")
			db, err := tx.SQL(f.ctx)
			f.must(err)
			table := eventstore.TableOf("sums", build)
			_, err = db.ExecContext(f.ctx, fmt.Sprintf("CREATE TABLE %s (n INTEGER)", table))
			f.must(err)
			_, err = db.ExecContext(f.ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, value))
			f.must(err)
			_, err = tx.Commit(f.ctx, eventstore.Changes{Projection: &eventstore.ProjectionStep{
				Name: "totals", Build: build, Time: base, Setup: &eventstore.BuildTables{Names: []string{"sums"}}}})
			f.must(err)
		}
		seen := func() (n int) {
			f.query("SELECT n FROM sums", &n)
			return n
		}
		make1(1, 10)
		f.same("of the first build", seen(), 10)
		f.mustActOnTotals(eventstore.ActRebuild)
		make1(2, 20)
		f.same("while the second is made", seen(), 10)
		step := moveTo(2, "", f.placedEvents("")[0], 1)
		step.Switch = true
		f.commit(eventstore.Changes{Projection: step})
		f.same("after the switch", seen(), 20)
		f.must(f.projections().DropBuild(f.ctx, "totals", 1))
		f.same("tables", f.tables(), []string{"sums", "sums__2"})
		f.mustActOnTotals(eventstore.ActRebuild)
		make1(3, 30)
		f.mustActOnTotals(eventstore.ActCancelRebuild)
		f.same("tables", f.tables(), []string{"sums", "sums__2"})
		f.declare()
		f.mustActOnTotals(eventstore.ActRemove)
		f.same("tables", f.tables(), []string{})
	}},
	{"a table that was named and not made, or that another projection has, is refused", func(f *fixture) {
		f.needSQL()
		f.declare(totals(1), eventstore.ProjectionDeclared{Name: "rival", Version: 1})
		try := func(name, table string) error {
			tx := f.store.Begin("setup")
			db, err := tx.SQL(f.ctx)
			f.must(err)
			if table != "" {
				_, err = db.ExecContext(f.ctx, "CREATE TABLE "+table+" (n INTEGER)")
				f.must(err)
			}
			_, err = tx.Commit(f.ctx, eventstore.Changes{Projection: &eventstore.ProjectionStep{
				Name: name, Build: 1, Time: base, Setup: &eventstore.BuildTables{Names: []string{"sums"}}}})
			return err
		}
		if err := try("totals", ""); err == nil {
			f.Fatal("no table: no error")
		}
		f.must(try("totals", "sums__1"))
		if err := try("rival", ""); err == nil {
			f.Fatal("two projections of one table: no error")
		}
		f.same("set up", f.build("rival", 1).SetUp, false)
	}},
	{"inside a unit of work a read sees the end, and nothing can be added to it", func(f *fixture) {
		f.needSQL()
		f.publish(f.events("order", "a", 2)...)
		tx := f.store.Begin("reader")
		db, err := tx.SQL(f.ctx)
		f.must(err)
		got, err := f.projections().ReadPlaced(f.ctx, db, "", nil, 10) // from now on, where the database has many writers
		f.must(err)
		f.same("events", len(got), 2)
		late := make(chan error, 1)
		go func() {
			_, err := f.try(eventstore.Changes{Publish: []event.Envelope{f.event("order", "b")}})
			late <- err
		}()
		f.same("as outside", got, f.placedEvents(""))
		rest, err := f.projections().ReadPlaced(f.ctx, db, got[1].Position, nil, 10)
		f.must(err)
		f.same("rest", len(rest), 0)
		f.must(tx.Rollback())
		f.must(<-late)
	}},
}
