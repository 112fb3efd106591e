package keyhold_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/transport/local"
)

// ledger is a projection that keeps what it saw in memory that the test has.
type ledger struct {
	mu    sync.Mutex
	items []string
	moved chan struct{}
}

func newLedger() *ledger { return &ledger{moved: make(chan struct{}, 1000)} }

func (l *ledger) added(_ keyhold.ProjectionContext, e itemAdded) error { return l.note(e.Item) }
func (l *ledger) priced(_ keyhold.ProjectionContext, e priceSet) error { return l.note(e.Item) }

func (l *ledger) note(item string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, item)
	return nil
}

func (l *ledger) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.items...)
}

func (l *ledger) projection(name string, categories ...string) keyhold.Projection[*ledger] {
	p := keyhold.Projection[*ledger]{Name: name, Categories: categories, New: func() *ledger { return l },
		On: keyhold.ProjectionCases[*ledger]{keyhold.Project((*ledger).added), keyhold.Project((*ledger).priced)}}
	if len(categories) == 1 {
		p.On = p.On[:1]
	}
	return p
}

// observed has the ledger told of each transaction.
func (l *ledger) observed() keyhold.ProjectionObserver {
	return keyhold.ProjectionObserver{Moved: func(projection.Progress) { l.moved <- struct{}{} }}
}

// until waits until the ledger has seen these, in this order.
func (l *ledger) until(t *testing.T, want ...string) {
	t.Helper()
	for {
		got := l.seen()
		if len(got) >= len(want) {
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("seen %v, want %v", got, want)
			}
			return
		}
		<-l.moved
	}
}

func projected(store eventstore.Store, l *ledger) *keyhold.App {
	return keyhold.New(keyhold.Config{
		Name: "shop", Store: store, Transport: local.New(), Logger: slog.New(slog.DiscardHandler), Projections: l.observed(),
	})
}

func start(t *testing.T, app *keyhold.App) {
	t.Helper()
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Stop(context.Background()) })
}

func TestProjectionIsWokenByEveryDoor(t *testing.T) {
	t.Parallel()
	ctx, l := t.Context(), newLedger()
	store := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"))
	app := projected(store, l)
	app.Register(cart, price, l.projection("ledger"))
	start(t, app)
	l.until(t)
	if _, err := keyhold.Ask[*added](ctx, app, cart.ID("1"), &addItem{Item: "by-entity", Client: "ada"}); err != nil {
		t.Fatal(err)
	}
	l.until(t, "by-entity")
	if err := keyhold.Publish(ctx, app, keyhold.For("x", priceSet{Item: "by-publish"})); err != nil {
		t.Fatal(err)
	}
	l.until(t, "by-entity", "by-publish")
	tx, err := app.BeginTx(ctx)
	if err == nil {
		err = keyhold.PublishTx(ctx, app, tx, keyhold.For("x", priceSet{Item: "by-tx"}))
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.until(t, "by-entity", "by-publish", "by-tx")
}

func TestWhatIsWrongWithProjectionsIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	l, n := newLedger(), newNotes()
	app := projected(memory.Open(), l)
	twice := l.projection("twice")
	app.Register(cart, n.handler(), l.projection("register"), twice, twice, l.projection("a", "nowhere"), l.projection("b", "cart.commands"),
		l.projection("c", "cart", "price"), keyhold.Projection[*ledger]{})
	err := app.Start(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`projection "register": the name is taken by the handler of that name`, `projection "twice": the name is taken by the projection`,
		`projection "a": category "nowhere" is unknown`, `which only the entity handles: name "cart"`, `category "price" is unknown`,
		`is in no category`, `projection "": Name is empty`, `New is nil`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said:\n%v", want, err)
		}
	}
}

func TestNameOfAProjectionInTheStoreIsTaken(t *testing.T) {
	t.Parallel()
	store, l, n := memory.Open(), newLedger(), newNotes()
	app := projected(store, l)
	app.Register(cart, l.projection("register", "cart"))
	start(t, app)
	if err := app.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := projected(store, l)
	next.Register(cart, n.handler())
	if err := next.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `the store knows "register" as a projection`) {
		t.Fatalf("start: %v", err)
	}
}

func TestPauseFromOutsideIsSeenAndResumeTakenUp(t *testing.T) {
	t.Parallel()
	ctx, l := t.Context(), newLedger()
	path := filepath.Join(t.TempDir(), "shop.db")
	app := projected(sqlite.Open(path), l)
	app.Register(cart, price, l.projection("ledger"))
	start(t, app)
	attached, err := sqlite.Attach(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attached.Close() })
	outside := admin.New(attached, admin.Options{Actor: "ann"})
	act := func(kind eventstore.ActKind) {
		t.Helper()
		if _, err := outside.ActOnProjection(ctx, admin.ProjectionRequest{Kind: kind, Name: "ledger"}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(item string) {
		t.Helper()
		if err := keyhold.Publish(ctx, app, keyhold.For("x", priceSet{Item: item})); err != nil {
			t.Fatal(err)
		}
	}
	publish("before")
	l.until(t, "before")
	for { // what is not committed yet would be refused
		p, err := outside.Projection(ctx, "ledger")
		if err != nil {
			t.Fatal(err)
		}
		if p.Builds[0].Applied == 1 {
			break
		}
		<-l.moved
	}
	act(eventstore.ActPause)
	publish("paused")
	p, err := outside.Projection(ctx, "ledger")
	if err != nil || p.State != "paused" || p.Builds[0].Behind != 1 || p.Builds[0].Applied != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	act(eventstore.ActResume)
	for { // it may have been given to the behavior before, and refused by the store at its commit
		p, err := outside.Projection(ctx, "ledger")
		if err != nil {
			t.Fatal(err)
		}
		if p.State == "current" {
			break
		}
		<-l.moved
	}
	status, err := outside.Status(ctx)
	if err != nil || status.Verdict != admin.Healthy {
		t.Fatalf("%+v %v", status, err)
	}
}
