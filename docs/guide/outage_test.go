package guide_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// What nodes.md says of outages, in the order in which the log has it.
const (
	redisIsDown = `level=WARN msg="out of reach: the broker redis: what is committed is published when it answers, and this process gives up its keys as their leases end; see whether its server runs and lets this process in"`
	noWakes     = `level=WARN msg="transport: will be delivered later" error="listen for wakes: `
	triedAgain  = `level=WARN msg="the broker did not do what this node asked: tried again" what=`
	redisIsBack = `level=INFO msg="reached again: the broker redis"`
	redisForgot = `level=WARN msg="the broker has lost its memory, or part of it: everything that was not passed is published again, and units wait until old leases have lapsed"`
	storeIsDown = `level=WARN msg="out of reach: the store: nothing is committed until it answers, and what people do to it is taken up then; see whether its server runs and lets this process in"`
	placeLost   = `level=WARN msg="store: place on the store lost"`
	placeTaken  = `level=INFO msg="store: place on the store taken again"`
	storeIsBack = `level=INFO msg="reached again: the store"`
)

// logged is a log that tests read while it grows.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // holds a token when something was written
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// await waits for a line.
func (l *logged) await(t *testing.T, line string) {
	t.Helper()
	late, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if strings.Contains(text, line) {
			return
		}
		select {
		case <-l.news:
		case <-late.Done():
			t.Fatalf("the log does not say %s:\n%s", line, text)
		}
	}
}

func TestTheLogSaysOfOutagesWhatThePageSays(t *testing.T) {
	t.Parallel()
	database, broker := postgresserver.Run(t, postgresserver.Options{}), redisserver.Run(t, redisserver.Options{})
	log := &logged{news: make(chan struct{}, 1)}
	app := keyhold.New(keyhold.Config{
		Name: "grocer", Logger: slog.New(slog.NewTextHandler(log, nil)),
		Store: postgres.Open(database.Database(t)), Transport: redis.Open(broker.URL() + "?ttl=2s"),
	})
	app.Register(keyhold.Category{Name: "price", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[PriceSet]()}})
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := app.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		do   func() error
		says []string
	}{
		{broker.Kill, []string{noWakes, redisIsDown, triedAgain}},
		{func() error { return broker.Restart(t.Context(), false) }, []string{redisIsBack, redisForgot}},
		{database.Kill, []string{placeLost, storeIsDown}},
		{func() error { return database.Restart(t.Context()) }, []string{placeTaken, storeIsBack}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, line := range step.says {
			log.await(t, line)
		}
	}
}
