package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

const (
	// relearning is how often the slots are asked for at most: while a server is gone every call for one of its slots would do so.
	relearning = 100 * time.Millisecond
	// hedging is after which the next one is asked for them as well.
	hedging = 50 * time.Millisecond
	// answering is how long one server is waited for. The end of a context ends no read, so that this is how long a connection is taken, too.
	answering = 500 * time.Millisecond
)

// relearn has the known servers asked who has which slots, beside the caller, and waits for what comes of it while ctx lasts: that of a call to a server that hangs is over by now.
// Whoever comes while they are asked, or soon after, goes without.
func (s *servers) relearn(ctx context.Context) error {
	s.mu.Lock()
	due := !s.mu.learning && time.Since(s.mu.learned) >= relearning
	if due {
		s.mu.learning = true
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	over := make(chan error, 1)
	ask := func(own context.Context) {
		err := s.askAround(own)
		s.relearned()
		over <- err
	}
	if s.aside == nil || !s.aside(ask) {
		s.relearned()
		return nil
	}
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (s *servers) relearned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.learning, s.mu.learned = false, time.Now()
}

// askAround asks those that are known, in any order, until one answers: after a failover the server that had a slot may be gone, and so may be many that had slots long ago. One that
// does not answer holds up the next for a moment only: to wait for it would take all the time that there is.
func (s *servers) askAround(ctx context.Context) error {
	known := s.known()
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] }) // one that is cut off from the others may be the quickest
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := new(question)
	answers := make(chan error, len(known))
	var faults []error
	for asked := 0; len(faults) < len(known); {
		var next <-chan time.Time
		if asked < len(known) {
			one := known[asked]
			if !s.aside(func(context.Context) { answers <- s.learnSoon(ctx, one, q) }) {
				return lifecycle.ErrStopped
			}
			asked++
			next = time.After(hedging)
		}
		select {
		case err := <-answers:
			if err == nil {
				return nil
			}
			faults = append(faults, err)
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(faults...)
}

func (s *servers) known() []*server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	known := make([]*server, 0, len(s.mu.byAddr))
	for _, one := range s.mu.byAddr {
		known = append(known, one)
	}
	return known
}

// learnSoon is learn from a server that may hang: nobody waits for it twice.
func (s *servers) learnSoon(ctx context.Context, from *server, q *question) error {
	if !from.asked.CompareAndSwap(false, true) {
		return fmt.Errorf("%s was asked for the slots of its cluster before, and has not answered", from.addr)
	}
	defer from.asked.Store(false)
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	return s.learn(ctx, from, q)
}

// question is what several servers are asked at once, of which the first to answer counts, and not the last. Guarded by [servers].mu.
type question struct{ answered bool }

// learn asks a server of a Cluster who has which slots, and closes nothing: a server that has none may get some again.
func (s *servers) learn(ctx context.Context, from *server, q *question) error {
	cmd := goredis.NewClusterSlotsCmd(ctx, "cluster", "slots") // what servers before 7.0 know, too
	_ = from.work.Process(ctx, cmd)                            // the same error
	ranges, err := cmd.Result()
	if err != nil {
		return fmt.Errorf("ask %s for the slots of its cluster: %w", from.addr, err)
	}
	return s.note(from, ranges, q)
}

// note notes what a server answered, unless another one was first.
func (s *servers) note(from *server, ranges []goredis.ClusterSlot, q *question) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.answered {
		return nil
	}
	q.answered = true
	for _, r := range ranges {
		if len(r.Nodes) == 0 {
			continue
		}
		addr := r.Nodes[0].Addr
		if strings.HasPrefix(addr, ":") {
			addr = from.addr[:strings.LastIndexByte(from.addr, ':')] + addr
		}
		master, err := s.locate(addr)
		if err != nil {
			return err
		}
		for slot := r.Start; slot <= r.End; slot++ {
			s.mu.bySlot[slot] = master
		}
	}
	return nil
}
