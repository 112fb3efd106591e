package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// words gives a status as the lines that a person reads.
func (b *bundle) words(d *admin.Desk) []string {
	b.Helper()
	s, err := d.Status(b.Context())
	b.must(err)
	lines := []string{s.Words}
	for _, p := range s.Problems {
		line := string(p.Kind) + ": " + p.Words
		if p.Note {
			line = "note " + line
		}
		if p.Command != "" {
			line += ": " + p.Command
		}
		lines = append(lines, line)
	}
	return lines
}

func (b *bundle) owner() string { return fmt.Sprintf("process %d (orders@test)", os.Getpid()) }

func TestStatusOfAStoreThatIsWellIsHealthy(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.same("words", b.words(b.desk), []string{"healthy: " + b.owner() + " has the store open, nothing waits for a person"})
		s, err := b.desk.Status(b.Context())
		b.must(err)
		if s.Verdict != admin.Healthy || s.StoreID == "" || s.Generation == 0 || !s.At.Equal(noon) || len(s.Handlers) != 3 || len(s.Categories) != 2 {
			b.Errorf("status: %+v", s)
		}
		b.same("words of shipping", s.Handlers[2].Words, "all applied")
	})
}

func TestStatusNamesProblemsTheWorstFirst(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed", "order.placed")
		b.publish("bob", "order.placed")
		b.publish("cyd", "order.placed", "order.placed")
		b.publish("dan", "order.placed")
		b.halt(ada, 1)
		b.halt(bob, 1)
		b.park(event.Unit{Name: "shipping", Key: "cyd"}, 1, 2)
		b.bury(event.Unit{Name: "shipping", Key: "dan"}, 1, "poison")
		dan := event.Unit{Name: "billing", Key: "dan"}
		b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: dan}, Tried: &eventstore.Tried{
			Unit: dan, Lane: lane("dan"), Sequence: 1, EventID: b.eventAt("dan", 1), EventType: "order.placed", Attempts: 2, Time: noon.Add(-30 * time.Second),
		}})
		_, err := b.store.Act(b.Context(), eventstore.Act{
			Kind: eventstore.ActPause, Unit: event.Unit{Name: "billing"}, Actor: "eve", Reason: "stock-taking", Time: noon.Add(-2 * time.Hour),
		})
		b.must(err)
		b.text("words", b.words(b.desk), `
			degraded: 2 keys of shipping are halted, the oldest for 4 m, and 3 more problems
			halted: 2 keys of shipping are halted, the oldest for 4 m: keyhold partitions ls --handler shipping --status halted
			parking: 1 key of shipping has events set aside, for 10 m: keyhold partitions ls --handler shipping --status parking
			paused: billing is paused for 2 h by eve: stock-taking; 6 behind: keyhold handlers resume billing
			dead: shipping has 1 dead letter, for 1 h: keyhold dlq ls --handler shipping
			note trying: 1 key of billing tries again what failed: keyhold partitions ls --handler billing --status trying`)
		h, err := b.desk.Handler(b.Context(), "billing")
		b.must(err)
		b.same("words of billing", h.Words, "paused for 2 h by eve: stock-taking; 6 behind; 1 key trying again")
		if _, err := b.desk.Handler(b.Context(), "bling"); !errors.Is(err, eventstore.ErrNotFound) {
			b.Errorf("handler that is none: %v", err)
		}
	})
}

func TestStatusTellsAHandlerThatStandsStillFromOneThatHasJustSomethingToDo(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed") // a minute ago
		at := func(after time.Duration) *admin.Desk {
			return b.deskOf(admin.Options{Now: func() time.Time { return noon.Add(after) }})
		}
		if got := b.words(at(-time.Second)); len(got) != 1 {
			b.Errorf("within a minute: %q", got)
		}
		b.text("words", b.words(at(time.Minute)), `
			degraded: billing is 1 behind and passed nothing for a minute; an event waits for 2 m, and 1 more problem
			stalled: billing is 1 behind and passed nothing for a minute; an event waits for 2 m: keyhold partitions ls --handler billing --status behind
			stalled: shipping is 1 behind and passed nothing for a minute; an event waits for 2 m: keyhold partitions ls --handler shipping --status behind`)
	})
}

func TestStatusOfAStoreThatNobodyHasOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := setup(t, sqlite.Open(path))
	attached, err := sqlite.Attach(t.Context(), path)
	b.must(err)
	t.Cleanup(func() { _ = attached.Close() })
	d := admin.New(attached, admin.Options{Actor: "ada", Now: func() time.Time { return noon }})
	b.same("owned", b.words(d), []string{"healthy: " + b.owner() + " has the store open, nothing waits for a person"})
	b.must(b.store.Stop(context.Background()))
	b.text("stopped", b.words(d), `
		healthy: nobody has the store open, nothing waits for a person
		note nobody: nobody has the store open`)
	_, err = b.store.Start(t.Context(), eventstore.StartOptions{Node: "orders@test"})
	b.must(err)
	b.publish("ada", "order.placed")
	b.halt(ada, 1)
	b.must(b.store.Stop(context.Background()))
	b.text("the program had none of the handlers", b.words(d), `
		degraded: 1 key of shipping is halted, for 4 m, and 2 more problems
		halted: 1 key of shipping is halted, for 4 m: keyhold partitions ls --handler shipping --status halted
		absent: the program that started last does not have billing, which is 1 behind and keeps those events from being deleted: keyhold handlers ls
		absent: the program that started last does not have shipping, which is 1 behind and keeps those events from being deleted: keyhold handlers ls
		note nobody: nobody has the store open`)
	x := b.why(d, b.order("ada"))
	b.text("why", x[11:], `
		billing/ada behind
		  no program that was started last has billing: 1 event is kept for it, and not applied
		  1 event waits: order.placed (1 m)
		  > start a program that has it: 
		  > where the program has it under another name, give all that is kept under this one to NEW, before it starts: keyhold handlers rename billing NEW --reason …
		  > where it is gone for good, forget it: keyhold handlers rm billing --reason …`)
	_, err = b.store.Start(t.Context(), eventstore.StartOptions{Node: "orders@test"})
	b.must(err)
	registered, err := b.store.LoadRegistry(t.Context())
	b.must(err)
	b.must(b.store.SaveRegistry(t.Context(), registered, nil))
	b.must(b.store.Stop(context.Background()))
	b.text("stopped with work", b.words(d), `
		degraded: 1 key of shipping is halted, for 4 m, and 1 more problem
		halted: 1 key of shipping is halted, for 4 m: keyhold partitions ls --handler shipping --status halted
		nobody: nobody has the store open, and 1 event is to be applied: start the application`)
	x = b.why(d, b.order("ada"))
	b.text("why", append(x[2:5:5], x[8:]...), `
		  halted for 4 m at order:ada #1 (order.placed): retries exhausted after 5 attempts: card declined
		  nobody has the store open, and a program that starts does not lift the halt: what is done about it now is taken up then
		  > look at what the event holds: keyhold partitions show shipping ada --data
		billing/ada behind
		  nobody has the store open: 1 event is applied when a program starts
		  1 event waits: order.placed (1 m)
		  > start the application: `)
	r, err := d.Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: "shipping", Key: "ada"})
	b.must(err)
	b.same("taken up", r.TakenUp, "when a program starts")
}

func TestStatusTellsWhatTheRunningProgramDoesNotHave(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed")
		b.must(b.store.Stop(context.Background()))
		_, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "orders@test"})
		b.must(err)
		registered, err := b.store.LoadRegistry(b.Context())
		b.must(err)
		registered.Handlers = registered.Handlers[1:] // without billing
		b.must(b.store.SaveRegistry(b.Context(), registered, nil))
		b.text("words", b.words(b.desk)[:2], `
			degraded: the program that started last does not have billing, which is 1 behind and keeps those events from being deleted
			absent: the program that started last does not have billing, which is 1 behind and keeps those events from being deleted: keyhold handlers ls`)
	})
}

