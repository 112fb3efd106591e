package admin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

func request(k eventstore.ActKind, u event.Unit, reason string) admin.ActRequest {
	return admin.ActRequest{Kind: k, Handler: u.Name, Key: u.Key, Reason: reason}
}

// halted has ada halted at 2 of 4 events.
func (b *bundle) halted() {
	b.Helper()
	b.publish("ada", "order.placed", "order.placed", "order.paid", "order.placed")
	b.advance(ada, 0, 1)
	b.halt(ada, 2)
}

func TestActOnAHaltSaysWhatItDidAndWhatItBreaks(t *testing.T) {
	for kind, want := range map[eventstore.ActKind]struct {
		words    string
		warnings []string
		at       event.Sequence // the checkpoint then
		dead     int
	}{
		eventstore.ActRetry: {"has it try order:ada #2 (order.placed) again, with all its attempts", []string{}, 1, 0},
		eventstore.ActSkip: {"passes order:ada #2 (order.placed) without applying it, for good",
			[]string{"shipping never applies order:ada #2", "2 later events of this key are applied without it"}, 2, 0},
		eventstore.ActDeadLetter: {"keeps order:ada #2 (order.placed) as a dead letter and goes on without it",
			[]string{"2 later events of this key are applied before it, if it ever is"}, 2, 1},
	} {
		t.Run(string(kind), func(t *testing.T) {
			onStores(t, func(b *bundle) {
				b.halted()
				r := request(kind, ada, "the card is gone")
				p, err := b.desk.Preview(b.Context(), r)
				b.must(err)
				b.same("preview", []any{p.Act, p.Words, p.Warnings}, []any{admin.Verb(string(kind)) + " shipping ada", want.words, want.warnings})
				b.same("before", b.unit(ada).State, "halted") // a preview changes nothing
				got, err := b.desk.Act(b.Context(), r)
				b.must(err)
				b.same("warnings", got.Warnings, want.warnings)
				if !got.Assumed || got.Actor != "ada" || got.Reason != "the card is gone" || got.ID == 0 || got.At == nil || got.At.Sequence != 2 || got.Detail == "" {
					b.Errorf("result: %+v", got)
				}
				b.same("taken up", got.TakenUp, "within half a second, by "+b.owner())
				u := b.unit(ada)
				b.same("after", []any{u.Halt == nil, u.Lanes[0].Checkpoint, u.Dead}, []any{true, uint64(want.at), want.dead})
				audit, err := b.desk.Audit(b.Context(), admin.AuditQuery{})
				b.must(err)
				b.same("audit", audit.Items, []admin.Audit{got.Audit})
			})
		})
	}
}

func (b *bundle) unit(u event.Unit) admin.Unit {
	b.Helper()
	v, err := b.desk.Unit(b.Context(), u, admin.ShowOptions{})
	b.must(err)
	return v
}

func TestActOnParkedEventsIsAboutTheFirst(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed", "order.placed")
		b.park(ada, 1, 3)
		r := request(eventstore.ActSkip, ada, "gone")
		p, err := b.desk.Preview(b.Context(), r)
		b.must(err)
		b.same("skip", append([]string{p.Words}, p.Warnings...), []string{
			"passes order:ada #1 (order.placed) without applying it, for good",
			"shipping never applies order:ada #1", "2 later events of this key are applied without it",
		})
		p, err = b.desk.Preview(b.Context(), request(eventstore.ActRetry, ada, ""))
		b.must(err)
		b.same("retry", p.Words, "has it apply 3 events that are set aside, from order:ada #1 (order.placed) on, in order")
		r.Expect = p.Expect
		got, err := b.desk.Act(b.Context(), r)
		b.must(err)
		if got.Assumed {
			b.Error("a state was named, and is said to be assumed")
		}
		parked, err := b.desk.Parked(b.Context(), ada, "", 0)
		b.must(err)
		if len(parked.Items) != 2 || parked.Items[0].At.Sequence != 2 || !parked.Items[0].Due {
			b.Errorf("parked now: %+v", parked.Items)
		}
	})
}

