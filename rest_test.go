package keyhold_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// beside gives the desk of somebody who has no application running.
func beside(t *testing.T, db string) *admin.Desk {
	t.Helper()
	store, err := postgres.Attach(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return admin.New(store, admin.Options{Actor: "ada"})
}

func within[T any](t *testing.T, d time.Duration, what string, news <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	select {
	case s := <-news:
		return s
	case <-ctx.Done():
		t.Fatalf("not within %v: %s", d, what)
	}
	return *new(T)
}

// noted waits until Redis has a note that a key waits for a person.
func noted(t *testing.T, server *redisserver.Server, handler, key string) {
	t.Helper()
	soon(t, "a note that the key waits for a person", func() bool {
		is, err := server.Do(t.Context(), "SISMEMBER", handler+":__halted__", key)
		if err != nil {
			t.Fatal(err)
		}
		return is == int64(1)
	})
}

// What is done while no node runs takes effect at the next start, although Redis has noted that the key waits for a person.
func TestWhatWasLiftedWhileNoNodeRanRuns(t *testing.T) {
	t.Parallel()
	db, server := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{})
	url := server.URL()
	n, halted := newNotes(), make(chan keyhold.Halted, 1)
	cfg := onRedis(postgres.Open(db), url, "first")
	cfg.Observer.Halted = func(h keyhold.Halted) { halted <- h }
	app := run(t, cfg, cart, losses, n.losses())
	n.refuse("bomb", true)
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "bomb"}, itemLost{"ada", "tea"}); err != nil {
		t.Fatal(err)
	}
	<-halted
	noted(t, server, "losses", "ada")
	stop(t, app)
	n.refuse("bomb", false)
	if _, err := beside(t, db).Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: "losses", Key: "ada", Reason: "mended"}); err != nil {
		t.Fatal(err)
	}
	run(t, onRedis(postgres.Open(db), url, "second"), cart, losses, n.losses())
	for _, want := range []string{"bomb", "tea"} {
		if got := within(t, time.Minute, want+" is applied", n.news); got != want {
			t.Errorf("%s is applied, want %s", got, want)
		}
	}
}

// A note that a key waits for a person may be left although it does not: the one who halted it may be slower to say so than another one to take it back.
func TestANoteOfAKeyThatDoesNotWaitHidesNothingForEver(t *testing.T) {
	t.Parallel()
	server, n := redisserver.Run(t, redisserver.Options{}), newNotes()
	app := run(t, onRedis(postgres.Open(postgresserver.Database(t)), server.URL(), "one"), cart, losses, n.losses())
	for _, set := range []string{"losses:__busy__", "losses:__halted__"} {
		if _, err := server.Do(t.Context(), "SADD", set, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "tea"}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "what is hidden is applied", n.news)
}
