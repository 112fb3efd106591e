package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/local"
)

// A shop in miniature: carts take items, and a register that is sequential by client notes them down.

type addItem struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

type added struct{ Count int }

type itemAdded struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

// itemLost is of the carts' category, but no cart emits it.
type itemLost struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

type priceSet struct {
	Item string `json:"item"`
}

var (
	_ = keyhold.Type[addItem]("cart.add", 1)
	_ = keyhold.Type[added]("cart.added", 1)
	_ = keyhold.Type[itemAdded]("cart.item", 1)
	_ = keyhold.Type[itemLost]("cart.lost", 1)
	_ = keyhold.Type[priceSet]("price.set", 1)
)

var cart = keyhold.Entity[int]{
	Kind: "cart", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, n int, in *addItem) (*added, error) {
		if in.Item == "" {
			return nil, keyhold.Reject("no item")
		}
		c.Emit(itemAdded(*in))
		return &added{n + 1}, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ itemAdded) int { return n + 1 })},
}

// notes is what the handlers saw, by key, and which items they refuse.
type notes struct {
	mu struct {
		sync.Mutex
		seen   map[string][]string
		refuse map[string]bool
	}
	news chan string
}

func newNotes() *notes {
	n := &notes{news: make(chan string, 100)}
	n.mu.seen, n.mu.refuse = map[string][]string{}, map[string]bool{}
	return n
}

func (n *notes) take(key, item string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.refuse[item] {
		return keyhold.Poison(fmt.Errorf("cannot take %s", item))
	}
	n.mu.seen[key] = append(n.mu.seen[key], item)
	n.news <- item
	return nil
}

func (n *notes) refuse(item string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.refuse[item] = yes
}

func (n *notes) of(key string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.mu.seen[key]...)
}

func (n *notes) handler() keyhold.Handler[*notes] {
	return keyhold.Handler[*notes]{
		Name: "register", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		New: func(string) *notes { return n },
		On: keyhold.Behavior[*notes]{keyhold.On(func(n *notes, ctx keyhold.Context, e itemAdded) error {
			return n.take(ctx.Key(), e.Item)
		})},
	}
}

// prices handles what is published from outside, in buckets.
func (n *notes) prices() keyhold.Handler[*notes] {
	return keyhold.Handler[*notes]{
		Name: "prices", Categories: []string{"price"}, StartFrom: keyhold.Oldest,
		New: func(string) *notes { return n },
		On: keyhold.Behavior[*notes]{keyhold.On(func(n *notes, _ keyhold.Context, e priceSet) error {
			return n.take("price", e.Item)
		})},
	}
}

var price = keyhold.Category{Name: "price", Events: []keyhold.EventType{keyhold.EventOf[priceSet]()}}

var losses = keyhold.Category{Name: "cart", Events: []keyhold.EventType{keyhold.EventOf[itemLost]()}}

// losses handles what is published beside what carts emit.
func (n *notes) losses() keyhold.Handler[*notes] {
	h := n.handler()
	h.Name, h.On = "losses", keyhold.Behavior[*notes]{keyhold.On(func(n *notes, ctx keyhold.Context, e itemLost) error {
		return n.take(ctx.Key(), e.Item)
	})}
	return h
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func inMemory() keyhold.Config {
	return keyhold.Config{Name: "shop", Store: memory.Open(), Transport: inline.New(), Logger: quiet}
}

func onDisk(path string) keyhold.Config {
	return keyhold.Config{Name: "shop", Store: sqlite.Open(path), Transport: local.New(), Logger: quiet}
}

func run(t *testing.T, cfg keyhold.Config, declarations ...keyhold.Declaration) *keyhold.App {
	t.Helper()
	app := keyhold.New(cfg)
	app.Register(declarations...)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, app) })
	return app
}

func stop(t *testing.T, app *keyhold.App) {
	t.Helper()
	if err := app.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func add(t *testing.T, app *keyhold.App, id, client, item string) {
	t.Helper()
	if _, err := keyhold.Ask[*added](t.Context(), app, cart.ID(id), &addItem{client, item}); err != nil {
		t.Fatal(err)
	}
}

func TestInlineDeliversBeforeTheAskReturns(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, n.handler())
	add(t, app, "c1", "ada", "tea")
	add(t, app, "c2", "ada", "milk")
	if d := cmp.Diff([]string{"tea", "milk"}, n.of("ada")); d != "" {
		t.Error(d)
	}
}

func TestStoppedApplicationGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	n := newNotes()
	path := filepath.Join(t.TempDir(), "shop.db")
	app := run(t, onDisk(path), cart, n.handler())
	add(t, app, "c1", "ada", "tea")
	stop(t, app)
	if _, err := keyhold.Ask[*added](t.Context(), app, cart.ID("c1"), &addItem{"ada", "milk"}); !errors.Is(err, keyhold.ErrStopping) {
		t.Errorf("ask of a stopped application: %v", err)
	}
	for _, err := range []error{
		keyhold.Send(t.Context(), app, cart.ID("c1"), &addItem{}), keyhold.Tell(t.Context(), app, cart.ID("c1"), &addItem{}),
		keyhold.Do(t.Context(), app, func(keyhold.UnitOfWork) error { return nil }), keyhold.PublishTx(t.Context(), app, nil),
	} {
		if !errors.Is(err, keyhold.ErrNotStarted) {
			t.Errorf("a stopped application answers %v", err)
		}
	}
	stop(t, app) // again: a no-op
	again := run(t, onDisk(path), cart, n.handler())
	reply, err := keyhold.Ask[*added](t.Context(), again, cart.ID("c1"), &addItem{"ada", "milk"})
	if err != nil || reply.Count != 2 {
		t.Errorf("after the restart: %+v, %v", reply, err)
	}
	for _, want := range []string{"tea", "milk"} {
		if got := <-n.news; got != want {
			t.Errorf("handled %q, want %q", got, want)
		}
	}
}

func TestSecondApplicationOnAStoreIsToldWhoHasIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	run(t, onDisk(path), cart)
	second := keyhold.New(onDisk(path))
	second.Register(cart)
	err := second.Start(t.Context())
	if !errors.Is(err, keyhold.ErrOwned) || !strings.Contains(err.Error(), "shop@") || !strings.Contains(err.Error(), path) {
		t.Errorf("second start: %v", err)
	}
}

func TestStartReportsAllFaultsAtOnceAndLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	app := keyhold.New(keyhold.Config{Name: "a:b"})
	app.Register(keyhold.Entity[int]{Kind: "a:b"}, nil)
	err := app.Start(t.Context())
	for _, want := range []string{"config: Name", "Store is nil", "Transport is nil", `entity "a:b": Kind`, "argument 2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if app.Running() {
		t.Error("running after a start that failed")
	}
}

func TestStartThatFailsAfterTheStoreWasOpenedClosesIt(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	cfg := inMemory()
	cfg.Store = store
	n := newNotes()
	app := run(t, cfg, cart, n.handler())
	add(t, app, "c1", "ada", "tea")
	stop(t, app)
	cfg.Transport = inline.New()
	contradicting := n.handler()
	contradicting.Name, contradicting.StartFrom = "newcomer", ""
	second := keyhold.New(cfg)
	second.Register(cart, contradicting)
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "StartFrom") {
		t.Fatalf("a newcomer without StartFrom: %v", err)
	}
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"}); err != nil {
		t.Errorf("the store was left open: %v", err)
	}
	store.Stop(t.Context())
}

func TestHandlerFromNowSkipsWhatWasBefore(t *testing.T) {
	t.Parallel()
	cfg, n := inMemory(), newNotes()
	keyed := keyhold.Category{Name: "cart", Key: "client"}
	app := run(t, cfg, cart, keyed)
	add(t, app, "c1", "ada", "tea")
	stop(t, app)
	cfg.Transport = inline.New()
	late := n.handler()
	late.StartFrom = keyhold.Now
	again := run(t, cfg, cart, keyed, late)
	add(t, again, "c1", "ada", "milk")
	add(t, again, "c1", "bob", "jam")
	if d := cmp.Diff(map[string][]string{"ada": {"milk"}, "bob": {"jam"}}, map[string][]string{"ada": n.of("ada"), "bob": n.of("bob")}); d != "" {
		t.Error(d)
	}
}

func TestEventWithABadKeyFailsItsCallerAndLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg, n := inMemory(), newNotes()
	app := run(t, cfg, cart, losses, n.handler())
	_, err := keyhold.Ask[*added](t.Context(), app, cart.ID("c1"), &addItem{"a:b", "tea"})
	if !errors.Is(err, keyhold.ErrBadKey) {
		t.Errorf("ask: %v", err)
	}
	err = keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		u.Emit(itemLost{Client: "ada", Item: "tea"}, itemLost{Client: "", Item: "milk"})
		return nil
	})
	if !errors.Is(err, keyhold.ErrBadKey) {
		t.Errorf("do: %v", err)
	}
	all, _, err := cfg.Store.ReadAll(t.Context(), "", nil, 10)
	if err != nil || len(all) != 0 {
		t.Errorf("left in the store: %v, %v", all, err)
	}
}

func TestDoPublishesAndSendsTogether(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, price, n.handler(), n.prices())
	boom := errors.New("boom")
	work := func(err error) error {
		return keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
			u.Emit(keyhold.For("tea", priceSet{"tea"}))
			u.Send(cart.ID("c1"), &addItem{"ada", "tea"})
			return err
		})
	}
	if err := work(boom); !errors.Is(err, boom) {
		t.Errorf("do: %v", err)
	}
	if err := work(nil); err != nil {
		t.Error(err)
	}
	got := map[string][]string{"ada": n.of("ada"), "price": n.of("price")}
	if d := cmp.Diff(map[string][]string{"ada": {"tea"}, "price": {"tea"}}, got); d != "" {
		t.Error(d)
	}
}