func TestActOnAStateThatMovedIsRefusedWithThePresentOne(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.halted()
		seen := b.unit(ada).Expect
		r := request(eventstore.ActSkip, ada, "gone")
		r.Expect = seen
		_, err := b.desk.Act(b.Context(), r)
		b.must(err)
		refuse := func(what, why string) {
			b.Helper()
			for name, do := range map[string]func() error{
				"act":     func() error { _, err := b.desk.Act(b.Context(), r); return err },
				"preview": func() error { _, err := b.desk.Preview(b.Context(), r); return err },
			} {
				err := do()
				moved, ok := errors.AsType[*admin.MovedError](err)
				if !ok || !errors.Is(err, eventstore.ErrStateMoved) || moved.Act != "skip shipping ada" || moved.Why == "" || moved.Now == nil {
					b.Fatalf("%s, %s: %v", what, name, err)
				}
				b.same(what+", "+name, moved.Now.State, why)
			}
		}
		refuse("gone on", "behind")
		b.halt(ada, 3)
		refuse("halted further up", "halted")
		r.Expect = b.unit(ada).Expect
		r.Expect.Since = r.Expect.Since.Add(-time.Minute)
		refuse("the next halt at the same event", "halted")
		r.Expect = nil
		b.publish("bob", "order.placed")
		r.Handler, r.Key = "shipping", "bob"
		if _, err := b.desk.Act(b.Context(), r); !errors.Is(err, eventstore.ErrStateMoved) || !errors.Is(err, admin.ErrNotHalted) {
			b.Errorf("one that is not stopped: %v", err)
		}
	})
}

func TestOfTwoActsOnOneHaltOneWinsAndTheOtherGetsTheNewState(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := setup(t, sqlite.Open(path))
	b.halted()
	attached, err := sqlite.Attach(t.Context(), path)
	b.must(err)
	t.Cleanup(func() { _ = attached.Close() })
	outside := admin.New(attached, admin.Options{Actor: "eve", Now: func() time.Time { return noon }})
	seen := b.unit(ada).Expect
	begin := make(chan struct{})
	var wait sync.WaitGroup
	outcomes := make([]error, 2)
	for i, d := range []*admin.Desk{b.desk, outside} {
		wait.Go(func() {
			<-begin
			r := request([]eventstore.ActKind{eventstore.ActSkip, eventstore.ActDeadLetter}[i], ada, "race")
			r.Expect = seen
			_, outcomes[i] = d.Act(b.Context(), r)
		})
	}
	close(begin)
	wait.Wait()
	won, lost := outcomes[0], outcomes[1]
	if won != nil {
		won, lost = lost, won
	}
	moved, ok := errors.AsType[*admin.MovedError](lost)
	if won != nil || !ok || moved.Now.Halt != nil || moved.Now.Lanes[0].Checkpoint != 2 {
		t.Errorf("outcomes: %v, %v", outcomes[0], outcomes[1])
	}
	acts, err := outside.Audit(t.Context(), admin.AuditQuery{})
	b.must(err)
	if len(acts.Items) != 1 {
		t.Errorf("%d acts were done", len(acts.Items))
	}
}

func TestPauseAndResume(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.halted()
		whole := event.Unit{Name: "shipping"}
		for _, c := range []struct {
			kind     eventstore.ActKind
			unit     event.Unit
			words    string
			warnings []string
		}{
			{eventstore.ActPause, whole, "has all keys of shipping read no further until it is resumed", []string{}},
			{eventstore.ActPause, ada, "has it read no further until it is resumed", []string{"the whole of shipping is paused as well: it needs both to be resumed"}},
			{eventstore.ActResume, whole, "has all keys of shipping read on", []string{"1 key stays paused by itself"}},
			{eventstore.ActResume, ada, "has it read on", []string{"it is still halted at order:ada #2 (order.placed): retry, skip or dead-letter that event"}},
		} {
			r := request(c.kind, c.unit, "stock-taking")
			p, err := b.desk.Preview(b.Context(), r)
			b.must(err)
			b.same(p.Act, append([]string{p.Words}, p.Warnings...), append([]string{c.words}, c.warnings...))
			_, err = b.desk.Act(b.Context(), r)
			b.must(err)
			if _, err := b.desk.Act(b.Context(), r); !errors.Is(err, eventstore.ErrStateMoved) {
				b.Errorf("%s, twice: %v", p.Act, err)
			}
		}
		pauses, err := b.desk.Pauses(b.Context(), admin.UnitQuery{})
		b.must(err)
		b.same("pauses", pauses.Items, []admin.Pause{})
	})
}

