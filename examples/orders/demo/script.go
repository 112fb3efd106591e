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
	ground *ground // from the first step on; see close

	all      []order
	refused  order
	fleet    fleet
	lives    map[int]int // starts so far, by number of the process
	answered []order     // whose askers have their answer
	chapter  int
	killed   incarnation
	seen     seen
}

// step begins a chapter.
func (s *script) step(format string, args ...any) {
	s.chapter++
	all := 6
	if s.several() {
		all = 7
	}
	s.screen.step(s.chapter, all, format, args...)
}

// patience is how long the application may make no progress before the demo goes on without it, and counts what is missing.
const patience = 20 * time.Second

func newScript(p plan, dir string, s *screen) *script {
	all := p.orders()
	return &script{plan: p, dir: dir, screen: s, all: all, refused: refused(all), lives: map[int]int{}}
}

// close ends the servers.
func (s *script) close() error {
	if s.ground == nil {
		return nil
	}
	return s.ground.close()
}

// run tells the whole story. An error says that it broke off. No process is left running, but servers, if there are any, are.
func (s *script) run(ctx context.Context) (f figures, faults []string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.fleet.end(context.WithoutCancel(ctx), func(_ context.Context, p *process) error { return p.kill() }))
		}
	}()
	if err := s.begin(ctx); err != nil {
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

func (s *script) begin(ctx context.Context) (err error) {
	switch {
	case s.processes() > 1:
		s.step("starting Redis, PostgreSQL, and %d processes of the application", s.processes())
	case s.Redis:
		s.step("starting Redis and the application")
	default:
		s.step("starting the application")
	}
	if s.ground, err = prepare(ctx, s.plan, s.dir); err != nil {
		return err
	}
	for n := range s.processes() {
		if err := s.start(ctx, n+1); err != nil {
			return err
		}
	}
	if s.Redis {
		s.screen.note("this Redis has just begun, and cannot know who had a lease before: it grants none for one TTL, %s", ttl)
	}
	return s.awaitHeard(ctx, s.processes())
}

func (s *script) start(ctx context.Context, number int) error {
	s.lives[number]++
	p, err := startProcess(ctx, s.dir, role{s.ground.at, incarnation{number, s.lives[number]}, s.refused.ID})
	if err != nil {
		return err
	}
	s.fleet.add(p)
	switch {
	case s.processes() > 1:
		s.screen.note("process %d is pid %d", number, p.pid())
	default:
		s.screen.note("process %d works on orders.db", p.pid())
	}
	return nil
}

// placeUntilKilled places the first half of the orders, and kills a process a little into the second. Where there are others, they place a
// part of the rest without it. It gives the orders that have no answer, or were not asked for.
func (s *script) placeUntilKilled(ctx context.Context) ([]order, error) {
	through := ""
	if s.processes() > 1 {
		through = ", through all processes in turn"
	}
	s.step("placing %s orders for %d clients, %d at once%s", thousands(len(s.all)), s.Clients, s.Askers, through)
	half := len(s.all) / 2
	var comes []moment
	if s.several() {
		comes = append(comes, moment{half / 3, s.grow})
	}
	if err := s.placeAll(ctx, s.all[:half], comes...); err != nil {
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
	if s.Redis {
		if err := s.names(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.survey(ctx); err != nil {
		return nil, err
	}

	cut := len(s.all)
	if s.processes() > 1 {
		cut = half + (len(s.all)-half)*3/5
	}
	left, lost, err := s.place(ctx, s.all[half:cut], moment{min(max(s.Askers, len(s.all)/40), half/2), s.kill})
	if err != nil {
		return nil, err
	}
	if s.processes() == 1 {
		s.screen.note("%d asks had no answer, which may or may not have been done", lost)
		return left, nil
	}
	s.screen.note("%d asks had no answer; the others were asked, with the same command ids", lost)
	if err := s.awaitShipped(ctx, s.answered, s.refused.Client); err != nil {
		return nil, err
	}
	return append(left, s.all[cut:]...), s.spread()
}

// moment is what happens when so many orders of some have their answer, while others are asked for.
type moment struct {
	answers int
	do      func(ctx context.Context) error
}

// placeAll has orders placed, every one of them.
func (s *script) placeAll(ctx context.Context, orders []order, moments ...moment) error {
	left, _, err := s.place(ctx, orders, moments...)
	if err == nil && len(left) > 0 {
		err = errLost // nobody has killed it
	}
	return err
}

// place has orders placed, and more done meanwhile. It gives the orders without an answer, and how many asks had none.
func (s *script) place(ctx context.Context, orders []order, moments ...moment) (left []order, lost int, err error) {
	a, err := startAskers(ctx, &s.fleet, orders, s.Askers)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	answers := 0
	for range orders {
		out, err := a.next(ctx)
		if err != nil {
			return nil, 0, err
		}
		lost += out.lost
		switch {
		case out.err == nil:
			answers++
			s.answered = append(s.answered, out.order)
		case unanswered(out.err):
			left = append(left, out.order)
		default:
			return nil, 0, out.err
		}
		if len(moments) > 0 && answers == moments[0].answers {
			if err := moments[0].do(ctx); err != nil {
				return nil, 0, err
			}
			moments = moments[1:]
		}
		if s.screen.due() {
			s.screen.progress("%s placed%s", thousands(len(s.answered)), s.shipped(ctx))
		}
	}
	return left, lost, nil
}

// shipped says how many orders are shipped, while there is a process to ask.
func (s *script) shipped(ctx context.Context) string {
	a, err := s.fleet.call(ctx, call{Verb: progress})
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", %s shipped", thousands(a.Counts.total()))
}

// awaitHalt waits until the carrier's refusals have halted their client.
func (s *script) awaitHalt(ctx context.Context) (eventstore.Halt, error) {
	for deadline := time.Now().Add(patience); ; {
		a, err := s.fleet.call(ctx, call{Verb: halts})
		switch {
		case err != nil:
			return eventstore.Halt{}, err
		case slices.ContainsFunc(a.Halts, s.ofRefused):
			return a.Halts[slices.IndexFunc(a.Halts, s.ofRefused)], nil
		case time.Now().After(deadline):
			return eventstore.Halt{}, fmt.Errorf("%s was not halted within %s of its carrier's refusal", s.refused.Client, patience)
		}
		if err := wait(ctx, pause); err != nil {
			return eventstore.Halt{}, err
		}
	}
}

func (s *script) ofRefused(h eventstore.Halt) bool {
	return h.Unit == event.Unit{Name: "shipping", Key: s.refused.Client}
}

// startAgain starts the process that was killed, on what it left, places the other orders, and waits until everybody but the halted
// client is through.
func (s *script) startAgain(ctx context.Context, left []order) error {
	if s.processes() > 1 {
		s.step("starting process %d again", s.killed.number)
	} else {
		s.step("starting the application again, on the same database")
	}
	if err := s.start(ctx, s.killed.number); err != nil {
		return err
	}
	if s.processes() > 1 {
		if err := wait(ctx, idle+2*heartbeat); err != nil { // the others know of it, and have put clients away
			return err
		}
		s.screen.note("placing the other %s orders, through all processes in turn: it gets its share of clients back", thousands(len(left)))
	} else {
		s.screen.note("asking once more what had no answer, with the same command ids, and the rest")
	}
	if err := s.placeAll(ctx, left); err != nil {
		return err
	}
	if err := s.awaitShipped(ctx, s.all, s.refused.Client); err != nil || s.processes() == 1 {
		return err
	}
	if err := s.spread(); err != nil {
		return err
	}
	if err := s.awaitHeard(ctx, s.atLast()); err != nil {
		return err
	}
	return s.survey(ctx)
}

// lift shows the halt, has the carrier come round, resumes the client and waits until it is through.
func (s *script) lift(ctx context.Context) error {
	s.step("what is halted stays halted")
	a, err := s.fleet.call(ctx, call{Verb: halts})
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
	if err := s.fleet.callAll(ctx, call{Verb: mend}); err != nil {
		return err
	}
	s.screen.note("the carrier has found the address; resuming %s", s.refused.Client)
	if _, err := s.fleet.call(ctx, call{Verb: resume, Client: s.refused.Client}); err != nil {
		return err
	}
	return s.awaitShipped(ctx, s.all, "")
}

// awaitShipped waits until orders are shipped, but for those of one client ("" = none), and the read model has them and their payments; or
// until nothing moves any more.
func (s *script) awaitShipped(ctx context.Context, orders []order, but string) error {
	want := perClient(orders)
	delete(want, but)
	var before counts
	moved := time.Now()
	for {
		a, err := s.fleet.call(ctx, call{Verb: progress})
		if err != nil {
			return err
		}
		now := a.Counts
		s.screen.progress("%s of %s shipped, %s counted", thousands(now.total()), thousands(len(orders)), thousands(now.Counted))
		if now.reached(want) && now.Counted >= len(orders) && now.Paid >= payments(orders) {
			waiting := ""
			if rest := len(orders) - now.total(); rest > 0 && but != "" {
				waiting = fmt.Sprintf("; %d wait behind the halt of %s", rest, but)
			}
			s.screen.note("%s of %s shipped, %s counted, %s paid%s", thousands(now.total()), thousands(len(orders)), thousands(now.Counted), thousands(now.Paid), waiting)
			return nil
		}
		if now.total() != before.total() || now.Counted != before.Counted || now.Paid != before.Paid {
			before, moved = now, time.Now()
		}
		if time.Since(moved) > patience {
			s.screen.note("nothing has moved for %s: %s of %s shipped", patience, thousands(now.total()), thousands(len(orders)))
			return nil
		}
		if err := wait(ctx, pause); err != nil {
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
	s.step("counting: event log, tables, and the marks that shipping left")
	if err := s.fleet.end(ctx, func(ctx context.Context, p *process) error { return p.stop(ctx) }); err != nil {
		return figures{}, nil, fmt.Errorf("stop: %w", err)
	}
	e, err := gather(ctx, s.ground.at, s.dir)
	if err != nil {
		return figures{}, nil, err
	}
	f, faults := judge(s.plan, e, s.seen)
	if len(faults) > 0 {
		err = e.keep(s.dir)
	}
	return f, faults, err
}
