package eventstoretest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// makeTables runs Setup of a build of totals: statements, and the names of the tables that they are said to make.
func (f *fixture) makeTables(build int, names []string, statements ...string) error {
	f.Helper()
	tx := f.store.Begin("setup")
	db, err := tx.SQL(f.ctx)
	f.must(err)
	for _, s := range statements {
		_, err := db.ExecContext(f.ctx, s)
		f.must(err)
	}
	_, err = tx.Commit(f.ctx, eventstore.Changes{Projection: &eventstore.ProjectionStep{
		Name: "totals", Build: build, Time: base, Setup: &eventstore.BuildTables{Names: names}}})
	return err
}

// alter changes tables as the application does.
func (f *fixture) alter(statements ...string) {
	f.Helper()
	tx, db, _ := f.sql()
	for _, s := range statements {
		_, err := db.ExecContext(f.ctx, s)
		f.must(err)
	}
	_, err := tx.Commit(f.ctx, eventstore.Changes{})
	f.must(err)
}

// related are tables with foreign keys of every kind: in both orders of the alphabet, to themselves, and round in a circle; with rows.
func (f *fixture) related(build int) []string {
	ring := []string{
		`CREATE TABLE ring_a%s (id INTEGER PRIMARY KEY, b INTEGER NOT NULL REFERENCES ring_b%s ON DELETE RESTRICT DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE TABLE ring_b%s (id INTEGER PRIMARY KEY, a INTEGER NOT NULL REFERENCES ring_a%s)`,
	}
	if f.harness.Postgres { // where a table that another refers to must be there
		ring = []string{
			`CREATE TABLE ring_a%s (id INTEGER PRIMARY KEY, b INTEGER NOT NULL)`,
			`CREATE TABLE ring_b%s (id INTEGER PRIMARY KEY, a INTEGER NOT NULL REFERENCES ring_a%s)`,
			`ALTER TABLE ring_a%s ADD FOREIGN KEY (b) REFERENCES ring_b%s ON DELETE RESTRICT DEFERRABLE INITIALLY DEFERRED`,
		}
	}
	all := slices.Concat([]string{
		`CREATE TABLE customers%s (id INTEGER PRIMARY KEY, referrer INTEGER REFERENCES customers%s)`,
		`CREATE TABLE invoices%s (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers%s ON DELETE RESTRICT)`,
		`CREATE TABLE visits%s (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers%s ON DELETE SET NULL)`,
	}, ring, []string{
		`INSERT INTO customers%s VALUES (1, 1), (2, 1)`,
		`INSERT INTO invoices%s VALUES (1, 1), (2, 2)`,
		`INSERT INTO visits%s VALUES (1, 2)`,
		`INSERT INTO ring_a%s VALUES (1, 1)`,
		`INSERT INTO ring_b%s VALUES (1, 1)`,
	})
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "%s", fmt.Sprintf("__%d", build))
	}
	return all
}

var relatedNames = []string{"customers", "invoices", "ring_a", "ring_b", "visits"}