func badName(name string) string { return event.CheckName(name).Error() }

func TestRequestsThatNothingWouldMakeRightAreRefusedWithAllFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	nobody := b.deskOf(admin.Options{})
	from := &admin.From{Now: true, Time: noon}
	for _, c := range []struct {
		r    admin.ActRequest
		want string
	}{
		{admin.ActRequest{}, `act "" is none: give retry, skip, dead-letter, pause, resume, rename, remove or reset; no handler or entity kind is named: give one; nobody is named who acts: give a name`},
		{request(eventstore.ActSkip, event.Unit{Name: "shipping"}, " "), "skip is done to one key: give it; skip needs a reason: say why; nobody is named who acts: give a name"},
		{admin.ActRequest{Kind: eventstore.ActRename, Handler: "shipping", Key: "ada", Actor: "ada"}, "rename is done to a whole handler: leave the key out; rename needs a reason: say why; a new name goes with rename, and with nothing else"},
		{admin.ActRequest{Kind: eventstore.ActRename, Handler: "shipping", Actor: "ada", Reason: "x", To: "a:b"}, badName("a:b")},
		{admin.ActRequest{Kind: eventstore.ActPause, Handler: "shipping", Actor: "ada", To: "x"}, "a new name goes with rename, and with nothing else"},
		{admin.ActRequest{Kind: eventstore.ActReset, Handler: "shipping", Actor: "ada", Reason: "x"}, "where to begin goes with reset, and with nothing else"},
		{admin.ActRequest{Kind: eventstore.ActReset, Handler: "shipping", Actor: "ada", Reason: "x", From: from}, "a handler begins now or at a time: give one of them"},
	} {
		for name, do := range map[string]func() error{
			"act":     func() error { _, err := nobody.Act(t.Context(), c.r); return err },
			"preview": func() error { _, err := nobody.Preview(t.Context(), c.r); return err },
		} {
			if err := do(); !errors.Is(err, admin.ErrUsage) || err.Error() != c.want {
				t.Errorf("%s of %+v: %v\nwant %s", name, c.r, err, c.want)
			}
		}
	}
	if _, err := b.desk.Act(t.Context(), request(eventstore.ActPause, event.Unit{Name: "shipping", Key: "zoe"}, "")); !errors.Is(err, eventstore.ErrNotFound) ||
		err.Error() != `no event of category order has the key "zoe"; its keys are values of client_id` {
		t.Errorf("act on a key that was never seen: %v", err)
	}
	for _, u := range []event.Unit{{Name: "shiping", Key: "ada"}, {Name: "shiping"}} {
		_, err := b.desk.Act(t.Context(), request(eventstore.ActPause, u, ""))
		named, ok := errors.AsType[*admin.NotFoundError](err)
		if !ok || !errors.Is(err, eventstore.ErrNotFound) || named.Name != "shiping" || len(named.Known) != 3 {
			t.Errorf("act on %v: %v", u, err)
		}
	}
}

