package keyhold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/local"
)

// A tank in its third release. Of the first, in which it was filled with buckets, no Go type is left.
type (
	fillV2 struct {
		Site   string `json:"site"`
		Litres int    `json:"litres"`
	}
	filled struct {
		Site string `json:"site"`
		ML   int    `json:"ml"`
	}
	level   struct{}
	levelIs struct{ ML int } // in the first release, in litres
	fill    struct {
		Site string `json:"site"`
		ML   int    `json:"ml"`
	}
)

var (
	_ = keyhold.Type[fillV2]("tank.filled", 2)
	_ = keyhold.Type[filled]("tank.filled", 3)
	_ = keyhold.Type[fill]("tank.fill", 2)
	_ = keyhold.UpcastJSON("tank.filled", 1, func(f map[string]any) error {
		if f["buckets"] != nil {
			f["litres"] = 10
		}
		return nil
	})
	_ = keyhold.TryUpcast(func(f fillV2) (filled, error) {
		if f.Litres == 0 {
			return filled{}, errors.New("filled with nothing")
		}
		return filled{f.Site, 1000 * f.Litres}, nil
	})
	_ = keyhold.Type[levelIs]("tank.level", 2)
	_ = keyhold.UpcastJSON("tank.level", 1, func(f map[string]any) error { f["ML"] = 1000; return nil })
	_ = keyhold.UpcastJSON("tank.fill", 1, func(f map[string]any) error { f["ml"] = 5; return nil })
)

var tank = keyhold.Entity[int]{
	Kind: "tank", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *fill) (*levelIs, error) {
		c.Emit(filled(*in))
		return nil, nil
	})},
	Queries: keyhold.Queries[int]{keyhold.OnQuery(func(_ keyhold.Query, ml int, _ *level) (*levelIs, error) { return &levelIs{ml}, nil })},
	Fold:    keyhold.Fold[int]{keyhold.OnEvent(func(ml int, f filled) int { return ml + f.ML })},
}

// gauge handles the newest version alone.
func gauge(seen chan<- filled) keyhold.Handler[struct{}] {
	return keyhold.Handler[struct{}]{
		Name: "gauge", Categories: []string{"tank"}, SequentialBy: "site", StartFrom: keyhold.Oldest,
		New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, f filled) error {
			seen <- f
			return nil
		})},
	}
}

