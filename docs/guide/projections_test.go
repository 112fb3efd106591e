package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/transport/local"
)

// The samples of projections.md: what is sold, by day.

type TicketSold struct {
	Show  string    `json:"show"`
	Day   time.Time `json:"day"`
	Cents int64     `json:"cents"`
}

var _ = keyhold.Type[TicketSold]("ticket.sold", 1)

var tickets = keyhold.Category{Name: "ticket", Key: "show", Events: []keyhold.EventType{keyhold.EventOf[TicketSold]()}}

type salesByDay struct{}

func (*salesByDay) sold(ctx keyhold.ProjectionContext, e TicketSold) error {
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO `+ctx.Table("sales_by_day")+` (day, tickets, cents) VALUES ($1, 1, $2)
		ON CONFLICT (day) DO UPDATE SET tickets = tickets + 1, cents = cents + excluded.cents`, e.Day.Format(time.DateOnly), e.Cents)
	return err
}

var salesProjection = keyhold.Projection[*salesByDay]{
	Name:       "sales-by-day",
	Categories: []string{"ticket"},
	Setup: func(ctx keyhold.ProjectionContext) error {
		_, err := ctx.Tx().ExecContext(ctx, `CREATE TABLE `+ctx.Table("sales_by_day")+` (day TEXT PRIMARY KEY, tickets INTEGER NOT NULL, cents INTEGER NOT NULL)`)
		return err
	},
	New: func() *salesByDay { return &salesByDay{} },
	On:  keyhold.ProjectionCases[*salesByDay]{keyhold.Project((*salesByDay).sold)},
}

// The second version keeps the dearest ticket, too.

type salesByDayV2 struct{}

func (*salesByDayV2) sold(ctx keyhold.ProjectionContext, e TicketSold) error {
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO `+ctx.Table("sales_by_day")+` (day, tickets, cents, dearest) VALUES ($1, 1, $2, $2)
		ON CONFLICT (day) DO UPDATE SET tickets = tickets + 1, cents = cents + excluded.cents, dearest = max(dearest, excluded.dearest)`, e.Day.Format(time.DateOnly), e.Cents)
	return err
}

var salesProjectionV2 = keyhold.Projection[*salesByDayV2]{
	Name: "sales-by-day", Categories: []string{"ticket"},
	Version: 2, // was 1: what the tables hold is another thing now
	Setup: func(ctx keyhold.ProjectionContext) error {
		_, err := ctx.Tx().ExecContext(ctx, `CREATE TABLE `+ctx.Table("sales_by_day")+` (day TEXT PRIMARY KEY, tickets INTEGER NOT NULL, cents INTEGER NOT NULL, dearest INTEGER NOT NULL)`)
		return err
	},
	New: func() *salesByDayV2 { return &salesByDayV2{} },
	On:  keyhold.ProjectionCases[*salesByDayV2]{keyhold.Project((*salesByDayV2).sold)},
}

// What is sold, by show: tables with a foreign key and an index.

type seats struct{}

func (*seats) sold(ctx keyhold.ProjectionContext, e TicketSold) error {
	if _, err := ctx.Tx().ExecContext(ctx, `INSERT INTO `+ctx.Table("shows")+` (name) VALUES ($1) ON CONFLICT DO NOTHING`, e.Show); err != nil {
		return err
	}
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO `+ctx.Table("seats")+` (show, cents) VALUES ($1, $2)`, e.Show, e.Cents)
	return err
}

var seatsProjection = keyhold.Projection[*seats]{
	Name: "seats", Categories: []string{"ticket"},
	Setup: func(ctx keyhold.ProjectionContext) error {
		for _, statement := range []string{
			`CREATE TABLE ` + ctx.Table("shows") + ` (name TEXT PRIMARY KEY)`,
			`CREATE TABLE ` + ctx.Table("seats") + ` (show TEXT NOT NULL REFERENCES ` + ctx.Table("shows") + `, cents INTEGER NOT NULL)`,
			`CREATE INDEX ` + ctx.Table("seats") + `_by_show ON ` + ctx.Table("seats") + ` (show)`,
		} {
			if _, err := ctx.Tx().ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	},
	New: func() *seats { return &seats{} },
	On:  keyhold.ProjectionCases[*seats]{keyhold.Project((*seats).sold)},
}

func takings(ctx context.Context, db *sql.DB, day string) (tickets, cents int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT tickets, cents FROM sales_by_day WHERE day = $1`, day).Scan(&tickets, &cents)
	return tickets, cents, err
}

// boxOffice is an application with a projection on a store, and what it tells.
type boxOffice struct {
	*keyhold.App
	caughtUp chan projection.Build
	switched chan projection.Build
}