func TestHandlersAreRenamedRemovedAndResetWhenNoProgramHasThem(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed", "order.placed")
		b.publish("bob", "order.placed", "order.placed")
		b.bury(ada, 1, "poison")
		b.park(bob, 1, 2)
		rename := admin.ActRequest{Kind: eventstore.ActRename, Handler: "shipping", To: "dispatch", Reason: "a better word"}
		inUse := "handler shipping is in use by " + b.owner() + ": stop it, or start a program without this handler"
		if _, err := b.desk.Act(b.Context(), rename); !errors.Is(err, eventstore.ErrInUse) || err.Error() != inUse {
			b.Fatalf("rename of one in use: %v", err)
		}
		// The program that starts next has none of them.
		b.must(b.store.Stop(context.Background()))
		_, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "orders@test"})
		b.must(err)
		got, err := b.desk.Act(b.Context(), rename)
		b.must(err)
		b.same("rename", append(got.Warnings, got.TakenUp), []string{
			"the program must have the handler under the new name before it starts: else it is new to it, or missing", "when a program starts"})
		reset := admin.ActRequest{Kind: eventstore.ActReset, Handler: "dispatch", From: &admin.From{}, Reason: "the table was lost"}
		p, err := b.desk.Preview(b.Context(), reset)
		b.must(err)
		b.same("reset", append([]string{p.Words}, p.Warnings...), []string{
			"has dispatch begin again with the first event kept",
			"it applies again what it has applied already: what it does outside the store, it does twice",
			"halts and parked events of 1 key are forgotten",
		})
		remove := admin.ActRequest{Kind: eventstore.ActRemove, Handler: "dispatch", Reason: "no longer"}
		p, err = b.desk.Preview(b.Context(), remove)
		b.must(err)
		b.same("remove", append([]string{p.Words}, p.Warnings...), []string{
			"forgets dispatch, its place in all lanes and what it set aside",
			"a program that still has it begins it anew, where its StartFrom says: it may apply everything again", "1 dead letter is forgotten", "parked events of 1 key are forgotten", "2 events are never applied by it",
		})
		entity := admin.ActRequest{Kind: eventstore.ActRemove, Handler: "order", Reason: "no longer"}
		p, err = b.desk.Preview(b.Context(), entity)
		b.must(err)
		b.same("remove an entity kind", append([]string{p.Words}, p.Warnings...), []string{
			"forgets order and what it set aside; its place among its commands is kept, so that none is decided twice",
		})
		for _, r := range []admin.ActRequest{reset, remove} {
			_, err = b.desk.Act(b.Context(), r)
			b.must(err)
		}
		if _, err := b.desk.Act(b.Context(), remove); !errors.Is(err, eventstore.ErrNotFound) {
			b.Errorf("removed twice: %v", err)
		}
		audit, err := b.desk.Audit(b.Context(), admin.AuditQuery{Handler: "dispatch"})
		b.must(err)
		if len(audit.Items) < 2 || audit.Items[0].Kind != eventstore.ActRemove {
			b.Errorf("audit: %+v", audit.Items)
		}
	})
}

// failing is a store whose acts fail.
type failing struct {
	eventstore.Store
	err error
}

func (f failing) Act(context.Context, eventstore.Act) (eventstore.ActRecord, error) {
	return eventstore.ActRecord{}, f.err
}

func TestActWhoseOutcomeIsNotKnownIsTakenUpAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	b.halted()
	var told []eventstore.ActRecord
	live := &admin.Live{Node: "orders@test", Acted: func(r eventstore.ActRecord) { told = append(told, r) }}
	b.store = failing{b.store, fmt.Errorf("act: %w", eventstore.ErrUnknownCommit)}
	d := b.deskOf(admin.Options{Actor: "ada", Live: live})
	_, err := d.Act(t.Context(), request(eventstore.ActRetry, ada, ""))
	if !errors.Is(err, eventstore.ErrUnknownCommit) || err.Error() != "retry shipping ada: it may have been done, look whether it was: act: outcome of commit is unknown" {
		t.Errorf("act: %v", err)
	}
	b.same("told", told, []eventstore.ActRecord{{Kind: eventstore.ActRetry, Unit: ada}})
	b.store = failing{b.store, eventstore.ErrTrouble}
	if _, err := b.deskOf(admin.Options{Actor: "ada", Live: live}).Act(t.Context(), request(eventstore.ActRetry, ada, "")); !errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("trouble: %v", err)
	}
	if len(told) != 1 {
		t.Errorf("an act that was not done was told: %+v", told)
	}
}

func TestActsOfALiveDeskAreTakenUpAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	b.halted()
	var told []eventstore.ActRecord
	d := b.deskOf(admin.Options{Actor: "ada", Live: &admin.Live{Node: "orders@test", Acted: func(r eventstore.ActRecord) { told = append(told, r) }}})
	got, err := d.Act(t.Context(), request(eventstore.ActRetry, ada, ""))
	b.must(err)
	if len(told) != 1 || told[0].ID != got.ID || told[0].Unit != ada || got.TakenUp != "at once" {
		t.Errorf("told %+v of %+v", told, got)
	}
}
