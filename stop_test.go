package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/local"
)

// deaf is a handler whose behaviors, minding no context, stay inside until they are let go.
type deaf struct {
	entered chan struct{}
	letGo   chan struct{}
	inside  atomic.Int32
	most    atomic.Int32
}

func newDeaf() *deaf { return &deaf{entered: make(chan struct{}, 100), letGo: make(chan struct{})} }

func (d *deaf) handler() keyhold.Handler[*deaf] {
	return keyhold.Handler[*deaf]{
		Name: "register", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		New: func(string) *deaf { return d },
		On: keyhold.Behavior[*deaf]{keyhold.On(func(d *deaf, _ keyhold.Context, e itemAdded) error {
			n := d.inside.Add(1)
			defer d.inside.Add(-1)
			d.most.Store(max(d.most.Load(), n))
			d.entered <- struct{}{}
			<-d.letGo
			return nil
		})},
	}
}

// ended is a context without any patience.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// kinds are applications of every kind. Each call gives one on a store of its own.
var kinds = map[string]func(t *testing.T) keyhold.Config{
	"inline": func(*testing.T) keyhold.Config { return inMemory() },
	"local": func(*testing.T) keyhold.Config {
		cfg := inMemory()
		cfg.Transport = local.New()
		return cfg
	},
	"disk": func(t *testing.T) keyhold.Config { return onDisk(filepath.Join(t.TempDir(), "shop.db")) },
	"disk, inline": func(t *testing.T) keyhold.Config {
		cfg := onDisk(filepath.Join(t.TempDir(), "shop.db"))
		cfg.Transport = inline.New()
		return cfg
	},
}

func each(t *testing.T, f func(t *testing.T, cfg keyhold.Config)) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, kind(t))
		})
	}
}

// begin starts an application and has a behavior of it be inside.
func (d *deaf) begin(t *testing.T, cfg keyhold.Config) *keyhold.App {
	t.Helper()
	app := keyhold.New(cfg)
	app.Register(cart, d.handler())
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	t.Cleanup(func() { <-asked })
	go func() { // inline, it waits for the behavior
		defer close(asked)
		if _, err := keyhold.Ask[*added](context.Background(), app, cart.ID("c1"), &addItem{"ada", "tea"}); err != nil {
			t.Error(err)
		}
	}()
	<-d.entered
	return app
}

func TestNoUnitIsEnteredAgainWhileABehaviorOfAnEarlierStartIsInside(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, cfg keyhold.Config) {
		d := newDeaf()
		app := d.begin(t, cfg)
		err := app.Stop(ended())
		who, ok := errors.AsType[*actors.StopError](err)
		if !ok || cmp.Diff([]event.Unit{{Name: "register", Key: "ada"}}, who.Stuck) != "" {
			t.Errorf("stop: %v", err)
		}
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "have not returned: [register/ada]: wait for them") {
			t.Errorf("start beside a behavior that is inside: %v", err)
		}
		another := keyhold.New(cfg)
		another.Register(cart, d.handler())
		if err := another.Start(t.Context()); !errors.Is(err, transport.ErrClaimed) {
			t.Errorf("start of another application on the transport: %v", err)
		}
		apart := cfg
		apart.Transport = local.New()
		another = keyhold.New(apart)
		another.Register(cart, d.handler())
		if err := another.Start(t.Context()); !errors.Is(err, eventstore.ErrOwned) {
			t.Errorf("start of another application on the store: %v", err)
		}
		if app.Running() {
			t.Error("it runs")
		}
		close(d.letGo)
		stop(t, app)
		if err := app.Start(t.Context()); err != nil {
			t.Errorf("start once they returned: %v", err)
		}
		<-d.entered // it had not committed
		stop(t, app)
		if d.most.Load() != 1 {
			t.Errorf("%d behaviors of one unit were inside at once", d.most.Load())
		}
	})
}

func TestStartEndsWhatAStopWithoutPatienceLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, cfg keyhold.Config) {
		d := newDeaf()
		app := d.begin(t, cfg)
		_ = app.Stop(ended())
		close(d.letGo)
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop(t, app)
	})
}

