package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/transport/redis"
)

// nodeVariable has this program be a node of an application, which is told what it needs by its value.
const nodeVariable = "KEYHOLD_BENCH_NODE"

const (
	ttl       = 3 * time.Second
	heartbeat = ttl / 5
	task      = 30 * time.Millisecond // that a behavior takes
)

// spec is what a node is told.
type spec struct {
	Name, Postgres, Redis string
	Inside                bool // behaviors take their time inside a transaction
}

// done is an event of the tasks.
type done struct {
	ClientID string `json:"client_id"`
}

var _ = keyhold.Type[done]("task.done", 1)

var tasks = keyhold.Category{Name: "task", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[done]()}}

func (s spec) app(declarations ...keyhold.Declaration) *keyhold.App {
	app := keyhold.New(keyhold.Config{
		Name: "bench", Node: s.Name, Logger: quiet,
		Store: postgres.New(postgres.Config{URL: s.Postgres, MaxConns: 2 * manyTasks, TransactionTimeout: ttl / 2, Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS totals (client text PRIMARY KEY, n bigint NOT NULL)`)
			return err
		}}),
		Transport: redis.New(redis.Config{URL: s.Redis, TTL: ttl}),
	})
	app.Register(declarations...)
	return app
}

// worker tells on standard output what it does: b when a behavior begins, t when it is inside a transaction, e when it ends.
type worker struct{ inside bool }

func tell(what, key string) {
	fmt.Fprintf(os.Stdout, "%s %s %d\n", what, key, time.Now().UnixNano())
}

// work takes its time, as work does: before the transaction, or inside it where that is what is frozen.
func (w *worker) work(ctx keyhold.Context, e done) error {
	tell("b", e.ClientID)
	if !w.inside {
		time.Sleep(task)
	}
	if _, err := ctx.Tx().ExecContext(ctx, `INSERT INTO totals VALUES ($1, 1) ON CONFLICT (client) DO UPDATE SET n = totals.n + 1`, e.ClientID); err != nil {
		return err
	}
	if w.inside {
		tell("t", e.ClientID)
		time.Sleep(task)
	}
	tell("e", e.ClientID)
	return nil
}

func node(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	app := s.app(tasks, keyhold.Handler[*worker]{
		Name: "worker", Categories: []string{"task"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
		Retry: keyhold.RetryPolicy{Attempts: 1_000_000, Min: 5 * time.Millisecond, Max: 50 * time.Millisecond},
		New:   func(string) *worker { return &worker{s.Inside} }, On: keyhold.Behavior[*worker]{keyhold.On((*worker).work)},
	})
	if err := app.Start(ctx); err != nil {
		return err
	}
	tell("ready", s.Name)
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return app.Stop(ctx)
}
