package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// manyKeys makes a store of 100,000 partitions, of which one handler has passed nothing: 50 are halted, 20 have parked events, and
// 1,000 dead letters were set aside.
func manyKeys(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "store.db")
	s := Open(path)
	if _, err := s.Start(b.Context(), eventstore.StartOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := s.SaveRegistry(b.Context(), eventstore.Registered{
		Categories: []eventstore.Category{{Name: "order", KeyField: "key"}},
		Handlers:   []eventstore.Handler{{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}}},
	}, nil); err != nil {
		b.Fatal(err)
	}
	const keys, each = 100_000, 500
	for from := 0; from < keys; from += each {
		var c eventstore.Changes
		for k := from; k < from+each; k++ {
			e := publish(fmt.Sprintf("e-%06d", k)).Publish[0]
			e.Key = fmt.Sprintf("client-%06d", k)
			c.Publish = append(c.Publish, e)
		}
		if _, err := s.Begin("fill").Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	for k := range 1070 {
		u := event.Unit{Name: "shipping", Key: fmt.Sprintf("client-%06d", k*93)}
		ref := event.LaneRef{Category: "order", Key: u.Key}
		c := halted(u)
		if k >= 50 {
			c = passing(u, 0, 1)
			if k < 70 {
				c.Park = []eventstore.Parked{{Unit: u, Lane: ref, Sequence: 1, Reason: "poison"}}
			} else {
				c.Dead = []eventstore.Dead{{Unit: u, Lane: ref, Sequence: 1, Reason: "poison"}}
			}
		}
		if _, err := s.Begin("fill").Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkOperator is what an operator waits for. Each but a cold look is of a store that was attached to already.
func BenchmarkOperator(b *testing.B) {
	path := manyKeys(b)
	ctx := b.Context()
	b.Run("cold overview", func(b *testing.B) {
		for b.Loop() {
			a, err := Attach(ctx, path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := a.Overview(ctx); err != nil {
				b.Fatal(err)
			}
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	a, err := Attach(ctx, path)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	page := func(q eventstore.PartitionQuery) func() (int, error) {
		return func() (int, error) {
			q.Limit = 100
			found, err := a.ListPartitions(ctx, q)
			return len(found), err
		}
	}
	middle := eventstore.PartitionPlace{Name: "shipping", Lane: event.LaneRef{Category: "order", Key: "client-050000"}}
	for _, c := range []struct {
		name string
		rows int
		do   func() (int, error)
	}{
		{"overview", 1, func() (int, error) {
			o, err := a.Overview(ctx)
			return len(o.Handlers), err
		}},
		{"first page", 100, page(eventstore.PartitionQuery{})},
		{"page in the middle", 100, page(eventstore.PartitionQuery{After: middle})},
		{"halted", 50, page(eventstore.PartitionQuery{Status: eventstore.StatusHalted})},
		{"parking", 20, page(eventstore.PartitionQuery{Status: eventstore.StatusParking})},
		{"paused", 0, page(eventstore.PartitionQuery{Status: eventstore.StatusPaused})},
		{"behind", 100, page(eventstore.PartitionQuery{Status: eventstore.StatusBehind, After: middle})},
		{"dead letters", 100, func() (int, error) {
			found, err := a.ListDead(ctx, "shipping", event.Position{}, 100)
			return len(found), err
		}},
		{"last act", 0, func() (int, error) {
			id, err := a.LastAct(ctx)
			return int(id), err
		}},
		{"due units", 0, func() (int, error) {
			found, err := a.DueUnits(ctx, event.Unit{}, 100)
			return len(found), err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := c.do(); err != nil || n != c.rows {
					b.Fatalf("%d rows, %v, want %d", n, err, c.rows)
				}
			}
		})
	}
}
