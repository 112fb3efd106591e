package cluster

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
)

// scan looks at everything that has work, at the units of each handler by itself: those of one may be where the broker does not answer, and wakes, and the units of the others, do not wait
// for it. Its methods are for the goroutine that scans.
type scan struct {
	n       *Node
	contest *Contest
	pages   chan page
	going   map[string]*scanned // by handler
}

// scanned is what the scan of one handler has come to.
type scanned struct {
	how    looking
	seen   map[event.Unit]bool
	failed bool
	next   *looking // another one is to follow, as this one was under way when it was asked for; nil = none
}

// page is a part of the units of a handler.
type page struct {
	name  string
	units []event.Unit
	last  bool
	err   error
}

func newScan(n *Node, contest *Contest) *scan {
	return &scan{n: n, contest: contest, pages: make(chan page), going: map[string]*scanned{}}
}

// begin has everything looked at once more. What is found comes as pages, to be taken.
func (s *scan) begin(ctx context.Context, how looking) {
	for _, name := range s.n.cfg.Self.Names {
		now := s.going[name]
		switch {
		case now == nil:
			s.beginOf(ctx, name, how)
		case now.next == nil:
			now.next = &how
		default:
			now.next.wide = now.next.wide || how.wide
		}
	}
}

func (s *scan) beginOf(ctx context.Context, name string, how looking) {
	if s.n.calls.Go(func(context.Context) { s.read(ctx, name) }) {
		s.going[name] = &scanned{how: how, seen: map[event.Unit]bool{}}
	}
}

// read gives the units of a handler, in a goroutine of its own.
func (s *scan) read(ctx context.Context, name string) {
	cursor := uint64(0)
	for p := (page{}); !p.last; {
		var keys []string
		p = page{name: name}
		p.err = s.n.bounded(ctx, func(ctx context.Context) (err error) {
			keys, cursor, err = s.n.cfg.Broker.Busy(ctx, name, cursor)
			return err
		})
		for _, key := range keys {
			p.units = append(p.units, event.Unit{Name: name, Key: key})
		}
		p.last = p.err != nil || cursor == 0
		select {
		case s.pages <- p:
		case <-ctx.Done():
			return
		}
	}
}

// take looks at the units of a page.
func (s *scan) take(ctx context.Context, p page) error {
	now, err := s.going[p.name], p.err
	s.hasSeen(p.units...)
	if err == nil && !now.failed {
		err = s.n.goFor(ctx, s.contest, p.units, now.how)
	}
	now.failed = now.failed || err != nil
	if p.last {
		delete(s.going, p.name)
		if !now.failed {
			s.contest.Keep(p.name, now.seen)
		}
		if now.next != nil {
			s.beginOf(ctx, p.name, *now.next)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// hasSeen says that units have work, whoever found that: a scan under way may have passed their places before.
func (s *scan) hasSeen(units ...event.Unit) {
	for _, u := range units {
		if now := s.going[u.Name]; now != nil {
			now.seen[u] = true
		}
	}
}
