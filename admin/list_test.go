package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// pages reads a list two at a time, and gives one word for each item.
func pages[T any](b *bundle, read func(cursor string, limit int) (admin.Page[T], error), word func(T) string) []string {
	b.Helper()
	var words []string
	for cursor := ""; ; {
		p, err := read(cursor, 2)
		b.must(err)
		if len(p.Items) > 2 || p.Items == nil {
			b.Fatalf("a page of %d", len(p.Items))
		}
		for _, item := range p.Items {
			words = append(words, word(item))
		}
		if p.Next == "" {
			return words
		}
		if p.Next == cursor {
			b.Fatalf("a page follows itself: %q", words)
		}
		cursor = p.Next
	}
}

func TestListsArePagedAndInOrder(t *testing.T) {
	onStores(t, func(b *bundle) {
		clients := []string{"ada", "bob", "cyd", "dan", "eve"}
		for _, client := range clients {
			b.publish(client, "order.placed", "order.placed", "order.placed")
			u := event.Unit{Name: "shipping", Key: client}
			b.bury(u, 1, "poison")
			b.bury(u, 2, "rejected")
			b.halt(u, 3)
			b.park(event.Unit{Name: "billing", Key: client}, 1, 3)
		}
		for _, key := range []string{"ada", "", "cyd"} {
			_, err := b.desk.Act(b.Context(), request(eventstore.ActPause, event.Unit{Name: "shipping", Key: key}, "why not"))
			b.must(err)
		}
		of := func(what string, got []string, want string) {
			b.Helper()
			b.same(what, strings.Join(got, " "), want)
		}
		ctx := b.Context()
		of("halts", pages(b, func(cursor string, limit int) (admin.Page[admin.Halt], error) {
			return b.desk.Halts(ctx, admin.UnitQuery{Cursor: cursor, Limit: limit})
		}, func(h admin.Halt) string { return h.Key }), "ada bob cyd dan eve")
		of("parking", pages(b, func(cursor string, limit int) (admin.Page[admin.Parking], error) {
			return b.desk.Parking(ctx, admin.UnitQuery{Handler: "billing", Cursor: cursor, Limit: limit})
		}, func(p admin.Parking) string { return fmt.Sprint(p.Key, p.Count, p.First.At.Sequence) }), "ada3 1 bob3 1 cyd3 1 dan3 1 eve3 1")
		of("parked", pages(b, func(cursor string, limit int) (admin.Page[admin.Parked], error) {
			return b.desk.Parked(ctx, event.Unit{Name: "billing", Key: "bob"}, cursor, limit)
		}, func(p admin.Parked) string { return p.At.String() }), "order:bob #1 order:bob #2 order:bob #3")
		of("pauses", pages(b, func(cursor string, limit int) (admin.Page[admin.Pause], error) {
			return b.desk.Pauses(ctx, admin.UnitQuery{Handler: "shipping", Cursor: cursor, Limit: limit})
		}, func(p admin.Pause) string { return "[" + p.Key + "]" }), "[] [ada] [cyd]")
		of("partitions", pages(b, func(cursor string, limit int) (admin.Page[admin.Partition], error) {
			return b.desk.Partitions(ctx, admin.PartitionQuery{Category: "order", Cursor: cursor, Limit: limit})
		}, func(p admin.Partition) string {
			return p.Handler[:1] + "/" + p.Key + ":" + p.Status + fmt.Sprint(p.Lag)
		}),
			"b/ada:parking0 b/bob:parking0 b/cyd:parking0 b/dan:parking0 b/eve:parking0 s/ada:halted1 s/bob:halted1 s/cyd:halted1 s/dan:halted1 s/eve:halted1")
		of("halted partitions", pages(b, func(cursor string, limit int) (admin.Page[admin.Partition], error) {
			return b.desk.Partitions(ctx, admin.PartitionQuery{Handler: "shipping", Status: "halted", Cursor: cursor, Limit: limit})
		}, func(p admin.Partition) string { return p.Key }), "ada bob cyd dan eve")
		dead := func(f admin.Filter) []string {
			return pages(b, func(cursor string, limit int) (admin.Page[admin.DeadLetter], error) {
				return b.desk.DeadLetters(ctx, admin.DeadQuery{Filter: f, Cursor: cursor, Limit: limit})
			}, func(l admin.DeadLetter) string { return fmt.Sprint(l.Key, l.At.Sequence) })
		}
		of("dead letters", dead(admin.Filter{}), "ada1 ada2 bob1 bob2 cyd1 cyd2 dan1 dan2 eve1 eve2")
		of("of a key", dead(admin.Filter{Key: "cyd"}), "cyd1 cyd2")
		of("of a reason", dead(admin.Filter{Handler: "shipping", Reason: "rejected"}), "ada2 bob2 cyd2 dan2 eve2")
		of("of an event", dead(admin.Filter{EventID: b.eventAt("dan", 2)}), "dan2")
		of("of a type that has none", dead(admin.Filter{Type: "order.paid"}), "")
		of("of a time that has none", dead(admin.Filter{From: noon}), "")
		of("of a handler that has none", dead(admin.Filter{Handler: "billing"}), "")
		of("audit", pages(b, func(cursor string, limit int) (admin.Page[admin.Audit], error) {
			return b.desk.Audit(ctx, admin.AuditQuery{Cursor: cursor, Limit: limit})
		}, func(a admin.Audit) string { return fmt.Sprint(a.ID, a.Key) }), "3cyd 2 1ada")
		of("events of a lane", pages(b, func(cursor string, limit int) (admin.Page[admin.Event], error) {
			return b.desk.Events(ctx, admin.EventQuery{Category: "order", Key: "bob", Cursor: cursor, Limit: limit})
		}, func(e admin.Event) string { return e.At.String() }), "order:bob #1 order:bob #2 order:bob #3")
		all := pages(b, func(cursor string, limit int) (admin.Page[admin.Event], error) {
			return b.desk.Events(ctx, admin.EventQuery{Cursor: cursor, Limit: limit})
		}, func(e admin.Event) string { return e.At.Key })
		slices.Sort(all)
		of("all events", slices.Compact(all), "ada bob cyd dan eve")
	})
}

