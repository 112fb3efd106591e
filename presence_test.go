package keyhold_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// outlook is a desk as the command has it: it sees the store alone.
func outlook(t *testing.T, db string) func() admin.Status {
	t.Helper()
	store, err := postgres.Attach(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	desk := admin.New(store, admin.Options{})
	return func() admin.Status {
		status, err := desk.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
}

// says reports whether a status has that the process is apart, and why.
func says(s admin.Status, why string) bool {
	for _, p := range s.Problems {
		if p.Kind == admin.ProblemApart && strings.Contains(p.Words, why) {
			return s.Verdict == admin.Degraded && !p.Oldest.IsZero()
		}
	}
	return false
}

func TestWhoLooksAtTheStoreIsToldThatTheBrokerIsOutOfReach(t *testing.T) {
	t.Parallel()
	db, server := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{})
	run(t, onRedis(postgres.Open(db), server.URL(), "one"), cart, losses)
	look := outlook(t, db)
	if s := look(); s.Verdict != admin.Healthy {
		t.Fatalf("at first: %s", s.Words)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the status has it", func() bool { return says(look(), "(one) says") && says(look(), "the broker redis is out of reach: ") })
	if err := server.Restart(context.WithoutCancel(t.Context()), false); err != nil {
		t.Fatal(err)
	}
	soon(t, "the status is as before", func() bool { return look().Verdict == admin.Healthy })
}

func TestProcessesOfOneStoreOnTwoBrokersAreFound(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	log, apps := &journal{}, []*keyhold.App{}
	for _, node := range []string{"one", "two"} {
		cfg := onRedis(postgres.Open(db), "", node)
		cfg.Transport = redis.New(redis.Config{URL: redisserver.Run(t, redisserver.Options{}).URL(), TTL: time.Second})
		if node == "one" {
			cfg.Logger = log.logger()
		}
		apps = append(apps, run(t, cfg, cart, losses))
	}
	look := outlook(t, db)
	soon(t, "the status has it", func() bool {
		return says(look(), "has this store open too, and is none of the nodes on redis: it is frozen, or it cannot reach that, or it is on another server, database or namespace")
	})
	soon(t, "the log has it", func() bool {
		return len(log.lines(`level=WARN msg="another process has this store open, and is none of the nodes that the broker knows: it is frozen`)) == 1
	})
	if err := apps[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the log has that it is over", func() bool {
		return len(log.lines(`level=INFO msg="the process that was none of the nodes has the store open no more" node=two`)) == 1
	})
}

func TestNodesThatDifferInASettingSaySo(t *testing.T) {
	t.Parallel()
	db, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	var logs [2]journal
	var apps [2]*keyhold.App
	for i, ttl := range []time.Duration{2 * time.Second, 3 * time.Second} {
		cfg := onRedis(postgres.Open(db), "", []string{"one", "two"}[i])
		cfg.Transport, cfg.Logger = redis.New(redis.Config{URL: url, TTL: ttl}), logs[i].logger()
		apps[i] = run(t, cfg, cart, losses)
	}
	const line = "another node has a setting otherwise that must be the same on all"
	soon(t, "both logs have it", func() bool {
		return len(logs[0].lines(line, "setting=TTL here=2s there=3s node=two")) == 1 && len(logs[1].lines(line, "setting=TTL here=3s there=2s node=one")) == 1
	})
	look := outlook(t, db)
	soon(t, "the status has it", func() bool {
		s := look()
		return s.Verdict == admin.Healthy && len(s.Problems) == 1 && s.Problems[0].Kind == admin.ProblemUnlike && strings.HasPrefix(s.Problems[0].Words, "nodes differ in TTL, which must be the same on all: 2s at process ")
	})
	if err := apps[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the other log has that it is over", func() bool { return len(logs[1].lines("all nodes have the same settings again")) == 1 })
	if said := logs[1].lines(line); len(said) != 1 {
		t.Errorf("it was said %d times: %s", len(said), said)
	}
}

func TestAnotherApplicationIsRefusedTheStore(t *testing.T) {
	t.Parallel()
	db, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	shop := run(t, onRedis(postgres.Open(db), url, "one"), cart, losses)
	cfg := onRedis(postgres.Open(db), url, "two")
	cfg.Name = "bank"
	bank := keyhold.New(cfg)
	bank.Register(cart)
	err := bank.Start(t.Context())
	for _, part := range []string{`start bank: store `, `is of the application "shop", and this program is "bank" (Config.Name)`, `a schema of its own`, `set Config.FormerName to "shop"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("it was refused with %v, not %s", err, part)
		}
	}
	if err := shop.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.FormerName, cfg.Store = "shop", postgres.Open(db)
	run(t, cfg, cart, losses)
}