func TestStartAfterAStopWithAContextThatIsDone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, cfg keyhold.Config) {
		app := run(t, cfg, cart)
		for range 10 {
			if err := app.Stop(ended()); err != nil {
				t.Fatalf("nothing was in hand, yet: %v", err)
			}
			if err := app.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestStopRollsBackTransactionsThatOutlastItsPatience(t *testing.T) {
	t.Parallel()
	app := run(t, onDisk(filepath.Join(t.TempDir(), "shop.db")), cart, price)
	tx, err := app.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := keyhold.PublishTx(t.Context(), app, tx, keyhold.For("tea", priceSet{"tea"})); err != nil {
		t.Fatal(err)
	}
	if err := app.Stop(ended()); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("it commits into a store that is closed")
	}
}

func TestStopCancelsCallsOfDoThatOutlastItsPatience(t *testing.T) {
	t.Parallel()
	for _, minds := range []bool{true, false} {
		cfg := onDisk("")
		cfg.Store = sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "shop.db"), Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS paid (n)")
			return err
		}})
		app := run(t, cfg, cart)
		inside, letGo, did := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			did <- keyhold.Do(context.Background(), app, func(u keyhold.UnitOfWork) error {
				_, err := u.Tx().ExecContext(u, "INSERT INTO paid VALUES (1)")
				close(inside)
				if minds {
					<-u.Done()
				} else {
					<-letGo
				}
				return err
			})
		}()
		<-inside
		if err := app.Stop(ended()); err == nil || !strings.Contains(err.Error(), "1 calls of Do were interrupted") {
			t.Errorf("stop: %v", err)
		}
		close(letGo)
		if err := <-did; !errors.Is(err, keyhold.ErrStopping) {
			t.Errorf("do: %v", err)
		}
		if err := app.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestStopWaitsForCallsOfDo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, cfg keyhold.Config) {
		app := run(t, cfg, price)
		stopped := make(chan error, 1)
		err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
			go func() { stopped <- app.Stop(context.Background()) }()
			for app.Running() {
				runtime.Gosched()
			}
			u.Emit(keyhold.For("tea", priceSet{"tea"}))
			return nil
		})
		if err != nil {
			t.Errorf("do: %v", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func TestStartThatFailsDoesNotWaitForABehaviorForEver(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	n, keyed := newNotes(), keyhold.Category{Name: "cart", Key: "client"}
	app := run(t, cfg, cart, keyed)
	add(t, app, "c1", "ada", "tea")
	stop(t, app)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := keyhold.New(cfg)
	h := n.handler()
	h.Timeout = -1
	h.On = keyhold.Behavior[*notes]{keyhold.On(func(_ *notes, c keyhold.Context, _ itemAdded) error {
		cancel()
		<-c.Done()
		return context.Cause(c)
	})}
	again.Register(cart, h)
	if err := again.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	run(t, cfg, cart, keyed) // nothing is left
}

func TestStopDuringStartCancelsIt(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	run(t, cfg, cart)
	log := make(chan struct{}, 10)
	second := cfg
	second.Transport, second.Wait = inline.New(), true
	second.Store = waiting{memory.Share(cfg.Store.(*memory.Store)), log}
	app := keyhold.New(second)
	app.Register(cart)
	started := make(chan error, 1)
	go func() { started <- app.Start(context.Background()) }()
	<-log
	if err := app.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if app.Running() {
		t.Error("it runs")
	}
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
}

// waiting tells when its Start is called.
type waiting struct {
	eventstore.Store
	called chan<- struct{}
}

func (w waiting) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	w.called <- struct{}{}
	return w.Store.Start(ctx, opts)
}

func TestStopWaitsForTheStopUnderWayAndGivesItsError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, cfg keyhold.Config) {
		d := newDeaf()
		app := d.begin(t, cfg)
		patience, out := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- app.Stop(patience) }()
		for app.Running() {
			runtime.Gosched()
		}
		if err := app.Stop(ended()); err == nil || !strings.Contains(err.Error(), "is not through") {
			t.Errorf("stop without patience: %v", err)
		}
		go func() { second <- app.Stop(context.Background()) }()
		out()
		one := <-first
		if one == nil {
			t.Error("a behavior is inside, yet the stop is through")
		}
		close(d.letGo)
		if two := <-second; two != nil && two != one {
			t.Errorf("got %v, want %v", two, one)
		}
		stop(t, app)
	})
}

