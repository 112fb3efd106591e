package postgres

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

func TestAttachRefusesWhatItCannotOperate(t *testing.T) {
	t.Parallel()
	empty, newer := place(t), place(t)
	store := New(newer)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := newer.resolve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session(t, r).Exec(t.Context(), `INSERT INTO keyhold_format VALUES (99, 'future', 0)`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{empty, "is no Keyhold store"},
		{newer, "run the newer program"},
		{Config{URL: postgresserver.URL("127.0.0.1:1", "orders")}, "cannot be read"},
		{Config{URL: strings.Replace(empty.URL, "/postgres", "/nowhere", 1)}, "does not exist"},
		{Config{}, "URL is empty"},
		{Config{URL: "postgres://["}, "URL"},
		{Config{URL: "orders.db"}, "write it as postgres://"},
	} {
		a, err := c.config.Attach(t.Context())
		if err == nil {
			t.Errorf("%+v is attached to", c.config)
			_ = a.Close()
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestOperatorAndOwnerSeeWhatTheOtherDoes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	done, err := d.at.Act(t.Context(), pausing(shipping))
	d.must(err)
	acts, err := d.store.ActsAfter(t.Context(), 0, 10)
	d.must(err)
	if diff := cmp.Diff([]eventstore.ActRecord{done}, acts); diff != "" {
		t.Errorf("acts that the owner finds (-done +found):\n%s", diff)
	}
	known, err := d.store.Recover(t.Context(), []eventstore.Ask{{Unit: shipping}})
	d.must(err)
	if known[0].Pause == nil || known[0].Pause.Actor != "ann" {
		t.Errorf("the owner recovers %+v", known[0].Pause)
	}
	d.commit(events("a", 1)) // nothing was taken from the owner
	if tail, err := d.at.LaneTail(t.Context(), orders); err != nil || tail != 2 {
		t.Errorf("the operator sees tail %d, %v", tail, err)
	}
	o, err := d.at.Overview(t.Context())
	d.must(err)
	if want := (eventstore.Owner{PID: os.Getpid(), Node: "orders@test", Generation: d.id.StartGeneration}); o.Owner == nil || *o.Owner != want || o.Unclean || o.StoreID != d.id.StoreID {
		t.Errorf("overview %+v, owner %+v, want %+v", o, o.Owner, want)
	}
}

func TestOverviewTellsWhetherTheStoreWasLeftAsItShouldBe(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	check := func(what string, owned, unclean bool) {
		t.Helper()
		o, err := d.at.Overview(t.Context())
		d.must(err)
		if (o.Owner != nil) != owned || o.Unclean != unclean {
			t.Errorf("%s: owner %+v, unclean %v", what, o.Owner, o.Unclean)
		}
		if len(o.Handlers) != 1 || !o.Handlers[0].Running { // by the last program, though it may not run now
			t.Errorf("%s: %+v", what, o.Handlers)
		}
	}
	check("while it runs", true, false)
	d.stop()
	check("after a stop", false, false)
	d.store = process(t, d.config)
	d.begin(d.store, eventstore.StartOptions{})
	d.register([]string{"shipping", "order"})
	crash(t, d.store)
	check("after a crash", false, true)
}

// While several processes share a store, a handler runs as long as one of them lives that has saved it.
func TestHandlerRunsWhileAProcessLivesThatHasIt(t *testing.T) {
	t.Parallel()
	shared := eventstore.StartOptions{Relayed: true}
	d := newDesk(t, shared)
	newer := New(d.config)
	d.begin(newer, shared)
	d.registerWith(newer, []string{"billing", "order"})
	running := func(want string) {
		t.Helper()
		o, err := d.at.Overview(t.Context())
		d.must(err)
		var all []string
		for _, h := range o.Handlers {
			if h.Running {
				all = append(all, h.Name)
			}
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("running: %q, want %q", got, want)
		}
	}
	running("billing shipping")
	for _, name := range []string{"shipping", "billing"} {
		if err := d.act(removing(name)); !errors.Is(err, eventstore.ErrInUse) {
			t.Errorf("one of the processes has %s: %v", name, err)
		}
	}
	d.stop()
	running("billing")
	if err := d.act(removing("billing")); !errors.Is(err, eventstore.ErrInUse) {
		t.Errorf("the newer process has it: %v", err)
	}
	d.must(d.act(removing("shipping")))
}

// The handler is one that the program that started last has, or one that it does not have any more; a program runs, or none does.
func TestHandlerIsRemovedFromBesideOnlyWhereNoProgramRunsIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.register([]string{"billing", "order"})
	if err := d.act(removing("billing")); !errors.Is(err, eventstore.ErrInUse) {
		t.Fatalf("it is in use: %v", err)
	}
	d.stop()
	d.must(d.act(removing("billing")))
	d.start()
	if err := d.act(removing("shipping")); err != nil {
		t.Fatalf("the program that runs has not saved it: %v", err)
	}
	r, err := d.at.LoadRegistry(t.Context())
	if err != nil || len(r.Handlers) > 0 {
		t.Errorf("handlers %+v, %v", r.Handlers, err)
	}
}

func TestAnActOnAHandlerThatWouldHoldUpEverybodyIsForAStoppedProgram(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, key := range []string{"a", "b", "c"} {
		d.commit(events(key, 1))
	}
	d.stop()
	d.start() // with a program that does not have it any more
	d.at.mostLanes = 2
	rename := eventstore.Act{Kind: eventstore.ActRename, Unit: event.Unit{Name: "shipping"}, To: "delivery", Actor: "ann", Reason: "better"}
	reset := eventstore.Act{Kind: eventstore.ActReset, Unit: event.Unit{Name: "shipping"}, Start: &eventstore.Start{}, Actor: "ann", Reason: "again"}
	for _, act := range []eventstore.Act{rename, reset} {
		if err := d.act(act); !errors.Is(err, eventstore.ErrInUse) {
			t.Errorf("%s beside a program: %v", act.Kind, err)
		}
	}
	d.stop()
	for _, act := range []eventstore.Act{reset, rename} {
		if err := d.act(act); err != nil {
			t.Errorf("%s of a store that nobody has open: %v", act.Kind, err)
		}
	}
}

// What a process that has just ended sent last may still be under way.
func TestARenameWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 2))
	d.stop()
	release := d.hold(shareStore)
	renamed := d.acting(eventstore.Act{Kind: eventstore.ActRename, Unit: event.Unit{Name: "shipping"}, To: "delivery", Actor: "ann", Reason: "better"})
	d.waiting(1)
	if _, err := d.raw.Exec(t.Context(), `INSERT INTO keyhold_checkpoints SELECT 'shipping', id, 1, 'e-1' FROM keyhold_lanes`); err != nil {
		t.Fatal(err)
	}
	release()
	d.must(<-renamed)
	var names string
	d.value(&names, `SELECT string_agg(name || ' ' || sequence, ', ') FROM keyhold_checkpoints`)
	if names != "delivery 1" {
		t.Errorf("checkpoints: %s", names)
	}
}

