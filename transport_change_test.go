package keyhold_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/local"
)

// moving is an application that moves between transports, and what its handlers were given over all its lives.
type moving struct {
	*testing.T
	database string
	readers  map[string]*notes // by handler
	sent     map[string]int    // by client
}

func (m *moving) declarations() (all []keyhold.Declaration) {
	all = []keyhold.Declaration{cart, losses}
	for name, n := range m.readers {
		h := n.losses()
		h.Name = name
		if name == "parker" {
			h.OnPoison = keyhold.ParkSequence
		}
		all = append(all, h)
	}
	return all
}

func (m *moving) onLocal() *keyhold.App {
	m.Helper()
	return run(m.T, keyhold.Config{Name: "shop", Node: "one", Store: postgres.Open(m.database), Transport: local.New(), Logger: quiet}, m.declarations()...)
}

func (m *moving) onRedis(url, node string) *keyhold.App {
	m.Helper()
	return run(m.T, onRedis(postgres.Open(m.database), url, node), m.declarations()...)
}

// publish publishes so many events of each client.
func (m *moving) publish(app *keyhold.App, n int, clients ...string) {
	m.Helper()
	for range n {
		for _, client := range clients {
			m.sent[client]++
			if err := keyhold.Publish(m.Context(), app, itemLost{client, fmt.Sprint(client, " ", m.sent[client])}); err != nil {
				m.Fatal(err)
			}
		}
	}
}

// applied waits until a handler was given so many of each client, and checks that these are the first, once and in order.
func (m *moving) applied(handler string, n int, clients ...string) {
	m.Helper()
	for _, client := range clients {
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint(client, " ", i+1))
		}
		late, done := context.WithTimeout(m.Context(), 30*time.Second)
		defer done()
		for reader := m.readers[handler]; len(reader.of(client)) < n; {
			select {
			case <-reader.news:
			case <-late.Done():
				m.Fatalf("%s was given %q of %s, want %d", handler, reader.of(client), client, n)
			}
		}
		if diff := cmp.Diff(want, m.readers[handler].of(client)); diff != "" {
			m.Errorf("%s of %s (-want +got):\n%s", handler, client, diff)
		}
	}
}

// standing waits until a unit has a status.
func (m *moving) standing(app *keyhold.App, unit keyhold.Unit, status eventstore.Status) {
	m.Helper()
	m.eventually(fmt.Sprint(unit, " is ", status), func() bool {
		x, err := app.Admin().Unit(m.Context(), unit, admin.ShowOptions{Waiting: -1})
		return err == nil && x.State == string(status)
	})
}

func (m *moving) eventually(what string, is func() bool) {
	m.Helper()
	soon(m.T, what, is)
}

// Work in every state goes from one process without a broker to nodes on Redis, and back: unread, halted, parked, due.
func TestAnApplicationMovesFromLocalToRedisAndBack(t *testing.T) {
	t.Parallel()
	m := &moving{T: t, database: postgresserver.Database(t), readers: map[string]*notes{"reader": newNotes(), "halter": newNotes(), "parker": newNotes()}, sent: map[string]int{}}
	clients := []string{"ada", "bob", "cyd"}
	halted, parked := keyhold.Unit{Name: "halter", Key: "ada"}, keyhold.Unit{Name: "parker", Key: "bob"}
	reader := keyhold.Unit{Name: "reader"}
	m.readers["halter"].refuse("ada 3", true)
	m.readers["parker"].refuse("bob 3", true)

	app := m.onLocal()
	m.publish(app, 2, clients...)
	for handler := range m.readers {
		m.applied(handler, 2, clients...)
	}
	do(t, app.Admin(), eventstore.ActPause, reader)
	m.publish(app, 3, clients...)
	m.standing(app, halted, eventstore.StatusHalted)
	m.standing(app, parked, eventstore.StatusParking)
	m.eventually("the others are through", func() bool { return len(m.readers["parker"].of("cyd")) == 5 && len(m.readers["halter"].of("bob")) == 5 })
	stop(t, app)

	// What is decided while nothing runs is taken up on Redis.
	m.readers["parker"].refuse("bob 3", false)
	attached, err := postgres.Attach(t.Context(), m.database)
	if err != nil {
		t.Fatal(err)
	}
	do(t, outside(attached), eventstore.ActRetry, parked)
	do(t, outside(attached), eventstore.ActResume, reader)
	if err := attached.Close(); err != nil {
		t.Fatal(err)
	}

	url := redisserver.Run(t, redisserver.Options{}).URL()
	first, second := m.onRedis(url, "one"), m.onRedis(url, "two")
	m.applied("reader", 5, clients...)
	m.applied("parker", 5, clients...)
	m.applied("halter", 2, "ada")
	m.publish(second, 2, clients...)
	m.applied("reader", 7, clients...)
	m.standing(first, halted, eventstore.StatusHalted)
	if got := m.readers["halter"].of("ada"); len(got) != 2 {
		t.Errorf("it went on past what halted it: %q", got)
	}
	m.readers["halter"].refuse("ada 3", false)
	do(t, first.Admin(), eventstore.ActRetry, halted)
	m.applied("halter", 7, clients...)

	// And back, with something unread, something halted, and something parked.
	m.readers["halter"].refuse("ada 8", true)
	m.readers["parker"].refuse("bob 8", true)
	do(t, second.Admin(), eventstore.ActPause, reader)
	m.eventually("the pause is known", func() bool {
		status, err := first.Admin().Handler(t.Context(), "reader")
		return err == nil && status.Pause != nil
	})
	m.publish(first, 2, clients...)
	m.standing(first, halted, eventstore.StatusHalted)
	m.standing(second, parked, eventstore.StatusParking)
	stop(t, first)
	stop(t, second)

	app = m.onLocal()
	m.readers["halter"].refuse("ada 8", false)
	m.readers["parker"].refuse("bob 8", false)
	do(t, app.Admin(), eventstore.ActRetry, halted)
	do(t, app.Admin(), eventstore.ActRetry, parked)
	do(t, app.Admin(), eventstore.ActResume, reader)
	m.publish(app, 1, clients...)
	for handler := range m.readers {
		m.applied(handler, 10, clients...)
	}
}
