package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
)

// declare declares the projection totals, of a version.
func (d *desk) declare(version int) {
	d.Helper()
	_, err := d.store.DeclareProjections(d.Context(), []eventstore.ProjectionDeclared{{Name: "totals", Version: version}})
	d.must(err)
}

// build runs Setup of a build: statements, and the names of the tables that it is said to make.
func (d *desk) build(number int, names []string, statements ...string) error {
	d.Helper()
	tx := d.store.Begin("setup")
	db, err := tx.SQL(d.Context())
	d.must(err)
	for _, s := range statements {
		_, err := db.ExecContext(d.Context(), s)
		d.must(err)
	}
	_, err = tx.Commit(d.Context(), eventstore.Changes{Projection: &eventstore.ProjectionStep{
		Name: "totals", Build: number, Time: then, Setup: &eventstore.BuildTables{Names: names}}})
	return err
}

// switchTo has a build take the place of the one before.
func (d *desk) switchTo(number int) error {
	_, err := d.store.Begin("switch").Commit(d.Context(), eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: number, Time: then, Switch: true}})
	return err
}

func (d *desk) rebuild() {
	d.Helper()
	_, err := d.store.ActOnProjection(d.Context(), eventstore.ProjectionAct{Kind: eventstore.ActRebuild, Name: "totals", Actor: "ann"})
	d.must(err)
}

func (d *desk) state(number int) eventstore.BuildState {
	d.Helper()
	p, err := d.store.ReadProjection(d.Context(), "totals")
	d.must(err)
	if b := p.Build(number); b != nil {
		return b.State
	}
	return ""
}

func TestASwitchKeepsWhatOthersMayDoWithAView(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.declare(1)
	d.must(d.build(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER)`))
	if _, err := d.raw.Exec(t.Context(), `GRANT SELECT ON sums TO pg_monitor; CREATE VIEW report AS SELECT sum(n) FROM sums`); err != nil {
		t.Fatal(err)
	}
	d.rebuild()
	d.must(d.build(2, []string{"sums"}, `CREATE TABLE sums__2 (n INTEGER, more TEXT)`, `INSERT INTO sums__2 VALUES (2)`))
	d.must(d.switchTo(2))
	var n int
	var granted bool
	d.value(&n, `SELECT * FROM report`)
	d.value(&granted, `SELECT has_table_privilege('pg_monitor', 'sums', 'SELECT')`)
	if n != 2 || !granted {
		t.Errorf("the report tells %d; granted: %v", n, granted)
	}

	// Columns that are others need another view, which the report is in the way of.
	d.rebuild()
	d.must(d.build(3, []string{"sums"}, `CREATE TABLE sums__3 (total INTEGER)`, `INSERT INTO sums__3 VALUES (3)`))
	if err := d.switchTo(3); !errors.Is(err, eventstore.ErrNotShown) || !strings.Contains(err.Error(), "depend") {
		t.Errorf("switch: %v", err)
	}
	if got := d.state(3); got != eventstore.BuildMaking {
		t.Errorf("build 3 is %s", got)
	}
	if _, err := d.raw.Exec(t.Context(), `DROP VIEW report`); err != nil {
		t.Fatal(err)
	}
	d.must(d.switchTo(3))
	if d.value(&n, `SELECT total FROM sums`); n != 3 {
		t.Errorf("readers see %d", n)
	}
}

// Readers queue behind a switch that waits for one of them: so it does not wait for long, and is tried again.
func TestASwitchDoesNotWaitForLongForAReader(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.declare(1)
	d.must(d.build(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER)`))
	d.rebuild()
	d.must(d.build(2, []string{"sums"}, `CREATE TABLE sums__2 (n INTEGER)`))
	read := d.hold(`SELECT FROM sums`)
	if err := d.switchTo(2); !errors.Is(err, eventstore.ErrTrouble) || errors.Is(err, eventstore.ErrNotShown) {
		t.Errorf("while somebody reads: %v", err)
	}
	read()
	d.must(d.switchTo(2))
	reads := d.hold(`SELECT FROM sums__1`)
	if err := d.store.DropBuild(t.Context(), "totals", 1); err == nil || !strings.Contains(err.Error(), "sums__1") {
		t.Errorf("drop while somebody reads: %v", err)
	}
	if got := d.state(1); got != "" {
		t.Errorf("build 1 is %s, and was to be forgotten", got)
	}
	reads()
	d.must(d.store.DropLeft(t.Context()))
	var there bool
	if d.value(&there, `SELECT to_regclass('sums__1') IS NOT NULL`); there {
		t.Error("its table is there")
	}
}

