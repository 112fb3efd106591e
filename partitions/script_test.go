package partitions_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// TestScripts runs the scripts of testdata: what a machine is told, and below the line what it says. testdata/README.md
// explains how to read one. go test ./partitions -run TestScripts -rewrite writes down what it says now: commit that only if
// you can say for each changed line why it is right.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		s := &script{t: t, now: partitions.Tick(time.Second)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}

// script is a few machines, all of one unit, on one clock. Commands are for the one named last by "unit" or "on".
type script struct {
	t     *testing.T
	now   partitions.Tick
	nodes []*node
	*node // the one that is told
	out   strings.Builder
}

// node is a machine with its timer.
type node struct {
	name   string
	cfg    partitions.Config
	lanes  []event.LaneRef
	m      *partitions.Machine
	timer  partitions.Tick
	frozen bool
	sent   partitions.Tick // of the renewal that "renewal-sent" sent
	held   event.Generation
}

func (s *script) run(d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "unit":
		s.unit(d)
	case "on":
		s.on(d.CmdArgs[0].Key)
	case "wait":
		s.wait(s.duration(d.CmdArgs[0].Key))
		return s.out.String()
	case "freeze":
		s.frozen = true
		return "(no timer fires here)\n"
	case "thaw":
		s.frozen = false
		s.wait(0)
		return s.out.String()
	case "renewal-sent":
		h, ok := s.m.Held()
		if !ok {
			return "nothing to renew\n"
		}
		s.sent, s.held = s.now, h.Generation
		return fmt.Sprintf("(generation %d, at %s)\n", s.held, s.now)
	case "serving?":
		return fmt.Sprintf("%t\n", s.m.Serving(s.now))
	default:
		s.step(s.input(d))
	}
	fmt.Fprintf(&s.out, "= %s\n", s.m)
	return s.out.String()
}

func (s *script) on(name string) {
	for _, n := range s.nodes {
		if n.name == name {
			s.node = n
			return
		}
	}
	s.t.Fatalf("no node %q", name)
}

// unit makes a machine: unit [A] [leased] [asks] [set-aside | park] [max-parked=2] [max-crashes=2] [attempts=3] [read-ahead=2] [passed-max=2] [lanes=(order, payment)].
func (s *script) unit(d *datadriven.TestData) {
	s.node = &node{}
	s.nodes = append(s.nodes, s.node)
	s.cfg = partitions.Config{Handling: func(e *event.Envelope) partitions.Handling {
		switch e.Type {
		case "ignored":
			return partitions.PassOver
		case "newer":
			return partitions.AwaitNewer
		}
		return partitions.Handle
	}}
	s.lanes = []event.LaneRef{lane("order"), lane("order/backfill")}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "leased":
			s.cfg.Traits = partitions.Traits{Leased: true, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second}
		case "asks":
			s.cfg.Asks = true
		case "set-aside":
			s.cfg.Policy = partitions.SetAside
		case "park":
			s.cfg.Policy = partitions.ParkUnit
		case "max-parked":
			s.cfg.MaxParked = s.number(a.Vals[0])
		case "max-crashes":
			s.cfg.MaxCrashes = s.number(a.Vals[0])
		case "attempts":
			s.cfg.Attempts = s.number(a.Vals[0])
		case "read-ahead":
			s.cfg.ReadAhead = s.number(a.Vals[0])
		case "passed-max":
			s.cfg.PassedMax = s.number(a.Vals[0])
		case "lanes":
			s.lanes = nil
			for _, v := range a.Vals {
				s.lanes = append(s.lanes, lane(v))
			}
		default:
			s.name = a.Key
		}
	}
	s.cfg = s.cfg.WithDefaults()
	if err := s.cfg.Validate(); err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	s.m = partitions.New(&s.cfg, event.Unit{Name: "shipping", Key: "a"}, s.lanes)
}

// wait lets time pass, and the timers fire on the way.
func (s *script) wait(d time.Duration) {
	told, end := s.node, s.now.Add(d)
	defer func() { s.node = told }()
	for {
		s.node = nil
		for _, n := range s.nodes {
			if n.timer != 0 && n.timer <= end && !n.frozen && (s.node == nil || n.timer < s.timer) {
				s.node = n
			}
		}
		if s.node == nil {
			s.now = end
			return
		}
		s.now, s.timer = max(s.now, s.timer), 0
		fmt.Fprintf(&s.out, "(%s)\n", strings.TrimSpace(s.name+" timer at "+s.now.String()))
		s.step(partitions.TimerFired{})
		fmt.Fprintf(&s.out, "= %s\n", s.m)
	}
}

