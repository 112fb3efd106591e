package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// surveyed is how many orders every process is asked about, each time.
const surveyed = 100

// reply is what a process said of an order.
type reply struct {
	Process   int
	Elsewhere bool // it had another one answer
	View      orders.View
}

// grow starts one process more, and has all of them hear of it.
func (s *script) grow(ctx context.Context) error {
	s.step("one process more comes, after %s orders", thousands(len(s.answered)))
	if err := s.start(ctx, s.atLast()); err != nil {
		return err
	}
	return s.awaitHeard(ctx, s.atLast())
}

// awaitHeard waits until each of so many processes hears all others by gossip; or until it should have, and then the counting says so.
func (s *script) awaitHeard(ctx context.Context, processes int) error {
	if !s.several() {
		return nil
	}
	for deadline := time.Now().Add(patience); ; {
		s.seen.Hears = map[string][]string{}
		for _, p := range s.fleet.running() {
			a, err := p.call(ctx, call{Verb: hears})
			if err != nil {
				return err
			}
			s.seen.Hears[nodeName(p.number)] = a.Hears
		}
		well := wellHeard(s.seen.Hears, processes)
		switch {
		case well == processes:
			s.screen.note("they have found one another: each of the %d hears all others by gossip", processes)
			return nil
		case time.Now().After(deadline):
			s.screen.note("after %s only %d of %d hear all others by gossip", patience, well, processes)
			return nil
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// survey asks every process, one after the other, for the same orders, many orders at once, where there are several: one process at most has each order.
func (s *script) survey(ctx context.Context) error {
	if !s.several() {
		return nil
	}
	all := s.fleet.running()
	step := max(1, len(s.answered)/surveyed)
	var some []order
	for i := 0; i < len(s.answered) && len(some) < surveyed; i += step {
		some = append(some, s.answered[i])
	}
	var asks lifecycle.Group
	if err := asks.Start(ctx); err != nil {
		return err
	}
	next, results := make(chan int, len(some)), make(chan error, len(some))
	for i := range some {
		next <- i
	}
	close(next)
	replies := make([][]reply, len(some))
	for range min(s.Askers, len(some)) {
		asks.Go(func(ctx context.Context) {
			for i := range next {
				var err error
				replies[i], err = everybody(ctx, all, i, some[i])
				results <- err
			}
		})
	}
	var err error
	for range some {
		err = errors.Join(err, <-results)
	}
	if err := errors.Join(err, asks.Stop(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	s.seen.Replies = append(s.seen.Replies, replies...)
	elsewhere := 0
	for _, of := range replies {
		for _, r := range of {
			if r.Elsewhere {
				elsewhere++
			}
		}
	}
	s.screen.note("asked each of the %d processes how %d orders are: %s answers, of which %s came through it from another one",
		len(all), len(some), thousands(len(all)*len(some)), thousands(elsewhere))
	return nil
}

// everybody asks all processes for one order, beginning with another one each time.
func everybody(ctx context.Context, all []*process, first int, o order) (replies []reply, err error) {
	for i := range all {
		p := all[(first+i)%len(all)]
		for deadline := time.Now().Add(patience); ; {
			a, err := p.call(ctx, call{Verb: how, Order: o})
			if err == nil {
				replies = append(replies, reply{p.number, a.Elsewhere, a.View})
				break
			}
			if !a.Again || time.Now().After(deadline) {
				return replies, fmt.Errorf("process %d, asked for order %s: %w", p.number, o.ID, err)
			}
			if err := wait(ctx, pause); err != nil {
				return replies, err
			}
		}
	}
	return replies, nil
}

// wellHeard counts the processes that hear all others of so many.
func wellHeard(hears map[string][]string, processes int) (n int) {
	for number := range processes {
		well := true
		for other := range processes {
			well = well && (other == number || slices.Contains(hears[nodeName(number+1)], nodeName(other+1)))
		}
		if well {
			n++
		}
	}
	return n
}

// compare holds replies against the event log: of whom and for how much an order is, and that nobody is told something older than somebody was told before.
func compare(e evidence, replies [][]reply) (asked, elsewhere, wrong int, faults []string) {
	placed := map[string]placedEvent{}
	for _, p := range e.Placed {
		placed[p.Order] = p
	}
	for _, of := range replies {
		paid := false
		for _, r := range of {
			asked++
			if r.Elsewhere {
				elsewhere++
			}
			p, v := placed[r.View.OrderID], r.View
			switch {
			case p.Order == "" || p.Client != v.ClientID || p.Cents != v.Cents || v.Status != orders.Placed && v.Status != orders.Paid:
				wrong++
				faults = append(faults, fmt.Sprintf("process %d says of order %q that it is %s, of %s for %d; the log has %s for %d", r.Process, v.OrderID, v.Status, v.ClientID, v.Cents, p.Client, p.Cents))
			case paid && v.Status != orders.Paid:
				wrong++
				faults = append(faults, fmt.Sprintf("process %d says of order %s that it is %s, after another one had said that it is paid", r.Process, v.OrderID, v.Status))
			}
			paid = paid || v.Status == orders.Paid
		}
	}
	return asked, elsewhere, wrong, faults
}
