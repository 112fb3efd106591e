package cluster

import (
	"container/heap"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Contest decides when a node goes for units that have work and that it does not run. It is told what was seen, and says what to do; it does no
// I/O and reads no clock. It is not for concurrent use.
type Contest struct {
	grace    time.Duration // that each rank waits longer than the one before
	debounce time.Duration // that a node has to have ranked first before it asks for a unit

	waiting map[event.Unit]*candidate
	due     candidates
	wants   map[event.Unit]time.Time // units that others hold and this node ranks first for, and since when it was seen so
	left    map[event.Unit]bool      // units that nobody held at the last look at those that others rank first and second for
}

// Seen is what was found out about a unit that has work and does not run here.
type Seen struct {
	Unit event.Unit
	Rank int           // of this node for it
	Left time.Duration // of the lease that somebody holds; 0 = nobody does
	// Unfit: this node could not recover it lately. It waits a grace longer than its rank says: who ranks next knows nothing of that, and waits one as well.
	Unfit bool
	// Due: it was due ([Contest.Due]), so whoever ranks higher has had its time.
	Due bool
	// Wide: it was looked at although others rank first and second for it.
	Wide bool
}

// NewContest makes one in which nothing was seen yet.
func NewContest(grace, debounce time.Duration) *Contest {
	return &Contest{grace: grace, debounce: debounce, waiting: map[event.Unit]*candidate{}, wants: map[event.Unit]time.Time{}, left: map[event.Unit]bool{}}
}

// contenders is how many in rank go for a unit: the first, and one that goes when the first does not. A third would cost everybody a look at everything, so the others
// look once in a while: what both cannot run, for they do not reach the store, or do not know the type of its next event, is found by nobody else.
const contenders = 2

// See takes note of a unit, and reports whether to go for it now. Else it is due later ([Contest.Due]), or none of this node's business.
func (c *Contest) See(now time.Time, s Seen) (try bool) {
	if s.Rank >= contenders {
		c.Forget(s.Unit)
		return s.Wide && c.isLeft(s)
	}
	delete(c.left, s.Unit)
	if s.Rank == 0 && s.Left > 0 {
		if _, known := c.wants[s.Unit]; !known {
			c.wants[s.Unit] = now
		}
	} else {
		delete(c.wants, s.Unit)
	}
	wait := s.Left + time.Duration(s.Rank)*c.grace
	if s.Unfit {
		wait += c.grace
	}
	if wait <= 0 || s.Due && s.Left <= 0 {
		c.drop(s.Unit)
		return true
	}
	c.wait(s.Unit, now.Add(wait))
	return false
}

// isLeft reports whether nobody holds a unit, nor did at the look before.
func (c *Contest) isLeft(s Seen) bool {
	was := c.left[s.Unit]
	if s.Left > 0 || was {
		delete(c.left, s.Unit)
	} else {
		c.left[s.Unit] = true
	}
	return was && s.Left <= 0
}

// wait has a unit be due at a time. One that is due earlier already stays so when nobody holds it: its grace began when it was first seen free.
func (c *Contest) wait(u event.Unit, at time.Time) {
	w := c.waiting[u]
	switch {
	case w == nil:
		w = &candidate{unit: u, at: at}
		c.waiting[u] = w
		heap.Push(&c.due, w)
	case at.Before(w.at):
		w.at = at
		heap.Fix(&c.due, w.i)
	}
}

// Due gives the units that are to be looked at again, and forgets them.
func (c *Contest) Due(now time.Time) []event.Unit {
	var units []event.Unit
	for len(c.due) > 0 && !c.due[0].at.After(now) {
		w := heap.Pop(&c.due).(*candidate)
		delete(c.waiting, w.unit)
		units = append(units, w.unit)
	}
	return units
}

// Next is when something is due; false when nothing is.
func (c *Contest) Next() (time.Time, bool) {
	if len(c.due) == 0 {
		return time.Time{}, false
	}
	return c.due[0].at, true
}

// Wants gives the units to ask their holders for: those that this node has ranked first for long enough, the longest first, up to the most; and
// when there will be another one, zero for never.
func (c *Contest) Wants(now time.Time, most int) (units []event.Unit, next time.Time) {
	for u, since := range c.wants {
		if at := since.Add(c.debounce); !at.After(now) {
			units = append(units, u)
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	sortUnits(units, func(a, b event.Unit) int { return c.wants[a].Compare(c.wants[b]) })
	return units[:min(len(units), most)], next
}

// Forget drops what is known of a unit: it runs here, or has no work any more.
func (c *Contest) Forget(u event.Unit) {
	c.drop(u)
	delete(c.wants, u)
}

func (c *Contest) drop(u event.Unit) {
	if w := c.waiting[u]; w != nil {
		heap.Remove(&c.due, w.i)
		delete(c.waiting, u)
	}
}

// Keep forgets what was not seen of a handler since a scan of it began: it has no work any more.
func (c *Contest) Keep(name string, seen map[event.Unit]bool) {
	for u := range c.wants {
		if u.Name == name && !seen[u] {
			delete(c.wants, u)
		}
	}
	for u := range c.left {
		if u.Name == name && !seen[u] {
			delete(c.left, u)
		}
	}
}

// candidate is a unit that is due at a time.
type candidate struct {
	unit event.Unit
	at   time.Time
	i    int // place in the heap
}

// candidates is a container/heap by time.
type candidates []*candidate

func (h candidates) Len() int           { return len(h) }
func (h candidates) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h candidates) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].i, h[j].i = i, j
}

func (h *candidates) Push(v any) {
	w := v.(*candidate)
	w.i = len(*h)
	*h = append(*h, w)
}

func (h *candidates) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}
