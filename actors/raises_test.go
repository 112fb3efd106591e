package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// raiser is the part of a store that raises, as it is told to.
type raiser struct {
	eventstore.Units
	raise func(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error)
}

func (r raiser) Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	return r.raise(ctx, asked)
}

func newRaises(raise func(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error)) *raises {
	return &raises{store: raiser{raise: raise}, patience: time.Minute}
}

func askOf(n int) eventstore.Ask {
	return eventstore.Ask{Unit: event.Unit{Name: "x", Key: fmt.Sprint(n)}, Generation: event.Generation(n)}
}

func raised(asked []eventstore.Ask) []eventstore.Recovered {
	got := make([]eventstore.Recovered, len(asked))
	for i, a := range asked {
		got[i] = eventstore.Recovered{Unit: a.Unit, Raised: true, Generation: a.Generation}
	}
	return got
}

// raiseAll raises many units at once, and gives the errors.
func raiseAll(t *testing.T, r *raises, many int) []error {
	t.Helper()
	errs := make([]error, many)
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			got, err := r.do(context.Background(), askOf(n))
			if errs[n] = err; err == nil && got.Unit != askOf(n).Unit {
				t.Errorf("%d got the answer of %s", n, got.Unit)
			}
		})
	}
	all.Wait()
	return errs
}

func TestARecoveryThatComesAloneWaitsForNobodyAndManyGoTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var mu sync.Mutex
		var sizes []int
		r := newRaises(func(_ context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
			mu.Lock()
			sizes = append(sizes, len(asked))
			mu.Unlock()
			<-hold
			return raised(asked), nil
		})
		const many = 500
		done := make(chan []error)
		go func() { done <- raiseAll(t, r, many) }()
		synctest.Wait()
		if len(sizes) != raisesAtOnce {
			t.Errorf("%d calls at once", len(sizes))
		}
		close(hold)
		for _, err := range <-done {
			if err != nil {
				t.Fatal(err)
			}
		}
		sum := 0
		for _, n := range sizes {
			if sum += n; n > raisesInOne {
				t.Errorf("%d in one call", n)
			}
		}
		if sum != many || len(sizes) > 3*raisesAtOnce {
			t.Errorf("%d raised, in calls of %v", sum, sizes)
		}
		if _, err := r.do(context.Background(), askOf(1)); err != nil || sizes[len(sizes)-1] != 1 {
			t.Errorf("alone: %v, in calls of %v", err, sizes)
		}
	})
}

func TestWhatIsWrongWithACallGoesToAllThatAreInItAndToNoOther(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops")
	for name, bad := range map[string]func([]eventstore.Ask) ([]eventstore.Recovered, error){
		"an error":   func([]eventstore.Ask) ([]eventstore.Recovered, error) { return nil, oops },
		"too little": func([]eventstore.Ask) ([]eventstore.Recovered, error) { return nil, nil },
		"a panic":    func([]eventstore.Ask) ([]eventstore.Recovered, error) { panic("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				var mu sync.Mutex
				calls, inBad := 0, 0
				r := newRaises(func(_ context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
					mu.Lock()
					calls++
					mine := calls
					if mine == raisesAtOnce+1 {
						inBad = len(asked)
					}
					mu.Unlock()
					<-hold
					if mine == raisesAtOnce+1 {
						return bad(asked)
					}
					return raised(asked), nil
				})
				errs := make([]error, 100)
				var all sync.WaitGroup
				for n := range errs {
					all.Go(func() {
						defer func() {
							if v := recover(); v != nil {
								errs[n] = errBeneath
							}
						}()
						_, errs[n] = r.do(context.Background(), askOf(n))
					})
				}
				synctest.Wait()
				close(hold)
				all.Wait()
				failed := 0
				for _, err := range errs {
					if err != nil {
						failed++
					}
				}
				if failed != inBad || failed == 0 {
					t.Errorf("%d failed, %d were in the call", failed, inBad)
				}
				if _, err := r.do(context.Background(), askOf(1)); err != nil {
					t.Errorf("and then: %v", err)
				}
			})
		})
	}
}

// A store that is slow takes the time of the calls that are under way. Who has waited for them meanwhile has all of it for its own call, and whoever goes with it as well.
func TestTimeThatWasWaitedIsNotTakenOffTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRaises(nil)
		r.store = raiser{raise: func(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
			calls.Add(1)
			if until, bound := ctx.Deadline(); !bound || time.Until(until) != r.patience {
				t.Errorf("%d have until %v, and it is %v", len(asked), until, time.Now())
			}
			slow, done := context.WithTimeout(ctx, r.patience-time.Second)
			defer done()
			<-slow.Done()
			return raised(asked), ctx.Err()
		}}
		const many = 2*raisesAtOnce*raisesInOne + 1
		for n, err := range raiseAll(t, r, many) {
			if err != nil {
				t.Errorf("%d: %v", n, err)
			}
		}
		if n := calls.Load(); n <= 2*raisesAtOnce {
			t.Errorf("%d calls, so that nobody waited for longer than one may take", n)
		}
	})
}

// Whose way to the store is gone waits for one call, and not for those of all that came before: the leases are kept meanwhile, and another node may reach the store.
func TestWhoHasWaitedForAsLongAsACallMayTakeFailsWithTheNextThatDoes(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"hangs": time.Hour, "cannot be connected to": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRaises(func(ctx context.Context, _ []eventstore.Ask) ([]eventstore.Recovered, error) {
					ctx, done := context.WithTimeout(ctx, takes)
					defer done()
					<-ctx.Done()
					return nil, ctx.Err()
				})
				began := time.Now()
				for n, err := range raiseAll(t, r, 5000) {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("%d: %v", n, err)
					}
				}
				if took := time.Since(began); took > r.patience {
					t.Errorf("the last one waited for %v, and a call has %v", took, r.patience)
				}
				if r.mu.calls != 0 || len(r.mu.waiting) != 0 {
					t.Errorf("%d calls are under way, and %d wait", r.mu.calls, len(r.mu.waiting))
				}
			})
		})
	}
}