func TestResultsHaveStableNames(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", "order.placed")
		b.halt(ada, 1)
		u, err := b.desk.Unit(b.Context(), ada, admin.ShowOptions{Payload: true})
		b.must(err)
		u.Owner, u.Generation, u.Halt.Generation = nil, 7, 7
		got, err := json.MarshalIndent(u, "", " ")
		b.must(err)
		b.same("a unit as JSON", string(got), `{
 "handler": "shipping",
 "key": "ada",
 "kind": "handler",
 "state": "halted",
 "words": "halted for 4 m at order:ada #1 (order.placed): retries exhausted after 5 attempts: card declined",
 "generation": 7,
 "halt": {
  "handler": "shipping",
  "key": "ada",
  "at": {
   "category": "order",
   "key": "ada",
   "sequence": 1,
   "event_id": "e-ada-1"
  },
  "type": "order.placed",
  "attempts": 5,
  "reason": "retries exhausted",
  "error": "card declined",
  "since": "2026-03-14T11:56:00Z",
  "generation": 7
 },
 "dead": 0,
 "lanes": [
  {
   "category": "order",
   "key": "ada",
   "tail": 1,
   "checkpoint": 0,
   "lag": 1,
   "next_type": "order.placed"
  }
 ],
 "lag": 1,
 "waiting": [
  {
   "id": "e-ada-1",
   "type": "order.placed",
   "version": 1,
   "at": {
    "category": "order",
    "key": "ada",
    "sequence": 1,
    "event_id": "e-ada-1"
   },
   "time": "2026-03-14T11:59:00Z",
   "encoding": "json",
   "size": 26,
   "payload": {
    "json": {
     "client_id": "ada",
     "n": 1
    }
   }
  }
 ],
 "expect": {
  "category": "order",
  "key": "ada",
  "sequence": 1,
  "event_id": "e-ada-1",
  "since": "2026-03-14T11:56:00Z"
 }
}`)
	})
}

func TestDeskOfAnApplicationThatIsNotStartedSaysSo(t *testing.T) {
	t.Parallel()
	notReady := errors.New("application is not started")
	d := admin.New(nil, admin.Options{Actor: "ada", Live: &admin.Live{Ready: func() error { return notReady }}})
	ctx, id, at := t.Context(), ada, admin.Place{Category: "order", Key: "ada", Sequence: 1}
	job := admin.JobRequest{Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "shipping"}}
	act := admin.ActRequest{Kind: eventstore.ActRetry, Handler: "shipping", Key: "ada"}
	for name, call := range map[string]func() error{
		"Status":       func() error { _, err := d.Status(ctx); return err },
		"Handlers":     func() error { _, err := d.Handlers(ctx); return err },
		"Handler":      func() error { _, err := d.Handler(ctx, "shipping"); return err },
		"Partitions":   func() error { _, err := d.Partitions(ctx, admin.PartitionQuery{}); return err },
		"Halts":        func() error { _, err := d.Halts(ctx, admin.UnitQuery{}); return err },
		"Parking":      func() error { _, err := d.Parking(ctx, admin.UnitQuery{}); return err },
		"Parked":       func() error { _, err := d.Parked(ctx, id, "", 0); return err },
		"Pauses":       func() error { _, err := d.Pauses(ctx, admin.UnitQuery{}); return err },
		"Unit":         func() error { _, err := d.Unit(ctx, id, admin.ShowOptions{}); return err },
		"Why":          func() error { _, err := d.Why(ctx, admin.WhyQuery{Category: "order", Key: "ada"}); return err },
		"Act":          func() error { _, err := d.Act(ctx, act); return err },
		"Preview":      func() error { _, err := d.Preview(ctx, act); return err },
		"PlanJob":      func() error { _, err := d.PlanJob(ctx, job); return err },
		"StartJob":     func() error { _, err := d.StartJob(ctx, job); return err },
		"Job":          func() error { _, err := d.Job(ctx, 1); return err },
		"Jobs":         func() error { _, err := d.Jobs(ctx, admin.JobQuery{}); return err },
		"PauseJob":     func() error { _, err := d.PauseJob(ctx, 1, "", ""); return err },
		"ResumeJob":    func() error { _, err := d.ResumeJob(ctx, 1, "", ""); return err },
		"CancelJob":    func() error { _, err := d.CancelJob(ctx, 1, "", ""); return err },
		"DeadLetters":  func() error { _, err := d.DeadLetters(ctx, admin.DeadQuery{}); return err },
		"DeadLetter":   func() error { _, err := d.DeadLetter(ctx, id, at, false); return err },
		"DeadGroups":   func() error { _, _, err := d.DeadGroups(ctx, ""); return err },
		"Events":       func() error { _, err := d.Events(ctx, admin.EventQuery{}); return err },
		"Event":        func() error { _, err := d.Event(ctx, at, false); return err },
		"Audit":        func() error { _, err := d.Audit(ctx, admin.AuditQuery{}); return err },
		"admin.Resume": func() error { _, err := admin.Resume(ctx, desked{d}, id); return err },
	} {
		if err := call(); !errors.Is(err, notReady) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type desked struct{ d *admin.Desk }

func (a desked) Admin() *admin.Desk { return a.d }
