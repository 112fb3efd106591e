package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
)

// counter is a service as others build them; it notices when its loop runs twice at once.
type counter struct {
	loop    lifecycle.Loop
	inside  atomic.Int32
	overlap atomic.Bool
}

func (c *counter) Start(ctx context.Context) error {
	return c.loop.Start(ctx, func(ctx context.Context) {
		if c.inside.Add(1) != 1 {
			c.overlap.Store(true)
		}
		<-ctx.Done()
		c.inside.Add(-1)
	})
}

func (c *counter) Stop(ctx context.Context) error { return c.loop.Stop(ctx) }

func TestLoopStartedAndStoppedByMany(t *testing.T) {
	t.Parallel()
	c := new(counter)
	lifecycletest.Stress(t, c)
	if c.overlap.Load() {
		t.Error("run was entered twice at once")
	}
	if n := c.inside.Load(); n != 0 {
		t.Errorf("after Stop %d goroutines are inside run", n)
	}
}

func TestLoopOutlivesTheContextOfStart(t *testing.T) {
	t.Parallel()
	type key struct{}
	start, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	var l lifecycle.Loop
	cause := make(chan error, 1)
	entered := make(chan any)
	if err := l.Start(start, func(ctx context.Context) {
		entered <- ctx.Value(key{})
		<-ctx.Done()
		cause <- context.Cause(ctx)
	}); err != nil {
		t.Fatal(err)
	}
	if v := <-entered; v != "kept" {
		t.Errorf("value of Start's context: got %v", v)
	}
	cancel()
	if len(cause) != 0 {
		t.Error("the end of Start's context ended run")
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, lifecycle.ErrStopped) {
		t.Errorf("cause: got %v, want %v", err, lifecycle.ErrStopped)
	}
}

func TestLoopIsNotStartedWithAContextThatIsDone(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	var l lifecycle.Loop
	err := l.Start(ctx, func(context.Context) { t.Error("run was called") })
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Errorf("stop of what was never started: %v", err)
	}
}

func TestLoopThatReturnedByItselfCountsAsStartedUntilStopped(t *testing.T) {
	t.Parallel()
	var l lifecycle.Loop
	returned := make(chan struct{})
	if err := l.Start(t.Context(), func(context.Context) { close(returned) }); err != nil {
		t.Fatal(err)
	}
	<-returned
	never := func(context.Context) { t.Error("run was called") }
	if err := l.Start(t.Context(), never); !errors.Is(err, lifecycle.ErrStarted) {
		t.Errorf("got %v, want %v", err, lifecycle.ErrStarted)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context(), func(context.Context) {}); err != nil {
		t.Errorf("start after stop: %v", err)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestLoopStopGivesUpWithItsContextAndCanBeAskedAgain(t *testing.T) {
	t.Parallel()
	var l lifecycle.Loop
	letGo := make(chan struct{})
	if err := l.Start(t.Context(), func(context.Context) { <-letGo }); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Stop(short); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := l.Start(t.Context(), func(context.Context) {}); !errors.Is(err, lifecycle.ErrStarted) {
		t.Errorf("start while the old run is still inside: got %v, want %v", err, lifecycle.ErrStarted)
	}
	close(letGo)
	if err := l.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if err := l.Stop(short); err != nil {
		t.Errorf("stop of what has stopped, with a context that is done: %v", err)
	}
}

// busyGroup starts goroutines for as long as the group lets it.
type busyGroup struct {
	group lifecycle.Group
	live  atomic.Int32
}

func (b *busyGroup) Start(ctx context.Context) error {
	if err := b.group.Start(ctx); err != nil {
		return err
	}
	for range 4 {
		b.spawn()
	}
	return nil
}

func (b *busyGroup) spawn() {
	b.group.Go(func(ctx context.Context) {
		b.live.Add(1)
		defer b.live.Add(-1)
		<-ctx.Done()
		b.spawn() // refused once Stop has begun; a Start meanwhile must not adopt it
	})
}

func (b *busyGroup) Stop(ctx context.Context) error { return b.group.Stop(ctx) }

func TestGroupStartedAndStoppedByMany(t *testing.T) {
	t.Parallel()
	b := new(busyGroup)
	lifecycletest.Stress(t, b)
	if n := b.live.Load(); n != 0 {
		t.Errorf("after Stop %d goroutines are left", n)
	}
}

func TestGroupRunsNothingBeforeStartAndAfterStop(t *testing.T) {
	t.Parallel()
	var g lifecycle.Group
	never := func(context.Context) { t.Error("f was called") }
	if g.Go(never) {
		t.Error("Go before Start returned true")
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); !errors.Is(err, lifecycle.ErrStarted) {
		t.Errorf("got %v, want %v", err, lifecycle.ErrStarted)
	}
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g.Go(never) {
		t.Error("Go after Stop returned true")
	}
}

func TestGroupIsNotStartedWithAContextThatIsDone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var g lifecycle.Group
	if err := g.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if g.Go(func(context.Context) { t.Error("f was called") }) {
		t.Error("Go returned true")
	}
}

func TestGroupStopWaitsForEveryGoroutine(t *testing.T) {
	t.Parallel()
	var g lifecycle.Group
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	letGo := make(chan struct{})
	var entered sync.WaitGroup
	var left atomic.Int32
	for range 3 {
		entered.Add(1)
		if !g.Go(func(ctx context.Context) {
			entered.Done()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), lifecycle.ErrStopped) {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			<-letGo
			left.Add(1)
		}) {
			t.Fatal("Go returned false")
		}
	}
	entered.Wait()
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Stop(short); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if g.Go(func(context.Context) {}) {
		t.Error("Go while stopping returned true")
	}
	close(letGo)
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := left.Load(); n != 3 {
		t.Errorf("Stop returned when %d of 3 had left", n)
	}
}

func TestStopWithNothingLeftToWaitForNeedsNoTime(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // a select between two ready cases is a coin toss
		var g lifecycle.Group
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Stop(done); err != nil {
			t.Fatalf("stop of an empty group, with a context that is done: %v", err)
		}
	}
}
