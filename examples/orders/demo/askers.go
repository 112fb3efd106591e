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
	err   error
}

// askers place orders at once, as the callers of a service do: each takes the next order, asks and waits for the answer.
type askers struct {
	group    lifecycle.Group
	outcomes chan outcome // one for each order
}

// startAskers has n askers place orders through p.
func startAskers(ctx context.Context, p *process, orders []order, n int) (*askers, error) {
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
				a.outcomes <- outcome{o, placeAndPay(ctx, p, o)}
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

func placeAndPay(ctx context.Context, p *process, o order) error {
	if err := ask(ctx, p, call{Verb: place, Order: o}); err != nil || !o.Paid {
		return err
	}
	return ask(ctx, p, call{Verb: pay, Order: o})
}

// ask asks again while the worker says that nothing was done and that it may go better.
func ask(ctx context.Context, p *process, c call) error {
	const tries, pause = 20, 50 * time.Millisecond
	for range tries {
		a, err := p.call(ctx, c)
		if err == nil || !a.Again {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s order %s: refused %d times", c.Verb, c.Order.ID, tries)
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