func TestATableIsFoundInWhateverCaseItWasWritten(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.declare(1)
	d.must(d.build(1, []string{"Exact", "Sums"}, `CREATE TABLE Sums__1 (n INTEGER)`, `CREATE TABLE "Exact__1" (n INTEGER)`))
	var n int
	d.value(&n, `SELECT count(*) FROM Sums`)
	d.value(&n, `SELECT count(*) FROM "Exact"`)
	d.rebuild()
	d.must(d.build(2, []string{"Exact", "Sums"}, `CREATE TABLE Sums__2 (n INTEGER)`, `CREATE TABLE "Exact__2" (other TEXT)`))
	d.must(d.switchTo(2))
	d.value(&n, `SELECT count(*) FROM Sums`)
	d.value(&n, `SELECT count(other) FROM "Exact"`)
	d.must(d.store.DropBuild(t.Context(), "totals", 1))
	if d.value(&n, `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname ~* '__[0-9]$' AND relkind = 'r'`); n != 2 {
		t.Errorf("%d tables of builds, want 2", n)
	}
}

func TestANameThatTheDatabaseWouldCutIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.declare(1)
	name := strings.Repeat("a", maxName-2) // with __1 behind, one too long
	if err := d.build(1, []string{name}, fmt.Sprintf(`CREATE TABLE %s__1 (n INTEGER)`, name)); err == nil || !strings.Contains(err.Error(), "choose a shorter one") {
		t.Errorf("%v", err)
	}
	d.must(d.build(1, []string{name[1:]}, fmt.Sprintf(`CREATE TABLE %s__1 (n INTEGER)`, name[1:])))
}

func TestWhatDependsOnATableKeepsItFromBeingDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.declare(1)
	d.must(d.build(1, []string{"sums"}, `CREATE TABLE sums__1 (n INTEGER)`))
	d.rebuild()
	d.must(d.build(2, []string{"sums"}, `CREATE TABLE sums__2 (n INTEGER)`))
	if _, err := d.raw.Exec(t.Context(), `CREATE VIEW notes AS SELECT n FROM sums__2`); err != nil {
		t.Fatal(err)
	}
	done, err := d.at.ActOnProjection(t.Context(), eventstore.ProjectionAct{Kind: eventstore.ActCancelRebuild, Name: "totals", Actor: "ann"})
	d.must(err)
	if !strings.Contains(done.Detail, "notes") || done.ID == 0 {
		t.Errorf("the person is told: %+v", done)
	}
}

// A build's own step holds the projection, an act waits for it, and decides on what it left.
func TestAnActOnAProjectionComesAfterTheStepThatHasIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 2))
	d.declare(1)
	placed, err := d.store.ReadPlaced(t.Context(), nil, "", nil, 10)
	d.must(err)
	at := eventstore.ProjectionEvent{ID: placed[0].ID, Position: placed[0].Position}
	d.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 1, Time: then, Halt: &eventstore.ProjectionHalt{Event: at, Reason: "poison", Since: then}}})
	skip := eventstore.ProjectionAct{Kind: eventstore.ActSkip, Name: "totals", Event: at.ID, Actor: "ann", Reason: "seen"}
	release := d.holdActs()
	acting := func() error {
		_, err := d.at.ActOnProjection(t.Context(), skip)
		return err
	}
	first := background(acting)
	d.waiting(1)
	second := background(acting)
	step := d.committing(eventstore.Changes{Projection: &eventstore.ProjectionStep{Name: "totals", Build: 1, To: placed[1].Position, Applied: 2, Time: then}})
	d.waiting(3)
	release()
	d.must(<-first)
	if err := <-second; !errors.Is(err, eventstore.ErrStateMoved) {
		t.Errorf("second act: %v", err)
	}
	if err := <-step; !errors.Is(err, eventstore.ErrProjectionMoved) {
		t.Errorf("a step from where it was: %v", err)
	}
}

// Inside a unit of work a read has everybody wait who would add something, and nobody else ever finds a place below what it saw.
func TestNothingIsAddedWhileALastStretchReads(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	tx := d.store.Begin("stretch")
	db, err := tx.SQL(t.Context())
	d.must(err)
	read := func() int {
		found, err := d.store.ReadPlaced(t.Context(), db, "", nil, 10)
		d.must(err)
		return len(found)
	}
	before := read()
	late := d.committing(events("b", 1))
	d.waiting(1)
	if after := read(); before != 1 || after != 1 {
		t.Errorf("it reads %d, then %d", before, after)
	}
	d.must(tx.Rollback())
	d.must(<-late)
}
