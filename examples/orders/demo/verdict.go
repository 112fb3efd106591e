package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/eventstore"
)

// figures is what the demo comes to. Each is counted from the evidence, none is remembered from the run.
type figures struct {
	Placed      int // orders placed, by the event log
	Shipped     int // rows of shipments
	Lost        int // placed, but no row
	Reordered   int // rows of a client behind a row of an order that it placed later
	Overlapping int // times that an event entered shipping while another of its client was inside
	Twice       int // orders with more than one row
	Parallel    int // most clients inside shipping at the same time
	Halted      int // clients halted after the process was started again
	Resumed     int // of these, not halted any more

	Nodes     int // processes that hear all others by gossip
	Asked     int // times that a process was asked how an order is
	Elsewhere int // of these, answered by another process
	Wrong     int // of these, answered otherwise than the event log has it

	Processes int      // that took part in shipping
	Failover  failover // where there are leases
	Late      int      // times that a process entered shipping that was owner no more; it could commit nothing
}

func (f figures) String() string {
	s := fmt.Sprintf("placed=%d shipped=%d lost=%d reordered=%d overlapping=%d twice=%d parallel=%d halted=%d resumed=%d",
		f.Placed, f.Shipped, f.Lost, f.Reordered, f.Overlapping, f.Twice, f.Parallel, f.Halted, f.Resumed)
	if f.Failover.Clients > 0 {
		s += fmt.Sprintf(" processes=%d failover_ms=%d", f.Processes, f.Failover.Max.Milliseconds())
	}
	if f.Asked > 0 {
		s += fmt.Sprintf(" nodes=%d asked=%d elsewhere=%d wrong=%d", f.Nodes, f.Asked, f.Elsewhere, f.Wrong)
	}
	return s
}

// seen is what the evidence at the end cannot tell: how things stood in between.
type seen struct {
	Before eventstore.Halt   // of the client whose order is refused, before the kill
	Halted []eventstore.Halt // all of them, after the second start and before any was lifted
	Marks  int               // written until then

	Hears   map[string][]string // who heard whom, when all processes ran again
	Replies [][]reply           // to asks how an order is, one list for each, in the order of asking
}

// judge counts, and names everything that is not as promised.
func judge(p plan, e evidence, s seen) (figures, []string) {
	f := figures{Placed: len(e.Placed), Shipped: len(e.Shipments), Halted: len(s.Halted)}
	f.Resumed = f.Halted - len(e.Halts)
	rows := map[string]int{}
	for _, row := range e.Shipments {
		rows[row.Order]++
	}
	for _, placed := range e.Placed {
		if rows[placed.Order] == 0 {
			f.Lost++
		}
	}
	for _, n := range rows {
		if n > 1 {
			f.Twice++
		}
	}
	f.Reordered = reordered(e)
	inside := follow(e.Marks)
	f.Overlapping, f.Parallel, f.Processes, f.Late = inside.overlapping, inside.parallel, inside.processes, inside.late

	var untrue []string
	if p.several() {
		f.Nodes = wellHeard(s.Hears, p.atLast())
		f.Asked, f.Elsewhere, f.Wrong, untrue = compare(e, s.Replies)
	}
	faults := append(f.faults(p), untrue...)
	if p.Redis {
		f.Failover = measure(e, s.Before.Unit)
		faults = append(faults, f.Failover.faults()...)
	}
	faults = append(faults, inside.faults...)
	faults = append(faults, agree(e)...)
	faults = append(faults, held(e, s)...)
	return f, faults
}

func (f figures) faults(p plan) (faults []string) {
	for _, figure := range []struct {
		name      string
		got, want int
	}{
		{"placed", f.Placed, p.Orders}, {"shipped", f.Shipped, p.Orders}, {"lost", f.Lost, 0}, {"reordered", f.Reordered, 0},
		{"overlapping", f.Overlapping, 0}, {"twice", f.Twice, 0}, {"halted", f.Halted, 1}, {"resumed", f.Resumed, 1},
		{"processes", f.Processes, p.atLast()}, {"wrong", f.Wrong, 0},
	} {
		if figure.got != figure.want {
			faults = append(faults, fmt.Sprintf("%s is %d, not %d", figure.name, figure.got, figure.want))
		}
	}
	if p.several() {
		if f.Nodes != p.atLast() {
			faults = append(faults, fmt.Sprintf("nodes is %d, not %d: not every process hears all others by gossip", f.Nodes, p.atLast()))
		}
		if f.Elsewhere*2 < f.Asked || f.Asked == 0 { // all processes are asked for the same orders, and one at most has each
			faults = append(faults, fmt.Sprintf("of %d asks %d were answered elsewhere, less than half", f.Asked, f.Elsewhere))
		}
	}
	if f.Parallel < p.Parallel {
		faults = append(faults, fmt.Sprintf("parallel is %d, less than %d", f.Parallel, p.Parallel))
	}
	return faults
}

// reordered compares the order of a client's rows with the order in which its events were committed.
func reordered(e evidence) int {
	seq := map[string]uint64{}
	for _, placed := range e.Placed {
		seq[placed.Order] = placed.Seq
	}
	count, highest := 0, map[string]uint64{}
	for _, row := range e.Shipments {
		if seq[row.Order] < highest[row.Client] {
			count++
		}
		highest[row.Client] = max(highest[row.Client], seq[row.Order])
	}
	return count
}

