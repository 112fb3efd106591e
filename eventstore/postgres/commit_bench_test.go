package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

// BenchmarkCommit is one event of an entity, with the checkpoint of a handler, in a lane that nobody else uses.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		name  string
		fsync bool
		sql   bool
	}{{"fast", false, false}, {"fast with SQL", false, true}, {"synced", true, false}, {"synced with SQL", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			server := postgresserver.Run(b, postgresserver.Options{Fsync: c.fsync})
			store := New(Config{URL: server.Database(b), Setup: func(ctx context.Context, db eventstore.SQL) error {
				_, err := db.ExecContext(ctx, `CREATE TABLE shipments (id text PRIMARY KEY, n int NOT NULL)`)
				return err
			}})
			if _, err := store.Start(b.Context(), eventstore.StartOptions{}); err != nil {
				b.Fatal(err)
			}
			defer store.Stop(context.Background())
			var next atomic.Int64
			b.ResetTimer()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Sprintf("k-%d", next.Add(1))
				unit, lane := event.Unit{Name: "shipping", Key: key}, event.LaneRef{Category: "order", Key: key}
				for n := uint64(0); pb.Next(); n++ {
					e := events(key, 1).Publish[0]
					e.ID = fmt.Sprintf("%s-%d", key, n)
					tx := store.Begin("bench")
					if c.sql {
						db, err := tx.SQL(b.Context())
						if err == nil {
							_, err = db.ExecContext(b.Context(), `INSERT INTO shipments VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = shipments.n + 1`, key)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
					if _, err := tx.Commit(b.Context(), eventstore.Changes{
						Fence:   eventstore.Fence{Unit: unit},
						Append:  []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: key}, Expected: n, Events: []event.Envelope{e}}},
						Advance: []eventstore.Advance{{Lane: lane, From: event.Sequence(n), To: event.Sequence(n + 1), EventID: e.ID}},
					}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}
