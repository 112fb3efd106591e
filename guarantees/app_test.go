package guarantees

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/local"
)

// The application under test: accounts take deposits, and a ledger that is sequential by client writes one row for each. An
// account belongs to one client and a client has two accounts, so the lane of a client mixes the events of two entities.

type deposit struct {
	Client string `json:"client"`
	Number int    `json:"number"`
}

type receipt struct {
	Number int `json:"number"`
}

type deposited struct {
	Client  string `json:"client"`
	Account string `json:"account"`
	Number  int    `json:"number"`
}

type balanceQuery struct{}

var (
	_ = keyhold.Type[deposit]("account.deposit", 1)
	_ = keyhold.Type[receipt]("account.receipt", 1)
	_ = keyhold.Type[deposited]("account.deposited", 1)
	_ = keyhold.Type[balanceQuery]("account.balance", 1)
)

// account is the number of its last deposit. Deposits are numbered by the caller and must come in order.
var account = keyhold.Entity[int]{
	Kind: "account", Version: 1, SnapshotEvery: 10,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, last int, in *deposit) (*receipt, error) {
		if in.Number != last+1 {
			return nil, keyhold.Reject("deposit %d after %d", in.Number, last)
		}
		c.Emit(deposited{Client: in.Client, Account: c.ID(), Number: in.Number})
		return &receipt{Number: in.Number}, nil
	})},
	Queries: keyhold.Queries[int]{keyhold.OnQuery(func(_ keyhold.Query, last int, _ *balanceQuery) (*receipt, error) {
		return &receipt{Number: last}, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(_ int, e deposited) int { return e.Number })},
}

const schema = `CREATE TABLE IF NOT EXISTS effects (
	n INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, sequence INTEGER NOT NULL, account TEXT NOT NULL, number INTEGER NOT NULL)`

type ledger struct{ markers *markers }

func (l *ledger) deposited(ctx keyhold.Context, e deposited) error {
	leave := l.markers.enter(ctx.Key(), uint64(ctx.Meta().Sequence))
	defer leave()
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO effects (client, sequence, account, number) VALUES ($1, $2, $3, $4)`,
		e.Client, ctx.Meta().Sequence, e.Account, e.Number)
	return err
}

func ledgerHandler(m *markers) keyhold.Handler[*ledger] {
	return keyhold.Handler[*ledger]{
		Name: "ledger", Categories: []string{"account"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		New: func(string) *ledger { return &ledger{m} },
		On:  keyhold.Behavior[*ledger]{keyhold.On((*ledger).deposited)},
	}
}

// markers are lines of enter and leave in an append-only file, one write each, which no rollback undoes.
type markers struct {
	f    *os.File
	life int // of the process, 1 for the first
}

func openMarkers(path string, life int) (*markers, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &markers{f, life}, err
}

func (m *markers) enter(key string, seq uint64) (leave func()) {
	write := func(what string) {
		if _, err := fmt.Fprintf(m.f, "%s %d %s %d\n", what, m.life, key, seq); err != nil {
			panic(err)
		}
	}
	write("enter")
	return func() { write("leave") }
}

const clients = 12

func openStore(dir string) *sqlite.Store {
	return sqlite.New(sqlite.Config{Path: dir + "/bank.db", Setup: func(ctx context.Context, tx eventstore.SQL) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	}})
}

func newApp(store *sqlite.Store, m *markers) *keyhold.App {
	app := keyhold.New(keyhold.Config{
		Name:      "bank",
		Store:     store,
		Transport: local.New(),
		IdleAfter: 50 * time.Millisecond, // so that kills meet units that come and go
		// Kills from outside, many in a second, hit the same event again and again while it runs alone: nobody can tell that from an event that
		// ends the process. Here it is known that none does.
		MaxCrashes: 1_000_000,
	})
	app.Register(account, ledgerHandler(m))
	return app
}

// child runs the application in this process: under load until it is killed ("load"), or until every effect is there ("drain").
func child(mode, dir string, life int) error {
	m, err := openMarkers(dir+"/markers", life)
	if err != nil {
		return err
	}
	store := openStore(dir)
	app := newApp(store, m)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		return err
	}
	fmt.Println("started")
	if mode == "drain" {
		if err := drain(ctx, store); err != nil {
			return err
		}
		return app.Stop(ctx)
	}
	var out sync.Mutex
	errs := make(chan error, clients*2)
	for c := range clients {
		for a := range 2 {
			client, id := clientName(c), fmt.Sprintf("acc-%02d-%d", c, a)
			go func() { errs <- deposits(ctx, app, client, id, &out) }()
		}
	}
	return <-errs
}

// drain waits until there are as many effects as events.
func drain(ctx context.Context, store *sqlite.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		total := event.Sequence(0)
		for c := range clients {
			tail, err := store.LaneTail(ctx, laneOf(c))
			if err != nil {
				return err
			}
			total += tail
		}
		var effects event.Sequence
		if err := store.Reader().QueryRowContext(ctx, `SELECT count(*) FROM effects`).Scan(&effects); err != nil {
			return err
		}
		if effects >= total {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d effects of %d events after a minute", effects, total)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func laneOf(client int) event.LaneRef {
	return event.LaneRef{Category: "account", Key: clientName(client)}
}

func clientName(c int) string { return fmt.Sprintf("client-%02d", c) }

// deposits goes on with an account where it stands, and says on standard output what was acknowledged.
func deposits(ctx context.Context, app *keyhold.App, client, id string, out *sync.Mutex) error {
	balance, err := keyhold.Ask[*receipt](ctx, app, account.ID(id), &balanceQuery{})
	if err != nil {
		return err
	}
	for n := balance.Number + 1; ; n++ {
		_, err := keyhold.Ask[*receipt](ctx, app, account.ID(id), &deposit{Client: client, Number: n}, keyhold.CommandID(id+"-"+strconv.Itoa(n)))
		if err != nil && !errors.Is(err, actors.ErrMailboxFull) {
			return fmt.Errorf("deposit %d into %s: %w", n, id, err)
		}
		out.Lock()
		fmt.Printf("ack %s %d\n", id, n)
		out.Unlock()
	}
}

func parseAck(line string) (id string, n int, ok bool) {
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != "ack" {
		return "", 0, false
	}
	n, err := strconv.Atoi(f[2])
	return f[1], n, err == nil
}
