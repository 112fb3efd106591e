package guarantees

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/local"
)

// The application whose events go wrong: tickets of clients, which billing (it halts) and mailing (it parks) apply one at a time by client. What
// goes wrong is said by files, so that the test can break and mend it while processes come and go.

type ticket struct {
	Client string `json:"client"`
	Number int    `json:"number"`
}

var _ = keyhold.Type[ticket]("ticket.opened", 1)

const deskSchema = `CREATE TABLE IF NOT EXISTS effects (
	n INTEGER PRIMARY KEY AUTOINCREMENT, handler TEXT NOT NULL, client TEXT NOT NULL, number INTEGER NOT NULL)`

type clerk struct {
	handler, dir string
	markers      *markers
}

func (c *clerk) opened(ctx keyhold.Context, e ticket) error {
	defer c.markers.enter(c.handler+"/"+e.Client, uint64(ctx.Meta().Sequence))()
	if err := trouble(c.dir, c.handler, e); err != nil {
		return err
	}
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO effects (handler, client, number) VALUES ($1, $2, $3)`, c.handler, e.Client, e.Number)
	return err
}

// troubleFile says what goes wrong with one event at one handler.
func troubleFile(dir, handler, client string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("trouble-%s-%s-%d", handler, client, number))
}

func trouble(dir, handler string, e ticket) error {
	how, err := os.ReadFile(troubleFile(dir, handler, e.Client, e.Number))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	switch string(how) {
	case "error":
		return errors.New("no such address")
	case "exit":
		os.Exit(3)
	case "memory":
		exhaust()
	}
	return err
}

func clerkHandler(name string, policy keyhold.Policy, dir string, m *markers) keyhold.Handler[*clerk] {
	return keyhold.Handler[*clerk]{
		Name: name, Categories: []string{"ticket"}, SequentialBy: "client", StartFrom: keyhold.Oldest, OnPoison: policy,
		Retry: keyhold.RetryPolicy{Attempts: 2, Min: time.Millisecond},
		New:   func(string) *clerk { return &clerk{name, dir, m} },
		On:    keyhold.Behavior[*clerk]{keyhold.On((*clerk).opened)},
	}
}

func deskStore(dir string) *sqlite.Store {
	return sqlite.New(sqlite.Config{Path: filepath.Join(dir, "desk.db"), Setup: func(ctx context.Context, tx eventstore.SQL) error {
		_, err := tx.ExecContext(ctx, deskSchema)
		return err
	}})
}

func deskApp(store *sqlite.Store, dir string, m *markers) *keyhold.App {
	app := keyhold.New(keyhold.Config{Name: "desk", Store: store, Transport: local.New(), IdleAfter: 50 * time.Millisecond})
	app.Register(keyhold.Category{Name: "ticket", Key: "client", Events: []keyhold.EventType{keyhold.EventOf[ticket]()}},
		clerkHandler("billing", keyhold.Halt, dir, m), clerkHandler("mailing", keyhold.ParkSequence, dir, m), boardProjection(dir, m))
	return app
}

// boardProjection is given all tickets in the order of their commits.
func boardProjection(dir string, m *markers) keyhold.Projection[*clerk] {
	return keyhold.Projection[*clerk]{
		Name: "board", Categories: []string{"ticket"},
		Retry: keyhold.RetryPolicy{Attempts: 2, Min: time.Millisecond},
		New:   func() *clerk { return &clerk{"board", dir, m} },
		On:    keyhold.ProjectionCases[*clerk]{keyhold.Project((*clerk).listed)},
	}
}

func (c *clerk) listed(ctx keyhold.ProjectionContext, e ticket) error {
	defer c.markers.enter(c.handler+"/"+e.Client, uint64(ctx.Meta().Sequence))()
	if err := trouble(c.dir, c.handler, e); err != nil {
		return err
	}
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO effects (handler, client, number) VALUES ($1, $2, $3)`, c.handler, e.Client, e.Number)
	return err
}

// deskChild runs the application in this process, and does what it is told on standard input: "publish CLIENT FROM TO", "effects
// HANDLER", "stop".
func deskChild(dir string, life int) error {
	m, err := openMarkers(filepath.Join(dir, "markers"), life)
	if err != nil {
		return err
	}
	store := deskStore(dir)
	app := deskApp(store, dir, m)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		return err
	}
	fmt.Println("started")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Fields(in.Text())
		switch f[0] {
		case "publish":
			err = publish(ctx, app, f[1:])
		case "effects":
			err = tellEffects(ctx, store, f[1])
		case "stop":
			return app.Stop(ctx)
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return errors.New("the test is gone")
}

// publish opens tickets of clients, all in one commit: "c-1,c-2 1 10".
func publish(ctx context.Context, app *keyhold.App, args []string) error {
	from, err1 := strconv.Atoi(args[1])
	to, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var events []any
	for n := from; n <= to; n++ {
		for client := range strings.SplitSeq(args[0], ",") {
			events = append(events, ticket{Client: client, Number: n})
		}
	}
	return keyhold.Publish(ctx, app, events...)
}

func tellEffects(ctx context.Context, store *sqlite.Store, handler string) error {
	rows, err := store.Reader().QueryContext(ctx, `SELECT client, number FROM effects WHERE handler = $1 ORDER BY n`, handler)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var client string
		var number int
		if err := rows.Scan(&client, &number); err != nil {
			return err
		}
		fmt.Println("effect", client, number)
	}
	return rows.Err()
}