// droppingSQL are the checks of what becomes of the tables of builds that are gone.
var droppingSQL = []check{
	{"tables with foreign keys between them are dropped whoever drops them", func(f *fixture) {
		f.needSQL()
		f.declare(totals(1))
		f.must(f.makeTables(1, relatedNames, f.related(1)...))
		shown := f.tables()
		f.mustActOnTotals(eventstore.ActRebuild)
		f.must(f.makeTables(2, relatedNames, f.related(2)...))
		f.mustActOnTotals(eventstore.ActCancelRebuild)
		f.same("after a cancel", f.tables(), shown)
		f.declare(totals(2))
		f.must(f.makeTables(3, relatedNames, f.related(3)...))
		f.declare(totals(1))
		f.same("after a start of another version", f.tables(), shown)
		f.mustActOnTotals(eventstore.ActRebuild)
		f.must(f.makeTables(4, relatedNames, f.related(4)...))
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 4, Switch: true, Time: base}})
		f.must(f.projections().DropBuild(f.ctx, "totals", 1))
		f.same("after a switch", len(f.tables()), len(shown))
		f.declare()
		f.mustActOnTotals(eventstore.ActRemove)
		f.same("after its removal", f.tables(), []string{})
		f.alter(`CREATE TABLE parents (id INTEGER PRIMARY KEY)`, `CREATE TABLE children (id INTEGER REFERENCES parents)`)
		tx, db, _ := f.sql()
		if _, err := db.ExecContext(f.ctx, `INSERT INTO children VALUES (1)`); err == nil {
			f.Error("foreign keys of the application are heeded no more")
		}
		f.must(tx.Rollback())
	}},
	{"tables that cannot be dropped are left, which keeps nobody from anything, and are dropped when they can be", func(f *fixture) {
		f.needSQL()
		f.declare(totals(1))
		f.must(f.makeTables(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER PRIMARY KEY)`))
		f.mustActOnTotals(eventstore.ActRebuild)
		f.must(f.makeTables(2, []string{"sums"}, `CREATE TABLE sums__2 (n INTEGER PRIMARY KEY)`))
		f.alter(`INSERT INTO sums__2 VALUES (7)`, `CREATE TABLE notes (n INTEGER REFERENCES sums__2 ON DELETE CASCADE)`, `INSERT INTO notes VALUES (7)`)
		done := f.mustActOnTotals(eventstore.ActCancelRebuild)
		if !strings.Contains(done.Detail, "notes") {
			f.Errorf("what the person is told: %s", done.Detail)
		}
		left := f.projection("totals").Left
		if len(left) != 1 || left[0].Build != 2 || !strings.Contains(left[0].Error, "notes") {
			f.Fatalf("left: %+v", left)
		}
		var n int
		f.query(`SELECT count(*) FROM notes`, &n)
		f.same("rows of the application", n, 1)
		if err := f.projections().DropLeft(f.ctx); err == nil || !strings.Contains(err.Error(), "notes") {
			f.Errorf("left again: %v", err)
		}
		f.mustActOnTotals(eventstore.ActRebuild)
		f.must(f.makeTables(3, []string{"sums"}, `CREATE TABLE sums__3 (n INTEGER PRIMARY KEY)`))
		f.alter(`CREATE TABLE remarks (n INTEGER REFERENCES sums__3)`)
		f.declare(totals(2)) // the next program starts
		f.same("left", len(f.projection("totals").Left), 2)
		f.declare()
		f.mustActOnTotals(eventstore.ActRemove)
		f.same("the number after those that are left", f.declare(totals(1))[0].Builds[0].Number, 4)
		f.alter(`DROP TABLE notes`)
		f.mustActOnTotals(eventstore.ActDropBuild)
		f.same("left", len(f.projection("totals").Left), 1)
		f.alter(`DROP TABLE remarks`)
		f.must(f.projections().DropLeft(f.ctx))
		f.same("left", len(f.projection("totals").Left), 0)
		f.same("tables", f.tables(), []string{})
		_, err := f.actOnTotals(eventstore.ProjectionAct{Kind: eventstore.ActDropBuild})
		f.is(err, eventstore.ErrStateMoved)
	}},
	{"Setup is refused a view as a table, and plain names that are taken", func(f *fixture) {
		f.needSQL()
		f.declare(totals(1))
		f.must(f.makeTables(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER)`))
		f.mustActOnTotals(eventstore.ActRebuild)
		f.alter(`CREATE TABLE a_table (n INTEGER)`, `CREATE VIEW a_view AS SELECT 1`, `CREATE INDEX an_index ON a_table (n)`)
		refused := func(name, word, statement string) {
			f.Helper()
			if err := f.makeTables(2, []string{name}, statement); err == nil || !strings.Contains(err.Error(), word) {
				f.Errorf("%s: %v", statement, err)
			}
		}
		refused("report", "only tables", `CREATE VIEW report__2 AS SELECT 1`)
		taken := map[string]string{"a_table": "a table", "a_view": "a view", "an_index": "a index", "A_View": "a view"}
		if !f.harness.Postgres { // there the names of triggers are not among those of tables
			f.alter(`CREATE TRIGGER a_trigger AFTER INSERT ON a_table BEGIN SELECT 1; END`)
			taken["A_Trigger"] = "a trigger"
		}
		for name, word := range taken {
			refused(name, word, `CREATE TABLE `+name+`__2 (n INTEGER)`)
		}
		f.must(f.makeTables(2, []string{"sums"}, `CREATE TABLE sums__2 (n INTEGER)`))
	}},
	{"a switch that readers cannot be shown is refused as such, and takes nothing else with it", func(f *fixture) {
		f.needSQL()
		f.declare(totals(1))
		f.must(f.makeTables(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER)`))
		f.mustActOnTotals(eventstore.ActRebuild)
		f.must(f.makeTables(2, []string{"report", "sums"}, `CREATE TABLE sums__2 (n INTEGER)`, `CREATE TABLE report__2 (n INTEGER)`))
		f.alter(`CREATE VIEW report AS SELECT 1`)
		f.refused(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 2, Switch: true, Time: base}}, eventstore.ErrNotShown)
		f.same("state", f.build("totals", 2).State, eventstore.BuildMaking)
		f.alter(`DROP VIEW report`)
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 2, Switch: true, Time: base}})
		f.same("state", f.build("totals", 2).State, eventstore.BuildCurrent)
	}},
}

// purgeOfVersions checks that what a program of another version has not read is there when it is put back.
var purgeOfVersions = check{"a purge keeps what the current build of another version has not read", func(f *fixture) {
	f.publish(f.events("order", "a", 3)...)
	f.declare(totals(1, "order"))
	f.setUp(1)
	at := f.placedEvents("", "order")
	f.commit(eventstore.Changes{Projection: moveTo(1, "", at[0], 1)})
	f.declare(totals(2, "order"))
	f.setUp(2)
	f.commit(eventstore.Changes{Projection: moveTo(2, "", at[2], 3)})
	f.purgeAll(base.Add(time.Hour))
	f.same("events kept", ids(f.everything(10)), []string{at[1].ID, at[2].ID})
	f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 2, From: at[2].Position, To: at[2].Position, Switch: true, Time: base}})
	f.purgeAll(base.Add(time.Hour))
	f.same("events kept", len(f.everything(10)), 0)
}}
