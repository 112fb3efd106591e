package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// meeting lets nobody go on before all have come.
type meeting struct {
	missing atomic.Int64
	all     chan struct{}
}

func newMeeting(n int64) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(n)
	return m
}

func (m *meeting) attend(ctx context.Context) error {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestBehaviorsThatNeedEntitiesGetByWithFewConnections has 20 behaviors inside at once, each of which writes in its unit of work and asks an entity that has to commit, where the database
// has four connections for all of that. First all of them do it the wrong way round, and would wait for one another; then they do not.
func TestBehaviorsThatNeedEntitiesGetByWithFewConnections(t *testing.T) {
	t.Parallel()
	const many, conns = 20, 4
	inside := newMeeting(many)
	var app *keyhold.App
	var tried sync.Map // client
	refused := make(chan error, many)
	shelf := keyhold.Handler[int]{
		Name: "shelf", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest, Timeout: 20 * time.Second, New: func(string) int { return 0 },
		Retry: keyhold.RetryPolicy{Attempts: 2, Min: time.Millisecond},
		On: keyhold.Behavior[int]{keyhold.On(func(_ int, ctx keyhold.Context, e itemLost) error {
			take := func() error {
				_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO taken (client, item) VALUES ($1, $2)`, e.Client, e.Item)
				return err
			}
			ask := func() error {
				_, err := app.Ask(ctx, cart.ID(e.Client), &addItem{e.Client, e.Item})
				return err
			}
			if _, again := tried.LoadOrStore(e.Client, true); !again {
				if err := inside.attend(ctx); err != nil {
					return err
				}
				if err := take(); err != nil {
					return err
				}
				err := ask()
				refused <- err
				return err
			}
			return errors.Join(ask(), take())
		})},
	}
	store := postgres.New(postgres.Config{URL: postgresserver.Database(t), MaxConns: conns, Readers: 2, Setup: func(ctx context.Context, db eventstore.SQL) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE taken (client TEXT NOT NULL, item TEXT NOT NULL)`)
		return err
	}})
	app = run(t, onRedis(store, redisserver.Run(t, redisserver.Options{}).URL(), "shop"), cart, losses, shelf)
	var all []any
	want := map[string]int{}
	for i := range many {
		client := fmt.Sprint("client-", i)
		all = append(all, itemLost{client, "tea"})
		want[client] = 1
	}
	if err := keyhold.Publish(t.Context(), app, all...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range many {
		select {
		case err := <-refused:
			if !errors.Is(err, keyhold.ErrAskInTx) {
				t.Errorf("an ask with the transaction open: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("not all came in")
		}
	}
	got := map[string]int{}
	soon(t, "all have ended", func() bool {
		clear(got)
		rows, err := store.Reader().QueryContext(t.Context(), `SELECT t.client, count(*) FROM taken t JOIN keyhold_log l ON l.stream_kind = 'cart' AND l.stream_id = t.client GROUP BY t.client`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var client string
			var n int
			if err := rows.Scan(&client, &n); err != nil {
				t.Fatal(err)
			}
			got[client] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return len(got) == many
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("taken, and added to a cart, how often (-want +got):\n%s", diff)
	}
}
