package actors

import (
	"context"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/actors/internal/ring"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// inbox is what others want of a unit. The unit's actor only gets a signal, and finds here what there is to do: so wakes merge,
// asks are counted before they are taken, and whoever stops the runtime can answer what waits although the unit is stuck.
type inbox struct {
	mu struct {
		sync.Mutex
		closed  bool // the unit is gone
		signals int  // sent to the actor, or about to be, and not received

		asks    ring.Queue[*ask]       // waiting
		told    []*ask                 // some of them, of which somebody wants to know that the unit lives here
		ticks   ring.Queue[*unitTimer] // that rang
		current *ask                   // in its behavior; whoever takes it from here answers it
		drives  []*drive

		bell chan struct{} // rung for whatever comes, while the actor waits for something else; holds one

		lease leaseNews

		wake   bool
		acted  bool
		timer  bool // the machine's
		drain  bool
		cancel bool // with drain: do not wait for behaviors
		over   bool // with drain: hand it over
	}
}

// drive is somebody waiting for a unit to get through a lane.
type drive struct {
	ctx  context.Context
	lane event.LaneRef
	seq  event.Sequence
	done chan error // holds one
}

// put changes the inbox; first reports that the actor is to be signalled, ok that the unit was not gone.
func (b *inbox) put(change func(*inbox)) (first, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return false, false
	}
	change(b)
	return b.signalLocked(), true
}

// putAsk is put for an ask; full reports that limit asks wait already.
func (b *inbox) putAsk(a *ask, limit int) (first, full, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.closed:
		return false, false, false
	case b.mu.asks.Len() >= limit:
		return false, true, true
	}
	b.mu.asks.Push(a)
	if a.taken != nil {
		b.mu.told = append(b.mu.told, a)
	}
	return b.signalLocked(), false, true
}

func (b *inbox) signalLocked() bool {
	if b.mu.bell != nil {
		select {
		case b.mu.bell <- struct{}{}:
		default:
		}
	}
	if b.mu.signals > 0 {
		return false
	}
	b.mu.signals++
	return true
}

// received notes the receipt of a signal.
func (b *inbox) received() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.signals--
}

// renewed keeps a renewal until the actor has something to do.
func (b *inbox) renewed(r partitions.Renewed, now partitions.Tick) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &b.mu.lease
	if n.renewed.Generation != r.Generation {
		n.renewed, n.first = r, now
	}
	n.renewed.Sent = max(n.renewed.Sent, r.Sent)
}

// takeRenewed takes the renewals, as one, and when the first of them came.
func (b *inbox) takeRenewed() (r partitions.Renewed, first partitions.Tick) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, first = b.mu.lease.renewed, b.mu.lease.first
	b.mu.lease.renewed = partitions.Renewed{}
	return r, first
}

// leaseNews takes one thing that there is to be told of the lease, the oldest first.
func (b *inbox) leaseNews() leaseNews {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &b.mu.lease
	var one leaseNews
	switch {
	case n.renewed.Generation != 0:
		one.renewed, one.first = n.renewed, n.first
		n.renewed = partitions.Renewed{}
	case n.lost != 0:
		one.lost, one.why = n.lost, n.why
		n.lost = 0
	case n.hung:
		one.hung, n.hung = true, false
	}
	return one
}

// again reports whether the actor is to send itself another signal.
func (b *inbox) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signalLocked()
}

// listen gives the actor a channel to be told by that something has come, until ignore.
func (b *inbox) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.bell = make(chan struct{}, 1)
	return b.mu.bell
}

func (b *inbox) ignore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.bell = nil
}

// asks tells how many wait.
func (b *inbox) asks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.asks.Len()
}

// close ends the inbox of a unit that wants nothing any more, if nobody else wants anything of it.
func (b *inbox) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.signals > 0 || b.wantedLocked() {
		return false
	}
	b.mu.closed = true
	return true
}

func (b *inbox) wantedLocked() bool {
	return b.mu.wake || b.mu.acted || b.mu.timer || b.mu.drain || b.behaviorLocked()
}

// behaviorLocked reports whether something waits for the behavior.
func (b *inbox) behaviorLocked() bool { return b.mu.asks.Len() > 0 || b.mu.ticks.Len() > 0 }

// closeHard ends the inbox of a unit that failed for good.
func (b *inbox) closeHard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
}

// wants takes the next thing that the machine must be told of; behaviors' things (asks, ticks) stay.
func (b *inbox) wants() (w want, asked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked = b.behaviorLocked()
	take := func(flag *bool) bool {
		was := *flag
		*flag = false
		return was
	}
	switch {
	case take(&b.mu.drain):
		if b.mu.cancel {
			return wantCancel, asked
		}
		if b.mu.over {
			return wantOver, asked
		}
		return wantDrain, asked
	case take(&b.mu.acted):
		return wantActed, asked
	case take(&b.mu.timer):
		return wantTimer, asked
	case take(&b.mu.wake):
		return wantWake, asked
	}
	return wantNothing, asked
}

// want is something that happened to a unit.
type want uint8

const (
	wantNothing want = iota
	wantDrain
	wantCancel
	wantOver
	wantActed
	wantTimer
	wantWake
)

// next takes what the behavior is to do next: a timer that rang, or an ask that somebody still waits for.
func (b *inbox) next() (*ask, *unitTimer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.ticks.Len() > 0 {
		return nil, b.mu.ticks.Pop()
	}
	for b.mu.asks.Len() > 0 {
		if a := b.mu.asks.Pop(); a.begin() {
			b.mu.current = a
			return a, nil
		}
	}
	return nil, nil
}

// more reports whether something waits for the behavior.
func (b *inbox) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.behaviorLocked()
}

// drains reports whether the unit is to be given up, which the machine is not told yet.
func (b *inbox) drains() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.drain
}

// finish takes the ask that is in its behavior; false when somebody else has answered it.
func (b *inbox) finish() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.mu.current != nil
	b.mu.current = nil
	return mine
}

// takeAsks takes everything that waits for an answer: the asks that have not begun, and, for a unit that is given up, the one
// that has. Timers that rang are forgotten.
func (b *inbox) takeAsks(current bool) (waiting []*ask, begun *ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.ticks, b.mu.told = ring.Queue[*unitTimer]{}, nil
	for b.mu.asks.Len() > 0 {
		waiting = append(waiting, b.mu.asks.Pop())
	}
	if current {
		begun, b.mu.current = b.mu.current, nil
	}
	return waiting, begun
}

// taken tells those who told that the unit lives here.
func (b *inbox) taken() {
	b.mu.Lock()
	told := b.mu.told
	b.mu.told = nil
	b.mu.Unlock()
	for _, a := range told {
		a.take(nil)
	}
}

// takeDrives takes those who wait for the unit and match.
func (b *inbox) takeDrives(match func(*drive) bool) []*drive {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.drives) == 0 {
		return nil
	}
	var taken []*drive
	b.mu.drives = slices.DeleteFunc(b.mu.drives, func(d *drive) bool {
		if match(d) {
			taken = append(taken, d)
			return true
		}
		return false
	})
	return taken
}

// driver gives the context of somebody who waits for the unit, nil when nobody does.
func (b *inbox) driver() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.mu.drives {
		if d.ctx.Err() == nil {
			return d.ctx
		}
	}
	return nil
}
