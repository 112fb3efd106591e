package actors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// raises makes one call of the store out of many units' recoveries. One that comes alone goes at once. While raisesAtOnce calls are under
// way the others wait, and go together: so the more there is to do, the more one transaction does. There are several, because one that waits for a
// row that a dying owner has locked is not to hold up the rest.
type raises struct {
	store    eventstore.Units
	patience time.Duration // of a call, whatever its units have waited before: a store that does not answer this node may answer another one
	mu       struct {
		sync.Mutex
		calls   int
		waiting []*raise
	}
}

const (
	raisesAtOnce = 4
	raisesInOne  = 128
)

// raise is one unit's.
type raise struct {
	ask   eventstore.Ask
	came  time.Time
	got   eventstore.Recovered
	err   error
	ready chan bool // holds one: true = answered, false = its unit is to make the next call
}

// do raises a unit's row and gives what the store knows of it.
func (r *raises) do(ctx context.Context, ask eventstore.Ask) (eventstore.Recovered, error) {
	w := &raise{ask: ask, came: time.Now(), ready: make(chan bool, 1)}
	r.mu.Lock()
	first := r.mu.calls < raisesAtOnce
	if first {
		r.mu.calls++
	} else {
		r.mu.waiting = append(r.mu.waiting, w)
	}
	r.mu.Unlock()
	if !first && <-w.ready {
		return w.got, w.err
	}
	r.call(ctx, w)
	return w.got, w.err
}

// call raises what waits, for one of them.
func (r *raises) call(ctx context.Context, of *raise) {
	batch := r.take(of)
	asked := make([]eventstore.Ask, len(batch))
	for i, w := range batch {
		asked[i] = w.ask
	}
	got, err := []eventstore.Recovered(nil), errBeneath
	defer func() { // also when the store panics
		if err == nil && len(got) != len(batch) {
			err = errors.New("the store left out answers")
		}
		for i, w := range batch {
			if w.err = err; err == nil {
				w.got = got[i]
			}
			if w != of {
				w.ready <- true
			}
		}
		if err != nil {
			r.failLate(err)
		}
		r.pass()
	}()
	ctx, done := context.WithTimeout(ctx, r.patience)
	defer done()
	got, err = r.store.Raise(ctx, asked)
}

// take gives what goes with a raise.
func (r *raises) take(of *raise) []*raise {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.mu.waiting), raisesInOne-1)
	batch := append([]*raise{of}, r.mu.waiting[:n]...)
	r.mu.waiting = slices.Delete(r.mu.waiting, 0, n)
	return batch
}

// failLate has those that have waited a patience already fail with a call that failed: where one call after the other hangs, each of them would wait for its own, and have its lease kept meanwhile. A store
// that is slow, but answers, has them wait on.
func (r *raises) failLate(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.waiting = slices.DeleteFunc(r.mu.waiting, func(w *raise) bool {
		late := time.Since(w.came) >= r.patience
		if late {
			w.err = err
			w.ready <- true
		}
		return late
	})
}

// pass has the next one make a call, if one waits.
func (r *raises) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.waiting) == 0 {
		r.mu.calls--
		return
	}
	r.mu.waiting[0].ready <- false
	r.mu.waiting = slices.Delete(r.mu.waiting, 0, 1)
}