func openBoxOffice(t *testing.T, store *sqlite.Store, p keyhold.Declaration) *boxOffice {
	t.Helper()
	b := &boxOffice{caughtUp: make(chan projection.Build, 100), switched: make(chan projection.Build, 10)}
	b.App = keyhold.New(keyhold.Config{
		Name: "box-office", Store: store, Transport: local.New(), Logger: slog.New(slog.DiscardHandler),
		Projections: keyhold.ProjectionObserver{
			CaughtUp: func(now projection.Build) { b.caughtUp <- now },
			Switched: func(now projection.Build, _ int) { b.switched <- now },
		},
	})
	b.Register(tickets, p)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	return b
}

func TestProjectionsOfTheGuide(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "tickets.db")
	store := sqlite.Open(path)
	app := openBoxOffice(t, store, salesProjection)
	day := time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC)
	sell := func(app *boxOffice, cents int64) {
		t.Helper()
		if err := keyhold.Publish(ctx, app.App, TicketSold{Show: "hamlet", Day: day, Cents: cents}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(tickets, cents int64, told <-chan projection.Build) {
		t.Helper()
		for {
			n, sum, err := takings(ctx, store.Reader(), "2026-03-01")
			if err == nil && n == tickets && sum == cents {
				return
			}
			<-told
		}
	}
	sell(app, 2000)
	sell(app, 3500)
	until(2, 5500, app.caughtUp)

	desk := app.Admin()
	done, err := desk.ActOnProjection(ctx, admin.ProjectionRequest{Kind: eventstore.ActRebuild, Name: "sales-by-day"})
	if err != nil || done.TakenUp != "at once" {
		t.Fatal(done, err)
	}
	if now := <-app.switched; now.Number != 2 {
		t.Fatalf("readers see build %d", now.Number)
	}
	if err := app.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	app = openBoxOffice(t, store, salesProjectionV2)
	if now := <-app.switched; now.Number != 3 {
		t.Fatalf("readers see build %d", now.Number)
	}
	var dearest int64
	if err := store.Reader().QueryRowContext(ctx, `SELECT dearest FROM sales_by_day`).Scan(&dearest); err != nil || dearest != 3500 {
		t.Fatal(dearest, err)
	}

	// From outside, beside the running application.
	attached, err := sqlite.Attach(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	outside := admin.New(attached, admin.Options{Actor: "ann"})
	if _, err := outside.ActOnProjection(ctx, admin.ProjectionRequest{Kind: eventstore.ActRebuild, Name: "sales-by-day"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if now := <-app.switched; now.Number != 4 {
		t.Fatalf("readers see build %d", now.Number)
	}
	t.Log("taken up and built within", time.Since(began))
	if _, err := desk.Projections(ctx); !errors.Is(err, keyhold.ErrNotStarted) {
		t.Fatalf("the desk of a stopped application: %v", err)
	}
	p, err := app.Admin().Projection(ctx, "sales-by-day")
	if err != nil || p.State != "current" || !p.Declared {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestRebuildOfTablesWithAnIndexAndAForeignKey(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), sqlite.Open(filepath.Join(t.TempDir(), "tickets.db"))
	app := openBoxOffice(t, store, seatsProjection)
	if err := keyhold.Publish(ctx, app.App, TicketSold{Show: "hamlet", Cents: 2000}); err != nil {
		t.Fatal(err)
	}
	for number := 2; number <= 3; number++ {
		if _, err := app.Admin().ActOnProjection(ctx, admin.ProjectionRequest{Kind: eventstore.ActRebuild, Name: "seats"}); err != nil {
			t.Fatal(err)
		}
		if now := <-app.switched; now.Number != number {
			t.Fatalf("readers see build %d", now.Number)
		}
	}
	for { // until the old tables are gone
		p, err := app.Admin().Projection(ctx, "seats")
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Builds) == 1 {
			break
		}
		<-app.caughtUp
	}
	var objects string
	var cents int64
	err := store.Reader().QueryRowContext(ctx, `SELECT group_concat(name, ' ' ORDER BY name) FROM sqlite_schema WHERE name LIKE 'seats%' OR name LIKE 'shows%'`).Scan(&objects)
	if err != nil || objects != "seats seats__3 seats__3_by_show shows shows__3" {
		t.Errorf("%q %v", objects, err)
	}
	if err := store.Reader().QueryRowContext(ctx, `SELECT cents FROM seats JOIN shows ON show = name`).Scan(&cents); err != nil || cents != 2000 {
		t.Error(cents, err)
	}
}

func Example_projectionFaults() {
	wrong := keyhold.Projection[*salesByDay]{Name: "sales", On: keyhold.ProjectionCases[*salesByDay]{keyhold.Project((*salesByDay).sold)}}
	for _, fault := range wrong.Faults() {
		fmt.Println(fault)
	}
	// Output: projection "sales": New is nil: give it a func() *guide_test.salesByDay
}