func TestAResetHasTheRelayLookAtWhatIsToBeDeliveredAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	d.commit(events("a", 2))
	d.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Advance: []eventstore.Advance{{Lane: orders, To: 2}}})
	d.stop()
	if _, err := d.raw.Exec(t.Context(), `DELETE FROM keyhold_looks`); err != nil {
		t.Fatal(err)
	}
	d.must(d.act(eventstore.Act{Kind: eventstore.ActReset, Unit: event.Unit{Name: "shipping"}, Start: &eventstore.Start{}, Actor: "ann", Reason: "again"}))
	var looks int
	if d.value(&looks, `SELECT count(*) FROM keyhold_looks`); looks != 1 {
		t.Errorf("%d looks, want that at the lane", looks)
	}
}

func TestAttachedThatIsClosedDoesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.must(d.at.Close())
	if _, err := d.at.Overview(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("overview: %v", err)
	}
	for _, act := range []eventstore.Act{pausing(shipping), removing("shipping")} {
		if err := d.act(act); !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%s: %v", act.Kind, err)
		}
	}
	d.must(d.at.Close())
}

func TestAttachedRefusesAFormatThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	migrating := d.hold(`SELECT pg_advisory_xact_lock($1)`, d.at.config.key64("migrate"))
	if _, err := d.raw.Exec(t.Context(), `INSERT INTO keyhold_format VALUES (99, 'future', 0)`); err != nil {
		t.Fatal(err)
	}
	acted := d.acting(pausing(event.Unit{Name: "shipping"}))
	d.waiting(1)
	migrating()
	var refused *eventstore.FormatError
	if err := <-acted; !errors.As(err, &refused) || refused.Found != 99 {
		t.Errorf("act: %v", err)
	}
}

func TestARoleThatMayOnlyReadReads(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	role := d.config.Schema + "_reader"
	if _, err := d.raw.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN; GRANT USAGE ON SCHEMA `+d.config.Schema+` TO `+role+`; GRANT SELECT ON ALL TABLES IN SCHEMA `+d.config.Schema+` TO `+role+
		`; GRANT SELECT ON ALL SEQUENCES IN SCHEMA `+d.config.Schema+` TO `+role); err != nil {
		t.Fatal(err)
	}
	config := d.config
	config.URL = strings.Replace(config.URL, "keyhold@", role+"@", 1)
	frozen := d.config
	frozen.URL += "&default_transaction_read_only=on"
	for _, c := range []Config{config, frozen} {
		a, err := c.Attach(t.Context())
		d.must(err)
		t.Cleanup(func() { _ = a.Close() })
		if o, err := a.Overview(t.Context()); err != nil || len(o.Handlers) != 1 || o.Owner == nil {
			t.Errorf("overview: %+v, %v", o, err)
		}
		if all, _, err := a.ReadAll(t.Context(), "", nil, 10); err != nil || len(all) != 1 {
			t.Errorf("events: %+v, %v", all, err)
		}
		if _, err := a.Act(t.Context(), pausing(shipping)); !errors.Is(err, ErrReadOnly) {
			t.Errorf("act: %v", err)
		}
	}
}

func TestTheSchemaOfAUrlIsThatOfAConfig(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	url := d.config.URL + "&search_path=" + d.config.Schema
	a, err := Attach(t.Context(), url)
	d.must(err)
	t.Cleanup(func() { _ = a.Close() })
	if a.config.key64("migrate") != d.at.config.key64("migrate") {
		t.Error("they do not meet in one lock")
	}
	if o, err := a.Overview(t.Context()); err != nil || o.StoreID != d.id.StoreID {
		t.Errorf("overview: %+v, %v", o, err)
	}
}