// past gives a store what releases before this one have stored.
func past(t *testing.T, c eventstore.Changes) *memory.Store {
	t.Helper()
	store := memory.Open()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Begin("past").Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

func old(id, typ string, version int, category, key, data string) event.Envelope {
	return event.Envelope{ID: id, Type: typ, Version: version, Encoding: event.JSON, Data: []byte(data), Category: category, Key: key}
}

// Entities, handlers and commands on their way: all meet what was stored before as what it is now.
func TestWhatOlderReleasesStoredIsMetAsTheNewestVersion(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.Transport = local.New()
	cfg.Store = past(t, eventstore.Changes{
		Append: []eventstore.Append{{Stream: event.Stream{Kind: "tank", ID: "t-1"}, Events: []event.Envelope{
			old("e-1", "tank.filled", 1, "tank", "north", `{"site":"north","buckets":1}`),
			old("e-2", "tank.filled", 2, "tank", "north", `{"site":"north","litres":2}`),
			old("e-3", "tank.filled", 3, "tank", "north", `{"site":"north","ml":3}`),
		}}},
		Publish: []event.Envelope{old("c-1", "tank.fill", 1, "tank.commands", "t-1", `{"site":"north"}`)},
	})
	seen := make(chan filled, 10)
	app := run(t, cfg, tank, gauge(seen))
	for _, want := range []filled{{"north", 10_000}, {"north", 2000}, {"north", 3}, {"north", 5}} { // the last by the command
		if d := cmp.Diff(want, <-seen); d != "" {
			t.Error(d)
		}
	}
	got, err := keyhold.Ask[*levelIs](t.Context(), app, tank.ID("t-1"), &level{})
	if err != nil || got.ML != 12_008 {
		t.Errorf("the level is %+v, %v", got, err)
	}
}

func TestAnUpcasterThatFailsHaltsTheKeyOfItsEvent(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.Transport = local.New()
	cfg.Store = past(t, eventstore.Changes{Publish: []event.Envelope{
		old("e-1", "tank.filled", 2, "tank", "north", `{"site":"north"}`), old("e-2", "tank.filled", 2, "tank", "south", `{"site":"south","litres":1}`),
	}})
	halted := make(chan keyhold.Halted, 10)
	cfg.Observer = keyhold.Observer{Halted: func(h keyhold.Halted) { halted <- h }}
	seen := make(chan filled, 10)
	run(t, cfg, tank, gauge(seen))
	h := <-halted
	const want = `upcaster of "tank.filled" version 2 (keyhold_test.fillV2) to "tank.filled" version 3 (keyhold_test.filled): filled with nothing`
	if h.Unit.Key != "north" || h.Reason != "undecodable" || h.Attempts != 1 || !strings.Contains(h.Error, want) {
		t.Errorf("halted: %+v", h)
	}
	if got := <-seen; got != (filled{"south", 1000}) {
		t.Errorf("the other key has %+v", got)
	}
}

// An answer that was kept for a command is given as what it is now.
func TestAnAnswerKeptByAnOlderReleaseIsReadAsTheNewestVersion(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.Store = past(t, eventstore.Changes{Reply: &eventstore.Reply{
		Stream: event.Stream{Kind: "tank", ID: "t-1"}, CommandID: "c-1", Command: "tank.fill", Type: "tank.level", Version: 1,
		Encoding: event.JSON, Data: []byte(`{"Litres":1}`), Time: time.Now(),
	}})
	app := run(t, cfg, tank)
	got, err := keyhold.Ask[*levelIs](t.Context(), app, tank.ID("t-1"), &fill{}, keyhold.CommandID("c-1"))
	if err != nil || got == nil || got.ML != 1000 {
		t.Errorf("answered %+v, %v", got, err)
	}
}

// A program that was put back starts beside what a newer one has stored: the key that has it waits, and no other.
func TestAProgramThatWasPutBackStartsAndWaits(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.Transport = local.New()
	cfg.Store = past(t, eventstore.Changes{Publish: []event.Envelope{
		old("e-1", "tank.filled", 4, "tank", "north", `{}`), old("e-2", "tank.filled", 3, "tank", "north", `{"site":"north","ml":1}`),
		old("e-3", "tank.drained", 1, "tank", "south", `{}`), old("e-4", "tank.filled", 3, "tank", "south", `{"site":"south","ml":2}`),
		old("e-5", "tank.filled", 3, "tank", "east", `{"site":"east","ml":3}`),
	}})
	newer(t, cfg.Store.(*memory.Store))
	waits := make(chan string, 10)
	cfg.Observer = keyhold.Observer{WaitsForType: func(u event.Unit, e *event.Envelope) { waits <- u.Key + " for " + e.Type }}
	seen := make(chan filled, 10)
	run(t, cfg, tank, gauge(seen))
	if got := <-seen; got != (filled{"east", 3}) {
		t.Errorf("handled %+v", got)
	}
	got := []string{<-waits, <-waits}
	slices.Sort(got)
	if d := cmp.Diff([]string{"north for tank.filled", "south for tank.drained"}, got); d != "" {
		t.Error(d)
	}
	if len(seen) > 0 {
		t.Errorf("what lies behind was handled: %+v", <-seen)
	}
}

// newer registers what a newer program has: a version of tank.filled, and tank.drained.
func newer(t *testing.T, store *memory.Store) {
	t.Helper()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := store.LoadRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Types = []eventstore.Type{
		{Name: "tank.filled", Version: 4, Encoding: event.JSON, Category: "tank"}, {Name: "tank.drained", Version: 1, Encoding: event.JSON, Category: "tank"},
	}
	r.Handlers = []eventstore.Handler{{Name: "gauge", Kind: eventstore.EventHandler, Categories: []string{"tank"}, Types: []string{"tank.drained", "tank.filled"}}}
	if err := store.SaveRegistry(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