func (s *script) step(in partitions.Input) {
	for _, e := range s.m.Step(s.now, in) {
		fmt.Fprintln(&s.out, e)
		if timer, ok := e.(*partitions.SetTimer); ok {
			s.timer = timer.At
		}
	}
}

// input builds what the machine is told. Answers are named after what they answer.
func (s *script) input(d *datadriven.TestData) partitions.Input {
	switch d.Cmd {
	case "wake":
		return partitions.Wake{}
	case "demand":
		return partitions.Demand{}
	case "acted":
		return partitions.Acted{}
	case "hung":
		return partitions.Hung{}
	case "lost":
		return partitions.Lost{Why: d.CmdArgs[0].Key}
	case "drain":
		return partitions.Drain{Cancel: d.HasArg("hurry")}
	case "renewed":
		return partitions.Renewed{Generation: s.held, Sent: s.sent}
	case "fenced":
		return partitions.Fenced{Generation: s.held}
	case "acquired":
		return s.acquired(d)
	case "recovered":
		return s.recovered(d)
	case "fetched":
		return s.fetched(d)
	case "applied":
		return s.applied(d)
	case "served":
		return partitions.ServeDone{Outcome: s.outcome(d), Err: s.err(d), More: d.HasArg("more"), Keep: d.HasArg("keep")}
	case "halt-written":
		return partitions.WriteHaltDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "dead-written":
		return partitions.WriteDeadDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "parked":
		return partitions.WriteParkedDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "tried-written":
		return partitions.WriteTriedDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "aside":
		return s.aside(d)
	case "settled":
		return partitions.SettleAsideDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "suspected":
		return partitions.SuspectAsideDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "passed-committed":
		return partitions.CommitPassedDone{Outcome: s.outcome(d), Err: s.err(d)}
	case "passivated":
		return partitions.PassivateDone{}
	case "released":
		return partitions.ReleaseDone{Outcome: s.outcome(d), Err: s.err(d)}
	}
	d.Fatalf(s.t, "unknown command %q", d.Cmd)
	return nil
}

// acquired 6 [unclean] | acquired held=10s [by=B] [at=7] | acquired forgot | acquired failed error=...
func (s *script) acquired(d *datadriven.TestData) partitions.AcquireDone {
	in := partitions.AcquireDone{Outcome: s.outcome(d), Err: s.err(d)}
	for _, a := range d.CmdArgs {
		switch {
		case a.Key == "held":
			in.HeldFor = s.duration(a.Vals[0])
		case a.Key == "by":
			in.Holder = a.Vals[0]
		case a.Key == "at":
			in.HeldAt = event.Generation(s.number(a.Vals[0]))
		case a.Key == "forgot":
			in.Forgot = true
		case a.Key == "unclean":
			in.Unclean = true
		case a.Key[0] >= '0' && a.Key[0] <= '9':
			in.Granted, in.Generation = true, event.Generation(s.number(a.Key))
		}
	}
	return in
}

// recovered [order=3] [halted=order#4] [paused] [parked=(order, order, payment)] [due] [tried=(order#4, attempts, suspicions, alone)] | recovered refused=8 | recovered failed error=...
func (s *script) recovered(d *datadriven.TestData) partitions.RecoverDone {
	in := partitions.RecoverDone{Outcome: s.outcome(d), Err: s.err(d), Raised: s.cfg.Leased}
	for _, ref := range s.lanes {
		in.Checkpoints = append(in.Checkpoints, event.Position{Lane: ref})
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "refused":
			in.Raised, in.Generation = false, event.Generation(s.number(a.Vals[0]))
		case "paused":
			in.Paused = true
		case "due":
			in.Due = true
		case "parked":
			in.Parked = s.parked(a.Vals)
		case "tried":
			ref, seq := s.place(a.Vals[0])
			in.Tried = &partitions.Tried{
				Lane: ref, Sequence: seq, EventID: a.Vals[0], EventType: "order.placed",
				Attempts: s.number(a.Vals[1]), Suspicions: s.number(a.Vals[2]), Alone: s.number(a.Vals[3]),
			}
		case "halted":
			ref, seq := s.place(a.Vals[0])
			in.Halt = &partitions.Failure{Lane: ref, Sequence: seq, Reason: "poison"}
		default:
			for i, ref := range s.lanes {
				if len(a.Vals) == 1 && ref == lane(a.Key) {
					in.Checkpoints[i].Sequence = event.Sequence(s.number(a.Vals[0]))
				}
			}
		}
	}
	return in
}