// unsure is a store whose answers to acts are lost.
type unsure struct{ eventstore.Store }

func (u unsure) Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error) {
	if _, err := u.Store.Act(ctx, a); err != nil {
		return eventstore.ActRecord{}, err
	}
	return eventstore.ActRecord{}, fmt.Errorf("act: %w", eventstore.ErrUnknownCommit)
}

// ActsAfter finds nothing: only the act itself tells the unit.
func (u unsure) ActsAfter(context.Context, int64, int) ([]eventstore.ActRecord, error) {
	return nil, nil
}

func TestLiftWhoseOutcomeIsUnknownHasTheUnitGoOn(t *testing.T) {
	t.Parallel()
	n, halted := newNotes(), make(chan keyhold.Halted, 10)
	cfg := inMemory()
	cfg.Store, cfg.Transport, cfg.Observer.Halted = unsure{memory.Open()}, local.New(), func(h keyhold.Halted) { halted <- h }
	app := run(t, cfg, cart, n.handler())
	n.refuse("bomb", true)
	add(t, app, "c1", "ada", "bomb")
	h := <-halted
	n.refuse("bomb", false)
	if _, err := admin.Resume(t.Context(), app, h.Unit); !errors.Is(err, eventstore.ErrUnknownCommit) || !strings.Contains(err.Error(), "may have been done") {
		t.Errorf("lift: %v", err)
	}
	if item := <-n.news; item != "bomb" {
		t.Errorf("it went on with %s", item)
	}
}

func TestLiftOfAHaltThatIsGoneHasTheUnitGoOn(t *testing.T) {
	t.Parallel()
	n, halted := newNotes(), make(chan keyhold.Halted, 10)
	cfg := inMemory()
	cfg.Observer.Halted = func(h keyhold.Halted) { halted <- h }
	app := run(t, cfg, cart, n.handler())
	n.refuse("bomb", true)
	add(t, app, "c1", "ada", "bomb")
	h := <-halted
	n.refuse("bomb", false)
	seen, err := app.Admin().Unit(t.Context(), h.Unit, admin.ShowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := h.Ref()
	if _, err := cfg.Store.Begin("another").Commit(t.Context(), eventstore.Changes{LiftHalt: &ref}); err != nil {
		t.Fatal(err)
	}
	_, err = app.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: h.Unit.Name, Key: h.Unit.Key, Expect: seen.Expect})
	if !errors.Is(err, eventstore.ErrStateMoved) {
		t.Errorf("lift: %v", err)
	}
	if item := <-n.news; item != "bomb" {
		t.Errorf("it went on with %s", item)
	}
}

func TestTransactionWhoseOutcomeIsUnknownIsDelivered(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]keyhold.Config{"local": onDisk(""), "inline": inMemory()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNotes()
			store := faulty.Wrap(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), nil)
			cfg.Store = store
			app := run(t, cfg, price, n.prices())
			tx, err := app.BeginTx(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := keyhold.PublishTx(t.Context(), app, tx, keyhold.For("tea", priceSet{"tea"})); err != nil {
				t.Fatal(err)
			}
			store.SetPlan(faulty.Nth(faulty.Commit, store.Calls(faulty.Commit)+1, faulty.Fault{After: errors.New("the answer is lost")}))
			if err := tx.Commit(t.Context()); !errors.Is(err, eventstore.ErrUnknownCommit) {
				t.Errorf("commit: %v", err)
			}
			if item := <-n.news; item != "tea" {
				t.Errorf("got %s", item)
			}
		})
	}
}
