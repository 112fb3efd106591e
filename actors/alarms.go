package actors

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

// alarms is the one place where the units of a runtime wait for a time: back-off, idleness, the timers of behaviors and the
// watch over those that take too long. A unit that waits costs an entry in a heap, no goroutine.
type alarms struct {
	loop lifecycle.Loop
	poke chan struct{} // holds one token when the earliest alarm has changed
	mu   struct {
		sync.Mutex
		heap alarmHeap
	}
}

func newAlarms() *alarms { return &alarms{poke: make(chan struct{}, 1)} }

// alarm is one entry. Its owner keeps it and sets it as often as it likes.
type alarm struct {
	ring func() // called by the loop; must not block
	at   time.Time
	i    int // place in the heap, from 1; 0 = not set
}

func (a *alarms) Start(ctx context.Context) error { return a.loop.Start(ctx, a.run) }

// Stop ends the loop. Alarms that are set stay set, and ring after another Start.
func (a *alarms) Stop(ctx context.Context) error { return a.loop.Stop(ctx) }

// set has e ring at a time, instead of any it was set to before.
func (a *alarms) set(e *alarm, at time.Time) {
	a.mu.Lock()
	e.at = at
	if e.i == 0 {
		heap.Push(&a.mu.heap, e)
	} else {
		heap.Fix(&a.mu.heap, e.i-1)
	}
	first := e.i == 1
	a.mu.Unlock()
	if first {
		a.wake()
	}
}

// clear has e not ring; it may be ringing just now.
func (a *alarms) clear(e *alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.i != 0 {
		heap.Remove(&a.mu.heap, e.i-1)
	}
}

func (a *alarms) wake() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
}

func (a *alarms) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait := a.due(time.Now())
		for _, e := range due {
			e.ring()
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.poke:
		case <-ctx.Done():
			return
		}
	}
}

// due takes the alarms that ring now, and tells how long until the next.
func (a *alarms) due(now time.Time) (due []*alarm, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.mu.heap) > 0 {
		e := a.mu.heap[0]
		if e.at.After(now) {
			return due, e.at.Sub(now)
		}
		heap.Pop(&a.mu.heap)
		due = append(due, e)
	}
	return due, time.Hour
}

// alarmHeap is a container/heap by time.
type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].i, h[j].i = i+1, j+1
}

func (h *alarmHeap) Push(v any) {
	e := v.(*alarm)
	*h = append(*h, e)
	e.i = len(*h)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.i = 0
	return e
}