// fetched order#4 order#5:ignored order#6:void [drained] | fetched gap=order | fetched diverged=order#3 | fetched stale
func (s *script) fetched(d *datadriven.TestData) partitions.FetchDone {
	in := partitions.FetchDone{Outcome: s.outcome(d), Err: s.err(d)}
	for _, a := range d.CmdArgs {
		switch {
		case a.Key == "drained":
			in.Drained = true
		case a.Key == "gap":
			in.Gap, in.Lane = true, lane(a.Vals[0])
		case a.Key == "diverged":
			in.Diverged = true
			in.Found.Lane, in.Found.Sequence = s.place(a.Vals[0])
			in.Found.EventID = "another " + a.Vals[0]
		case strings.Contains(a.Key, "#"):
			in.Entries = append(in.Entries, s.entry(a.Key))
		}
	}
	return in
}

// entry reads order#4, order#5:ignored and order#6:void.
func (s *script) entry(text string) event.Envelope {
	name, kind, _ := strings.Cut(text, ":")
	ref, seq := s.place(name)
	e := event.Envelope{ID: name, Type: "order.placed", Category: ref.Category, Key: ref.Key, Lane: ref.Lane, Sequence: seq}
	switch kind {
	case "":
	case "void":
		e.Type = ""
	default:
		e.Type = kind
	}
	return e
}

// aside order#4 dead=order#5:ignored [attempts=3] [suspicions=1 (of the first)]
func (s *script) aside(d *datadriven.TestData) partitions.FetchAsideDone {
	in := partitions.FetchAsideDone{Outcome: s.outcome(d), Err: s.err(d)}
	attempts, suspicions := 0, 0
	for _, a := range d.CmdArgs {
		switch {
		case a.Key == "attempts":
			attempts = s.number(a.Vals[0])
		case a.Key == "suspicions":
			suspicions = s.number(a.Vals[0])
		case a.Key == "dead", strings.Contains(a.Key, "#"):
			text := a.Key
			if a.Key == "dead" {
				text = a.Vals[0]
			}
			e := s.entry(text)
			in.Entries = append(in.Entries, partitions.Aside{AsideRef: partitions.AsideRef{Dead: a.Key == "dead", Lane: e.Ref(), Sequence: e.Sequence}, Entry: e})
		}
	}
	for i := range in.Entries {
		in.Entries[i].Attempts = attempts
	}
	if len(in.Entries) > 0 {
		in.Entries[0].Suspicions = suspicions
	}
	return in
}

// parked counts categories.
func (s *script) parked(categories []string) []partitions.Parked {
	var all []partitions.Parked
	for _, c := range categories {
		if n := len(all); n > 0 && all[n-1].Category == c {
			all[n-1].Count++
			continue
		}
		all = append(all, partitions.Parked{Category: c, Count: 1})
	}
	return all
}

// applied [keep] | applied retry error=... | applied poison [reason=...] | applied stale | applied moved | applied unknown
func (s *script) applied(d *datadriven.TestData) partitions.ApplyDone {
	in := partitions.ApplyDone{Outcome: s.outcome(d), Err: s.err(d), Keep: d.HasArg("keep")}
	d.MaybeScanArgs(s.t, "reason", &in.Reason)
	switch {
	case d.HasArg("retry"):
		in.Outcome = partitions.Failed
	case d.HasArg("poison"):
		in.Outcome, in.Class = partitions.Failed, partitions.Poison
	}
	return in
}

func (s *script) outcome(d *datadriven.TestData) partitions.Outcome {
	for _, o := range []partitions.Outcome{partitions.Failed, partitions.Unknown, partitions.Stale, partitions.Moved, partitions.Busy} {
		if d.HasArg(o.String()) {
			return o
		}
	}
	return partitions.OK
}

func (s *script) err(d *datadriven.TestData) error {
	var text string
	if d.MaybeScanArgs(s.t, "error", &text); text == "" {
		return nil
	}
	return errors.New(strings.ReplaceAll(text, "-", " "))
}

func (s *script) place(text string) (event.LaneRef, event.Sequence) {
	name, seq, _ := strings.Cut(text, "#")
	return lane(name), event.Sequence(s.number(seq))
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// lane reads "order" and "order/backfill": the lanes of the script's key.
func lane(text string) event.LaneRef {
	category, backfill, _ := strings.Cut(text, "/")
	ref := event.LaneRef{Category: category, Key: "a"}
	if backfill != "" {
		ref.Lane = event.Backfill
	}
	return ref
}