func TestPublishTxCommitsWithTheApplicationsOwnTransaction(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, onDisk(filepath.Join(t.TempDir(), "shop.db")), cart, losses, price, n.losses(), n.prices())
	begin := func() *keyhold.Tx {
		tx, err := app.BeginTx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	tx := begin()
	if _, err := tx.ExecContext(t.Context(), `CREATE TABLE mine (x)`); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.PublishTx(t.Context(), app, tx, keyhold.For("tea", priceSet{"tea"})); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.PublishTx(t.Context(), app, tx, keyhold.For("tea", priceSet{"tea"})); !errors.Is(err, eventstore.ErrStaged) {
		t.Errorf("a second call: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tx = begin()
	err := keyhold.PublishTx(t.Context(), app, tx, priceSet{"tea"}, stranger{})
	if err == nil || !strings.Contains(err.Error(), "keyhold.For(id, event)") || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("bad events: %v", err)
	}
	if err := keyhold.PublishTx(t.Context(), app, tx, keyhold.For("milk", priceSet{"milk"}), itemLost{"ada", "jam"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{<-n.news: true, <-n.news: true}
	if d := cmp.Diff(map[string]bool{"milk": true, "jam": true}, got); d != "" {
		t.Error(d)
	}
	other := run(t, inMemory(), cart, losses)
	if err := keyhold.PublishTx(t.Context(), other, tx, itemLost{"ada", "jam"}); err == nil {
		t.Error("a transaction of another application was accepted")
	}
}

type stranger struct{}

func TestMemoryHasNoTransactionsOfItsOwn(t *testing.T) {
	t.Parallel()
	app := run(t, inMemory(), cart)
	if _, err := app.BeginTx(t.Context()); !errors.Is(err, eventstore.ErrNoSQL) {
		t.Errorf("begin: %v", err)
	}
}

func TestHaltedKeyWaitsForAPersonAndOthersGoOn(t *testing.T) {
	t.Parallel()
	n := newNotes()
	path := filepath.Join(t.TempDir(), "shop.db")
	halted := make(chan eventstore.Halt, 10)
	cfg := onDisk(path)
	cfg.Observer = keyhold.Observer{Halted: func(h eventstore.Halt) { halted <- h }}
	app := run(t, cfg, cart, n.handler())
	n.refuse("bomb", true)
	add(t, app, "c1", "ada", "bomb")
	add(t, app, "c1", "ada", "tea")
	add(t, app, "c2", "bob", "jam")
	if h := <-halted; h.Unit != (event.Unit{Name: "register", Key: "ada"}) || h.Sequence != 1 || h.Attempts != 1 {
		t.Errorf("halted: %+v", h)
	}
	if got := <-n.news; got != "jam" {
		t.Errorf("handled %q, want the other key's", got)
	}
	stop(t, app)

	cfg = onDisk(path)
	cfg.Observer = keyhold.Observer{Halted: func(h eventstore.Halt) { halted <- h }}
	app = run(t, cfg, cart, n.handler())
	add(t, app, "c2", "bob", "rye")
	if got := <-n.news; got != "rye" {
		t.Errorf("handled %q after the restart, want the other key's", got)
	}
	page, err := app.Halts(t.Context(), "", event.Unit{}, 10)
	if err != nil || len(page) != 1 {
		t.Fatalf("halts: %+v, %v", page, err)
	}
	n.refuse("bomb", false)
	if _, err := admin.Resume(t.Context(), app, page[0].Unit); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bomb", "tea"} {
		if got := <-n.news; got != want {
			t.Errorf("handled %q after the resume, want %q", got, want)
		}
	}
	if _, err := admin.Resume(t.Context(), app, page[0].Unit); !errors.Is(err, admin.ErrNotHalted) {
		t.Errorf("a second resume: %v", err)
	}
	gone := page[0]
	_, err = app.Admin().Act(t.Context(), admin.ActRequest{
		Kind: eventstore.ActRetry, Handler: gone.Unit.Name, Key: gone.Unit.Key,
		Expect: &admin.Expect{Place: admin.Place{Category: gone.Lane.Category, Key: gone.Lane.Key, Sequence: uint64(gone.Sequence)}, Since: gone.Since},
	})
	if moved, ok := errors.AsType[*admin.MovedError](err); !ok || moved.Now == nil || moved.Now.Halt != nil {
		t.Errorf("lifting a halt that is gone: %v", err)
	}
}

func TestApplicationsStartAndStopFromManyGoroutines(t *testing.T) {
	t.Parallel()
	app := keyhold.New(inMemory())
	app.Register(cart)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if app.Start(context.Background()) == nil {
					_, _ = keyhold.Ask[*added](context.Background(), app, cart.ID("c1"), &addItem{"ada", "tea"})
				}
				_ = app.Stop(context.Background())
			}
		})
	}
	all.Wait()
	stop(t, app)
}
