package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/grpc"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/redis"
)

// Leases of the demo are shorter than those of an application (15 s), so that nobody who looks on has to wait.
const ttl, heartbeat = 5 * time.Second, time.Second

// idle is after how long without an order a client is put away where there are several processes (30 s by default), so that who comes next can be
// seen to have its share.
const idle = 2 * time.Second

// many is the number of processes at the start where there can be several, unless another one is asked for; most is how many that may be.
const many, most = 3, 9

// choose reads what the application is to run on, and in how many processes; 0 = what is usual.
func (p *plan) choose(transport, store string, nodes int) error {
	switch transport + " " + store {
	case "local sqlite":
	case "redis sqlite":
		p.Redis = true
	case "redis postgres":
		p.Redis, p.Postgres = true, true
	case "local postgres":
		return errors.New("PostgreSQL without Redis is for one process at a time, as SQLite is, which the demo shows already: choose TRANSPORT=redis too")
	default:
		return fmt.Errorf("there is no demo of TRANSPORT=%s with STORE=%s: choose local and sqlite, redis and postgres, or redis and sqlite", transport, store)
	}
	switch {
	case !p.Postgres && nodes > 1:
		return fmt.Errorf("a SQLite file belongs to one process: for NODES=%d choose TRANSPORT=redis STORE=postgres", nodes)
	case p.Postgres && nodes != 0 && (nodes < 2 || nodes > most):
		return fmt.Errorf("NODES is %d: choose 2 to %d", nodes, most)
	case p.Postgres:
		p.Nodes = cmp.Or(nodes, many)
	}
	return nil
}

// several reports whether there can be more than one process.
func (p plan) several() bool { return p.Redis && p.Postgres }

// processes is how many share the work at the start, and atLast at the end: where there can be several, one more comes while they work.
func (p plan) processes() int {
	if p.several() {
		return cmp.Or(p.Nodes, many)
	}
	return 1
}

func (p plan) atLast() int {
	if p.several() {
		return p.processes() + 1
	}
	return 1
}

// at is where a process finds what it shares with others, or with its next life.
type at struct {
	DB    string // SQLite file, or postgres:// URL
	Redis string // redis:// URL; "" without
}

// storage is a store, with the connections that its tables are read by.
type storage interface {
	eventstore.Store
	Reader() *sql.DB
}

func (a at) store() storage {
	if strings.HasPrefix(a.DB, "postgres://") {
		return postgres.New(postgres.Config{URL: a.DB, Setup: orders.CreateTables, TransactionTimeout: ttl / 2})
	}
	return sqlite.New(sqlite.Config{Path: a.DB, Setup: orders.CreateTables})
}

// config is the application's, with the two lines that tell one process from many.
func (a at) config(node string, log *slog.Logger) (keyhold.Config, storage) {
	store := a.store()
	cfg := keyhold.Config{Name: "orders", Node: node, Store: store, Transport: local.New(), Logger: log}
	if a.Redis != "" {
		cfg.Transport, cfg.IdleAfter = redis.Open(a.Redis), idle
		cfg.Cluster.Peers = counted{grpc.New(grpc.Config{Logger: log})} // as the transport would bring along, but seen by the demo
	}
	return cfg, store
}

// ground is the servers that the demo has started for itself, if any.
type ground struct {
	at
	redis    *redisserver.Server
	postgres *postgresserver.Server
}

// prepare starts the servers of a plan.
func prepare(ctx context.Context, p plan, dir string) (_ *ground, err error) {
	g := &ground{at: at{DB: databaseIn(dir)}}
	defer func() {
		if err != nil {
			if errors.Is(err, redisserver.ErrMissing) || errors.Is(err, postgresserver.ErrMissing) {
				err = fmt.Errorf("%w\n`make services` installs what is missing", err)
			}
			err = errors.Join(err, g.close())
		}
	}()
	if p.Redis {
		if g.redis, err = redisserver.Start(ctx, redisserver.Options{}); err != nil {
			return nil, err
		}
		g.Redis = fmt.Sprintf("%s?ttl=%s", g.redis.URL(), ttl)
	}
	if p.Postgres {
		if g.postgres, err = postgresserver.Start(ctx, postgresserver.Options{}); err != nil {
			return nil, err
		}
		if err := g.postgres.Exec(ctx, "CREATE DATABASE orders"); err != nil {
			return nil, err
		}
		g.DB = g.postgres.URL("orders")
	}
	return g, nil
}

// close ends the servers. Their files go with them.
func (g *ground) close() (err error) {
	if g.redis != nil {
		err = g.redis.Stop()
	}
	if g.postgres != nil {
		err = errors.Join(err, g.postgres.Stop())
	}
	return err
}
