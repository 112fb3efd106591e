package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// script is the story, step by step. It ends with what was counted and what was wrong.
type script struct {
	plan
	dir    string
	screen *screen

	all     []order
	refused order
	process *process // the one that runs, if any
	life    int      // starts so far
	placed  int      // orders whose askers have their answer
	seen    seen
}

// steps is the number of chapters.
const steps = 6

// patience is how long the application may make no progress before the demo goes on without it, and counts what is missing.
const patience = 20 * time.Second

func newScript(p plan, dir string, s *screen) *script {
	all := p.orders()
	return &script{plan: p, dir: dir, screen: s, all: all, refused: refused(all)}
}

// run tells the whole story. An error says that it broke off. No process is left running.
func (s *script) run(ctx context.Context) (f figures, faults []string, err error) {
	defer func() {
		if err != nil && s.process != nil {
			err = errors.Join(err, s.process.kill())
		}
	}()
	s.screen.step(1, steps, "starting the application")
	if err := s.start(ctx); err != nil {
		return f, nil, err
	}
	left, err := s.placeUntilKilled(ctx)
	if err != nil {
		return f, nil, err
	}
	if err := s.startAgain(ctx, left); err != nil {
		return f, nil, err
	}
	if err := s.lift(ctx); err != nil {
		return f, nil, err
	}
	return s.count(ctx)
}

func (s *script) start(ctx context.Context) (err error) {
	s.life++
	if s.process, err = startProcess(ctx, s.dir, s.life, s.refused.ID); err != nil {
		return err
	}
	s.screen.note("process %d works on orders.db", s.process.pid())
	return nil
}

// placeUntilKilled places the first half of the orders, and kills the process a little into the second. It gives the orders
// that have no answer.
func (s *script) placeUntilKilled(ctx context.Context) ([]order, error) {
	s.screen.step(2, steps, "placing %s orders for %d clients, %d at once", thousands(len(s.all)), s.Clients, s.Askers)
	half := len(s.all) / 2
	left, _, err := s.place(ctx, s.all[:half], 0)
	if err == nil && len(left) > 0 {
		err = errLost // nobody has killed it
	}
	if err != nil {
		return nil, err
	}
	halt, err := s.awaitHalt(ctx)
	if err != nil {
		return nil, err
	}
	s.seen.Before = halt
	s.screen.note("%s is halted at its event %d, order %s: %s after %d attempts: %s",
		halt.Unit.Key, halt.Sequence, s.refused.ID, halt.Reason, halt.Attempts, halt.Error)
	s.screen.note("the other %d clients go on", s.Clients-1)

	pid, killAfter := s.process.pid(), min(max(s.Askers, len(s.all)/40), half/2)
	left, lost, err := s.place(ctx, s.all[half:], killAfter)
	if err != nil {
		return nil, err
	}
	s.process = nil
	marks, err := readMarksFile(marksIn(s.dir))
	if err != nil {
		return nil, err
	}
	s.screen.step(3, steps, "killed process %d with SIGKILL after %s orders", pid, thousands(s.placed))
	s.screen.note("%d orders were inside shipping; %d asks had no answer, which may or may not have been done", open(marks), lost)
	return left, nil
}

// place has orders placed. After so many answers (0 = never) it kills the process. It gives the orders without an answer, and
// how many of them had been asked for.
func (s *script) place(ctx context.Context, orders []order, killAfter int) (left []order, lost int, err error) {
	a, err := startAskers(ctx, s.process, orders, s.Askers)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	answers := 0
	for range orders {
		out, err := a.next(ctx)
		switch {
		case err != nil:
			return nil, 0, err
		case out.err == nil:
			answers++
			s.placed++
		case unanswered(out.err):
			left = append(left, out.order)
			if errors.Is(out.err, errLost) {
				lost++
			}
		default:
			return nil, 0, out.err
		}
		if killAfter > 0 && answers == killAfter {
			if err := s.process.kill(); err != nil {
				return nil, 0, err
			}
			killAfter = 0
		}
		if s.screen.due() {
			s.screen.progress("%s placed%s", thousands(s.placed), s.shipped(ctx))
		}
	}
	return left, lost, nil
}

// shipped says how many orders are shipped, while there is a process to ask.
func (s *script) shipped(ctx context.Context) string {
	a, err := s.process.call(ctx, call{Verb: progress})
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", %s shipped", thousands(a.Counts.total()))
}

