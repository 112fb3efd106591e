package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

// outcome is what came of one order: placed and, where the client pays, paid; or why not.
type outcome struct {
	order order
	lost  int // asks that the killed process did not answer any more
	err   error
}

// askers place orders at once, as the callers of a service do: each takes the next order, asks and waits for the answer.
type askers struct {
	group    lifecycle.Group
	outcomes chan outcome // one for each order
}

// startAskers has n askers place orders through the processes in turn.
func startAskers(ctx context.Context, f *fleet, orders []order, n int) (*askers, error) {
	a := &askers{outcomes: make(chan outcome, len(orders))}
	if err := a.group.Start(ctx); err != nil {
		return nil, err
	}
	next := make(chan order, len(orders))
	for _, o := range orders {
		next <- o
	}
	close(next)
	for range n {
		a.group.Go(func(ctx context.Context) {
			for o := range next {
				lost, err := placeAndPay(ctx, f, o)
				a.outcomes <- outcome{o, lost, err}
			}
		})
	}
	return a, nil
}

// next gives what came of one order, in the order of answers.
func (a *askers) next(ctx context.Context) (outcome, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case out := <-a.outcomes:
		return out, nil
	case <-timer.C:
		return outcome{}, fmt.Errorf("no answer to any ask for %s", patience)
	case <-ctx.Done():
		return outcome{}, context.Cause(ctx)
	}
}

func (a *askers) stop(ctx context.Context) error { return a.group.Stop(ctx) }

func placeAndPay(ctx context.Context, f *fleet, o order) (lost int, err error) {
	if lost, err = ask(ctx, f, call{Verb: place, Order: o}); err != nil || !o.Paid {
		return lost, err
	}
	more, err := ask(ctx, f, call{Verb: pay, Order: o})
	return lost + more, err
}

const pause = 50 * time.Millisecond

// ask asks one process after the other: while the answer is that nothing was done and that it may go better, since another process has what is
// asked, for instance; and where there is no answer any more, which the command id makes safe. It gives how many had no answer.
func ask(ctx context.Context, f *fleet, c call) (lost int, err error) {
	for deadline := time.Now().Add(patience); ; {
		p := f.any()
		if p == nil {
			return lost, errGone
		}
		a, err := p.call(ctx, c)
		switch {
		case errors.Is(err, errLost):
			lost++
		case errors.Is(err, errGone):
		case err == nil || !a.Again:
			return lost, err
		case time.Now().After(deadline):
			return lost, fmt.Errorf("%s order %s: refused for %s: %w", c.Verb, c.Order.ID, patience, err)
		default:
			if err := wait(ctx, pause); err != nil {
				return lost, err
			}
		}
	}
}

// unanswered reports whether an error leaves open if the order is placed, or says that it was not even asked for.
func unanswered(err error) bool { return errors.Is(err, errLost) || errors.Is(err, errGone) }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
