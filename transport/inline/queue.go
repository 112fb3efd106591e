package inline

import (
	"sync"

	"github.com/keyhold/keyhold/event"
)

// queue holds what is to be delivered, in order. It starts nothing and waits for nothing: run takes from it, one delivery at
// a time, and says what became of it.
//
// Each item in it is looked after: by the caller that waits for the item's call, or by the one goroutine that has the
// queue to itself (lone).
type queue struct {
	subscribers map[string][]string // names by category, in order of registration

	mu struct {
		sync.Mutex
		items []*item
		now   *call // on whose behalf a unit is driven at this moment, nil when none is
		lone  bool  // a goroutine that nobody waits for delivers until the queue is empty
	}
}

// call is one caller's part of the queue: what it committed and, in turn, all that was committed while that was delivered.
type call struct {
	left int           // items in the queue; guarded by queue.mu
	done chan struct{} // closed when none is left
}

func newCall() *call { return &call{done: make(chan struct{})} }

// item is the rest of a tail: the events from seq to last, the first of them for names[at:] only. Guarded by queue.mu.
type item struct {
	call      *call
	lane      event.LaneRef
	seq, last event.Sequence
	names     []string
	at        int
}

// delivery is one event for one unit.
type delivery struct {
	unit event.Unit
	lane event.LaneRef
	seq  event.Sequence
	call *call
	item *item // nil for what was never queued
}

// add queues tails as a call of their own. It gives nil when nobody subscribes to any of them.
func (q *queue) add(tails []event.Tail) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := newCall()
	q.push(c, tails)
	if c.left == 0 {
		return nil
	}
	return c
}

// addNested queues tails on behalf of the call that is served at this moment. When there is none, and nobody to look after
// them, it returns true: the queue is the caller's to hand to a goroutine.
func (q *queue) addNested(tails []event.Tail) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.now != nil {
		q.push(q.mu.now, tails)
		return false
	}
	c := newCall()
	q.push(c, tails)
	return c.left > 0 && q.claim()
}

// leave says that nobody waits for c any more. It returns true like addNested.
func (q *queue) leave(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return c.left > 0 && q.claim()
}

// next gives what is to be delivered next, for as long as c is not done; a nil c means until the queue is empty.
func (q *queue) next(c *call) (delivery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.items) == 0 && c == nil {
		q.mu.lone = false
	}
	if len(q.mu.items) == 0 || c != nil && c.left == 0 {
		return delivery{}, false
	}
	head := q.mu.items[0]
	unit := event.Unit{Name: head.names[head.at], Key: head.lane.Key}
	return delivery{unit: unit, lane: head.lane, seq: head.seq, call: head.call, item: head}, true
}

// begin says that d is being delivered.
func (q *queue) begin(d delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.now = d.call
}

// end says that d is not being delivered any more, and whether it is through.
func (q *queue) end(d delivery, through bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.now = nil
	it := d.item
	if it == nil || !through {
		return
	}
	if it.at++; it.at < len(it.names) {
		return
	}
	if it.at, it.seq = 0, it.seq+1; it.seq <= it.last {
		return
	}
	q.mu.items[0] = nil // it is the head still: one delivery at a time
	q.mu.items = q.mu.items[1:]
	if it.call.left--; it.call.left == 0 {
		close(it.call.done)
	}
}

// push appends what has subscribers. q.mu is held.
func (q *queue) push(c *call, tails []event.Tail) {
	for _, tail := range tails {
		if names := q.subscribers[tail.Lane.Category]; len(names) > 0 {
			c.left++
			q.mu.items = append(q.mu.items, &item{call: c, lane: tail.Lane, seq: tail.First, last: tail.Last, names: names})
		}
	}
}

// claim makes the caller the lone goroutine, unless there is one. q.mu is held.
func (q *queue) claim() bool {
	if q.mu.lone {
		return false
	}
	q.mu.lone = true
	return true
}