// insight is what the marks tell.
type insight struct {
	overlapping int
	parallel    int
	processes   int
	late        int
	faults      []string
}

// replay follows the marks. Of a client that is inside under the generation of its newest owner, nothing else may be; what an owner before
// has inside is stale: it was killed, or has lost its lease and can commit nothing.
type replay struct {
	insight
	generation map[string]uint64      // highest, by client
	owner      map[string]incarnation // at that generation
	inside     map[string][]mark      // at that generation; nobody has an empty list
	killed     map[incarnation]bool
	seen       map[int]bool // numbers of processes
}

func follow(marks []mark) insight {
	r := replay{
		generation: map[string]uint64{}, owner: map[string]incarnation{}, inside: map[string][]mark{}, killed: map[incarnation]bool{}, seen: map[int]bool{},
	}
	for _, m := range marks {
		switch {
		case m.Killed:
			r.kill(m.by())
		case r.killed[m.by()]:
			r.fault("order %s: process %d was in shipping after it had been killed", m.Order, m.Process)
		case m.Enter:
			r.enter(m)
		default:
			r.leave(m)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(r.inside)) {
		r.fault("order %s entered shipping and never left", r.inside[client][0].Order)
	}
	r.processes = len(r.seen)
	return r.insight
}

func (r *replay) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// kill takes what a process has inside out.
func (r *replay) kill(who incarnation) {
	r.killed[who] = true
	maps.DeleteFunc(r.inside, func(_ string, in []mark) bool { return in[0].by() == who })
}

func (r *replay) enter(m mark) {
	r.seen[m.Process] = true
	highest := r.generation[m.Client]
	switch {
	case m.Generation < highest:
		r.late++
		return
	case m.Generation > highest:
		r.generation[m.Client], r.owner[m.Client] = m.Generation, m.by()
		delete(r.inside, m.Client)
	case r.owner[m.Client] != m.by():
		r.fault("order %s: process %d and process %d were both owner number %d of %s", m.Order, r.owner[m.Client].number, m.Process, highest, m.Client)
	}
	if len(r.inside[m.Client]) > 0 {
		r.overlapping++
	}
	r.inside[m.Client] = append(r.inside[m.Client], m)
	r.parallel = max(r.parallel, len(r.inside))
}

func (r *replay) leave(m mark) {
	if m.Generation < r.generation[m.Client] {
		return
	}
	in := r.inside[m.Client]
	i := slices.IndexFunc(in, func(o mark) bool {
		return o.by() == m.by() && o.Generation == m.Generation && o.Event == m.Event && o.Attempt == m.Attempt
	})
	if i < 0 {
		r.fault("order %s left shipping without having entered", m.Order)
		return
	}
	if r.inside[m.Client] = slices.Delete(in, i, i+1); len(r.inside[m.Client]) == 0 {
		delete(r.inside, m.Client)
	}
}

// agree finds where log, tables and marks tell different stories.
func agree(e evidence) (faults []string) {
	placed, entered, perClient := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, p := range e.Placed {
		if placed[p.Order] {
			faults = append(faults, fmt.Sprintf("order %s was placed twice", p.Order))
		}
		placed[p.Order] = true
		perClient[p.Client]++
	}
	for _, m := range e.Marks {
		entered[m.Order] = true
	}
	for _, row := range e.Shipments {
		if !placed[row.Order] {
			faults = append(faults, fmt.Sprintf("order %s was shipped, and never placed", row.Order))
		}
		if !entered[row.Order] {
			faults = append(faults, fmt.Sprintf("order %s was shipped, and never entered shipping", row.Order))
		}
	}
	for _, client := range slices.Sorted(maps.Keys(perClient)) {
		got, want := e.Clients[client], clientRow{Orders: perClient[client], Paid: e.Paid[client]}
		if got != want {
			faults = append(faults, fmt.Sprintf("%s: the read model has %d orders, %d paid; the log has %d, %d paid",
				client, got.Orders, got.Paid, want.Orders, want.Paid))
		}
	}
	return faults
}

// held checks that what was halted stayed halted: the halt is the same after the kill as before it, after the kill
// nothing of the client entered shipping until the halt was lifted, and then the event that halted it came first.
func held(e evidence, s seen) (faults []string) {
	if !slices.ContainsFunc(s.Halted, func(h eventstore.Halt) bool { return h.Ref() == s.Before.Ref() && h.Since.Equal(s.Before.Since) }) {
		faults = append(faults, fmt.Sprintf("the halt of %s is not the one from before the kill", s.Before.Unit))
	}
	killed := slices.IndexFunc(e.Marks, func(m mark) bool { return m.Killed })
	if killed < 0 {
		return append(faults, "no process was killed")
	}
	for _, h := range s.Halted {
		client, first := h.Unit.Key, true
		for i, m := range e.Marks {
			if i < killed || m.Client != client || !m.Enter {
				continue
			}
			if i < s.Marks {
				faults = append(faults, fmt.Sprintf("order %s of %s entered shipping although %s was halted", m.Order, client, client))
			}
			if first && m.Seq != uint64(h.Sequence) {
				faults = append(faults, fmt.Sprintf("%s went on with its event %d, it was halted at %d", client, m.Seq, h.Sequence))
			}
			first = false
		}
	}
	return faults
}