func TestListsRefuseLimitsCursorsAndNamesThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	ctx := t.Context()
	b.publish("ada", "order.placed", "order.placed", "order.placed")
	first, err := b.desk.Partitions(ctx, admin.PartitionQuery{Limit: 1})
	b.must(err)
	lists := map[string]func(name, cursor string, limit int) error{
		"partitions": func(name, cursor string, limit int) error {
			_, err := b.desk.Partitions(ctx, admin.PartitionQuery{Handler: name, Cursor: cursor, Limit: limit})
			return err
		},
		"halts": func(name, cursor string, limit int) error {
			_, err := b.desk.Halts(ctx, admin.UnitQuery{Handler: name, Cursor: cursor, Limit: limit})
			return err
		},
		"parking": func(name, cursor string, limit int) error {
			_, err := b.desk.Parking(ctx, admin.UnitQuery{Handler: name, Cursor: cursor, Limit: limit})
			return err
		},
		"pauses": func(name, cursor string, limit int) error {
			_, err := b.desk.Pauses(ctx, admin.UnitQuery{Handler: name, Cursor: cursor, Limit: limit})
			return err
		},
		"parked": func(name, cursor string, limit int) error {
			_, err := b.desk.Parked(ctx, event.Unit{Name: name, Key: "ada"}, cursor, limit)
			return err
		},
		"dead letters": func(name, cursor string, limit int) error {
			_, err := b.desk.DeadLetters(ctx, admin.DeadQuery{Filter: admin.Filter{Handler: name}, Cursor: cursor, Limit: limit})
			return err
		},
		"events": func(name, cursor string, limit int) error {
			_, err := b.desk.Events(ctx, admin.EventQuery{Entity: event.Stream{Kind: name, ID: "o-1"}, Cursor: cursor, Limit: limit})
			return err
		},
	}
	for name, list := range lists {
		for _, limit := range []int{-1, admin.MaxLimit + 1} {
			if err := list("shipping", "", limit); !errors.Is(err, admin.ErrUsage) {
				t.Errorf("%s, limit %d: %v", name, limit, err)
			}
		}
		if err := list("shipping", "", admin.MaxLimit); err != nil {
			t.Errorf("%s, the largest limit: %v", name, err)
		}
		cursors := []string{"x", "!!", "W10"}
		if name != "partitions" {
			cursors = append(cursors, first.Next) // of another list
		}
		for _, cursor := range cursors {
			if err := list("shipping", cursor, 0); !errors.Is(err, admin.ErrUsage) || !strings.Contains(err.Error(), "is not one that this list gave") {
				t.Errorf("%s, cursor %q: %v", name, cursor, err)
			}
		}
		if err := list("shiping", "", 0); !errors.Is(err, eventstore.ErrNotFound) || !strings.Contains(err.Error(), `(known: "billing", "order", "shipping")`) {
			t.Errorf("%s of a name that is none: %v", name, err)
		}
	}
	_, err = b.desk.Partitions(ctx, admin.PartitionQuery{Status: "hlated", Limit: -1})
	if err == nil || err.Error() != `limit is -1: give 1 to 10000, 0 for 100; status "hlated" is none: give done, behind, trying, halted, parking or paused` {
		t.Errorf("two faults: %v", err)
	}
	_, err = b.desk.Partitions(ctx, admin.PartitionQuery{Category: "odrer"})
	if !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("category that is none: %v", err)
	}
	for _, limit := range []int{-1, admin.MaxLimit + 1} {
		_, err1 := b.desk.Audit(ctx, admin.AuditQuery{Limit: limit})
		_, err2 := b.desk.Jobs(ctx, admin.JobQuery{Limit: limit})
		_, err3 := b.desk.Events(ctx, admin.EventQuery{Limit: limit})
		if !errors.Is(err1, admin.ErrUsage) || !errors.Is(err2, admin.ErrUsage) || !errors.Is(err3, admin.ErrUsage) {
			t.Errorf("limit %d: %v, %v, %v", limit, err1, err2, err3)
		}
	}
}

func TestUnitRefusesNamesThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	_, err := b.desk.Unit(t.Context(), event.Unit{Name: "shiping", Key: "ada"}, admin.ShowOptions{})
	if !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("a name that is none: %v", err)
	}
	_, err = b.desk.Unit(t.Context(), event.Unit{}, admin.ShowOptions{})
	if !errors.Is(err, admin.ErrUsage) || err.Error() != "no handler or entity kind is named: give one; no key is named: give one" {
		t.Errorf("none: %v", err)
	}
	_, err = b.desk.Unit(t.Context(), event.Unit{Name: "shipping", Key: "zoe"}, admin.ShowOptions{})
	if want := `no event of category order has the key "zoe"; its keys are values of client_id`; !errors.Is(err, eventstore.ErrNotFound) || err.Error() != want {
		t.Errorf("one that was never seen: %v, want %s", err, want)
	}
}

func TestUnitShowsAsManyWaitingEventsAsAskedFor(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.publish("ada", slices.Repeat([]string{"order.placed"}, 8)...)
		late := event.Envelope{ID: "late", Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order", Key: "ada", Lane: event.Backfill, Time: noon.Add(-time.Hour)}
		b.commit(eventstore.Changes{Publish: []event.Envelope{late}})
		for ask, want := range map[int]int{-1: 0, 0: 5, 3: 3, 100: 9, 1000: 9} {
			u, err := b.desk.Unit(b.Context(), ada, admin.ShowOptions{Waiting: ask})
			b.must(err)
			if len(u.Waiting) != want || u.Lag != 9 {
				b.Errorf("%d of %d asked for, want %d", len(u.Waiting), ask, want)
			}
			if want == 9 && (!u.Waiting[8].At.Backfill || u.Waiting[7].At.Sequence != 8) {
				b.Errorf("backfilled events come last: %+v", u.Waiting)
			}
			for _, e := range u.Waiting {
				if e.Payload != nil {
					b.Error("what an event holds is shown without being asked for")
				}
			}
		}
	})
}

func TestAFaultOfTheStoreIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	if err := b.store.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, err1 := b.desk.Status(ctx)
	_, err2 := b.desk.Why(ctx, b.order("ada"))
	_, err3 := b.desk.Halts(ctx, admin.UnitQuery{})
	_, err4 := b.desk.Act(ctx, request(eventstore.ActRetry, ada, ""))
	_, err5 := b.desk.Jobs(ctx, admin.JobQuery{})
	_, err6 := b.desk.DeadLetters(ctx, admin.DeadQuery{})
	_, err7 := b.desk.Events(ctx, admin.EventQuery{Category: "order", Key: "ada"})
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}
