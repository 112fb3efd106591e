package keyhold_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// A Redis that hangs keeps no node from stopping: leases lapse by themselves.
func TestStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server, n := redisserver.Run(t, redisserver.Options{}), newNotes()
	app := run(t, onRedis(postgres.Open(postgresserver.Database(t)), server.URL(), "one"), cart, losses, n.losses())
	for _, client := range []string{"ada", "bob", "cyd"} {
		if err := keyhold.Publish(t.Context(), app, itemLost{client, "tea"}); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "what is published is applied", n.news)
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer server.Thaw()
	const patience = 4 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err := app.Stop(ctx)
	took := time.Since(began)
	t.Logf("stopped in %v: %v", took, err)
	if took > patience+5*time.Second {
		t.Errorf("Stop took %v, with %v to stop in", took, patience)
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := app.Start(t.Context()); err != nil {
		t.Errorf("it cannot be started again: %v", err)
	}
}

// What a projection has in hand is told to hurry when the patience of a Stop is out, as it is without a broker.
func TestStopHurriesTheProjectionsOfANode(t *testing.T) {
	t.Parallel()
	server, inside := redisserver.Run(t, redisserver.Options{}), make(chan string, 10)
	p := keyhold.Projection[struct{}]{Name: "lost", Categories: []string{"cart"}, New: func() struct{} { return struct{}{} },
		On: keyhold.ProjectionCases[struct{}]{keyhold.Project(func(_ struct{}, ctx keyhold.ProjectionContext, _ itemLost) error {
			inside <- "in"
			<-ctx.Done()
			return context.Cause(ctx)
		})}}
	app := keyhold.New(onRedis(postgres.Open(postgresserver.Database(t)), server.URL(), "one"))
	app.Register(cart, losses, newNotes().losses(), p)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "tea"}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "the projection is given what was published", inside)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := app.Stop(ctx)
	if err := app.Start(t.Context()); err != nil {
		t.Errorf("it is not stopped: %v", err)
	}
	if err != nil {
		t.Errorf("Stop: %v", err)
	}
	if len(inside) > 0 {
		<-inside
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = app.Stop(ctx)
	_ = app.Stop(context.Background())
}