// awaitHalt waits until the carrier's refusals have halted their client.
func (s *script) awaitHalt(ctx context.Context) (eventstore.Halt, error) {
	for deadline := time.Now().Add(patience); ; {
		a, err := s.process.call(ctx, call{Verb: halts})
		switch {
		case err != nil:
			return eventstore.Halt{}, err
		case slices.ContainsFunc(a.Halts, s.ofRefused):
			return a.Halts[slices.IndexFunc(a.Halts, s.ofRefused)], nil
		case time.Now().After(deadline):
			return eventstore.Halt{}, fmt.Errorf("%s was not halted within %s of its carrier's refusal", s.refused.Client, patience)
		}
		if err := wait(ctx, look); err != nil {
			return eventstore.Halt{}, err
		}
	}
}

func (s *script) ofRefused(h eventstore.Halt) bool {
	return h.Unit == event.Unit{Name: "shipping", Key: s.refused.Client}
}

// startAgain starts the application on the same database, places what is left, and waits until everybody but the halted
// client is through.
func (s *script) startAgain(ctx context.Context, left []order) error {
	s.screen.step(4, steps, "starting the application again, on the same database")
	if err := s.start(ctx); err != nil {
		return err
	}
	s.screen.note("asking once more what had no answer, with the same command ids, and the rest")
	unplaced, _, err := s.place(ctx, left, 0)
	if err == nil && len(unplaced) > 0 {
		err = errLost
	}
	if err != nil {
		return err
	}
	want := perClient(s.all)
	delete(want, s.refused.Client)
	return s.awaitShipped(ctx, want)
}

// lift shows the halt, has the carrier come round, resumes the client and waits until it is through.
func (s *script) lift(ctx context.Context) error {
	s.screen.step(5, steps, "what is halted stays halted")
	a, err := s.process.call(ctx, call{Verb: halts})
	if err != nil {
		return err
	}
	marks, err := readMarksFile(marksIn(s.dir))
	if err != nil {
		return err
	}
	s.seen.Halted, s.seen.Marks = a.Halts, len(marks)
	for _, h := range a.Halts {
		s.screen.note("%s is still halted at its event %d, since %s: %s", h.Unit.Key, h.Sequence, h.Since.Local().Format(time.TimeOnly), h.Error)
	}
	if _, err := s.process.call(ctx, call{Verb: mend}); err != nil {
		return err
	}
	s.screen.note("the carrier has found the address; resuming %s", s.refused.Client)
	if _, err := s.process.call(ctx, call{Verb: resume, Client: s.refused.Client}); err != nil {
		return err
	}
	return s.awaitShipped(ctx, perClient(s.all))
}

// look is the time between two looks at how far things are.
const look = 50 * time.Millisecond

// awaitShipped waits until clients have so many shipments, and the read model all orders and payments; or until nothing moves
// any more.
func (s *script) awaitShipped(ctx context.Context, want map[string]int) error {
	var before counts
	moved := time.Now()
	for {
		a, err := s.process.call(ctx, call{Verb: progress})
		if err != nil {
			return err
		}
		now := a.Counts
		s.screen.progress("%s of %s shipped, %s counted", thousands(now.total()), thousands(len(s.all)), thousands(now.Counted))
		if now.reached(want) && now.Counted >= len(s.all) && now.Paid >= payments(s.all) {
			s.screen.note("%s of %s shipped, %s counted, %s paid", thousands(now.total()), thousands(len(s.all)), thousands(now.Counted), thousands(now.Paid))
			return nil
		}
		if now.total() != before.total() || now.Counted != before.Counted || now.Paid != before.Paid {
			before, moved = now, time.Now()
		}
		if time.Since(moved) > patience {
			s.screen.note("nothing has moved for %s: %s of %s shipped", patience, thousands(now.total()), thousands(len(s.all)))
			return nil
		}
		if err := wait(ctx, look); err != nil {
			return err
		}
	}
}

// reached reports whether every client has its shipments.
func (c counts) reached(want map[string]int) bool {
	for client, n := range want {
		if c.Shipped[client] < n {
			return false
		}
	}
	return true
}

// count stops the application and counts what it left.
func (s *script) count(ctx context.Context) (figures, []string, error) {
	s.screen.step(6, steps, "counting: event log, tables, and the marks that shipping left")
	p := s.process
	s.process = nil
	if err := p.stop(ctx); err != nil {
		return figures{}, nil, fmt.Errorf("stop: %w", err)
	}
	e, err := gather(ctx, s.dir)
	if err != nil {
		return figures{}, nil, err
	}
	f, faults := judge(s.plan, e, s.seen)
	return f, faults, nil
}

// open counts the events that were inside shipping at the end of the marks.
func open(marks []mark) int {
	n := 0
	for _, m := range marks {
		if m.Enter {
			n++
		} else {
			n--
		}
	}
	return n
}
