package guarantees

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/local"
)

type worker struct{}

// TestWorkBeforeTheTransactionRunsInParallel has eight keys work for 50 ms each before their first statement: one after the other
// that is 400 ms, and where the transaction began with the behavior it would be. The best of some tries counts, since
// a busy machine may be late at any of them.
func TestWorkBeforeTheTransactionRunsInParallel(t *testing.T) {
	t.Parallel()
	const keys, work, limit = 8, 50 * time.Millisecond, 150 * time.Millisecond
	applied := make(chan event.Unit, keys)
	app := keyhold.New(keyhold.Config{
		Name: "parallel",
		Store: sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "p.db"), Setup: func(ctx context.Context, tx eventstore.SQL) error {
			_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS done (client TEXT)`)
			return err
		}}),
		Transport: local.New(),
		Observer:  keyhold.Observer{Applied: func(u event.Unit, _ *event.Envelope) { applied <- u }},
	})
	app.Register(
		keyhold.Category{Name: "work", Key: "client", Events: []keyhold.EventType{keyhold.EventOf[deposited]()}},
		keyhold.Handler[worker]{
			Name: "worker", Categories: []string{"work"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
			New: func(string) worker { return worker{} },
			On: keyhold.Behavior[worker]{keyhold.On(func(_ worker, ctx keyhold.Context, e deposited) error {
				timer := time.NewTimer(work)
				defer timer.Stop()
				select {
				case <-timer.C: // the work: a call of another service, say
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO done VALUES ($1)`, e.Client)
				return err
			})},
		},
	)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer app.Stop(context.Background())
	best := time.Hour
	for try := 0; try < 50 && best > limit; try++ {
		began := time.Now()
		err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
			for k := range keys {
				u.Emit(deposited{Client: fmt.Sprintf("client-%d", k)})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range keys {
			<-applied
		}
		best = min(best, time.Since(began))
	}
	t.Logf("%d keys with %v of work each, and a transaction: %v", keys, work, best)
	if best > limit {
		t.Errorf("took %v, want at most %v: the keys waited for one another", best, limit)
	}
}
