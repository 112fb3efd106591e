package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors/internal/host"
)

// actor is made of funcs.
type actor struct {
	receive func(message any)
	failed  func(reason any)
}

func (a actor) Receive(message any) { a.receive(message) }

func (a actor) Failed(reason any) { a.failed(reason) }

func start(t *testing.T, limit int) *host.System {
	t.Helper()
	s := host.New(limit)
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestMessagesComeOneAtATimeInTheOrderOfEachSender(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 500
	s := start(t, 4)
	var inside atomic.Bool
	var all sync.WaitGroup
	all.Add(senders * each)
	last := map[int]int{}
	ref := s.Spawn(actor{receive: func(m any) {
		defer all.Done()
		if inside.Swap(true) {
			t.Error("two messages at once")
		}
		got := m.([2]int)
		if got[1] != last[got[0]] {
			t.Errorf("sender %d: message %d, want %d", got[0], got[1], last[got[0]])
		}
		last[got[0]]++
		inside.Store(false)
	}})
	for sender := range senders {
		go func() {
			for i := range each {
				ref.Send([2]int{sender, i})
			}
		}()
	}
	all.Wait()
}

// Actors that wait for a slot must not need a goroutine each.
func TestAtMostLimitActorsRunAndTheOthersCostNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, actors = 3, 1000
		s := start(t, limit)
		var inside, done atomic.Int32
		letGo := make(chan struct{})
		before := runtime.NumGoroutine()
		for range actors {
			s.Spawn(actor{receive: func(any) {
				if n := inside.Add(1); n > limit {
					t.Errorf("%d at once", n)
				}
				<-letGo
				inside.Add(-1)
				done.Add(1)
			}}).Send("go")
		}
		synctest.Wait()
		if inside.Load() != limit {
			t.Errorf("%d run, want %d", inside.Load(), limit)
		}
		if n := runtime.NumGoroutine() - before; n > actors/2 { // other tests have goroutines, too
			t.Errorf("%d goroutines more", n)
		}
		close(letGo)
		synctest.Wait()
		if done.Load() != actors {
			t.Errorf("%d are done, want %d", done.Load(), actors)
		}
	})
}

func TestAnActorThatIsAlwaysBusyGivesWayToOthers(t *testing.T) {
	t.Parallel()
	s := start(t, 1)
	var busy *host.Ref
	var stop atomic.Bool
	ended := make(chan struct{})
	ready := make(chan struct{})
	busy = s.Spawn(actor{receive: func(any) {
		<-ready
		if stop.Load() {
			close(ended)
			return
		}
		busy.Send("again")
	}})
	busy.Send("begin")
	s.Spawn(actor{receive: func(any) { stop.Store(true) }}).Send("now")
	close(ready)
	<-ended
}

func TestAnActorThatIsBlockedLendsItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1)
		var first *host.Ref
		answered := make(chan string)
		var log []string
		second := s.Spawn(actor{receive: func(any) { log = append(log, "second"); answered <- "yes" }})
		first = s.Spawn(actor{receive: func(any) {
			second.Send("question")
			first.Block()
			<-answered
			first.Unblock()
			log = append(log, "first")
		}})
		first.Send("go")
		synctest.Wait()
		if fmt.Sprint(log) != "[second first]" {
			t.Errorf("log: %v", log)
		}
		third := make(chan struct{})
		for range 2 {
			s.Spawn(actor{receive: func(any) { third <- struct{}{} }}).Send("go")
		}
		synctest.Wait()
		<-third
		<-third // one after the other: the slot was given back once, not twice
	})
}

func TestAnActorThatPanicsIsToldAndStopped(t *testing.T) {
	t.Parallel()
	s := start(t, 1)
	failed := make(chan any, 1)
	var received atomic.Int32
	ref := s.Spawn(actor{
		receive: func(any) { received.Add(1); panic("oops") },
		failed:  func(reason any) { failed <- reason },
	})
	ref.Send(1)
	if got := <-failed; got != "oops" {
		t.Errorf("reason: %v", got)
	}
	other := make(chan struct{})
	s.Spawn(actor{receive: func(any) { close(other) }}).Send(1)
	<-other
	if received.Load() != 1 {
		t.Errorf("received %d messages", received.Load())
	}
}

func TestAnActorThatEndsItsGoroutineCostsNoSlot(t *testing.T) {
	t.Parallel()
	s := start(t, 1)
	failed := make(chan any, 1)
	s.Spawn(actor{receive: func(any) { runtime.Goexit() }, failed: func(reason any) { failed <- reason }}).Send(1)
	if err, ok := (<-failed).(error); !ok || err == nil {
		t.Errorf("reason: %v", err)
	}
	other := make(chan struct{})
	s.Spawn(actor{receive: func(any) { close(other) }}).Send(1)
	<-other
}

func TestStopWaitsForWhatRunsAndGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := host.New(2)
		letGo := make(chan struct{})
		s.Spawn(actor{receive: func(any) { <-letGo }}).Send(1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		close(letGo)
		for range 2 {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
