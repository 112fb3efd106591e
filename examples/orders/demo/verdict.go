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
}

func (f figures) String() string {
	return fmt.Sprintf("placed=%d shipped=%d lost=%d reordered=%d overlapping=%d twice=%d parallel=%d halted=%d resumed=%d",
		f.Placed, f.Shipped, f.Lost, f.Reordered, f.Overlapping, f.Twice, f.Parallel, f.Halted, f.Resumed)
}

// seen is what the evidence at the end cannot tell: how things stood in between.
type seen struct {
	Before eventstore.Halt   // of the client whose order is refused, before the kill
	Halted []eventstore.Halt // all of them, after the second start and before any was lifted
	Marks  int               // written until then
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
	inside := replay(e.Marks)
	f.Overlapping, f.Parallel = inside.overlapping, inside.parallel

	faults := f.faults(p)
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
	} {
		if figure.got != figure.want {
			faults = append(faults, fmt.Sprintf("%s is %d, not %d", figure.name, figure.got, figure.want))
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
	faults      []string
}

// replay follows the marks. What was inside when the process was killed is not inside the next one.
func replay(marks []mark) (got insight) {
	life, inside := 0, map[string][]mark{} // by client; nobody has an empty list
	for _, m := range marks {
		switch {
		case m.Life < life:
			got.faults = append(got.faults, fmt.Sprintf("order %s: process %d was in shipping after process %d had started", m.Order, m.Life, life))
			continue
		case m.Life > life:
			life = m.Life
			clear(inside)
		}
		others := inside[m.Client]
		if m.Enter {
			if len(others) > 0 {
				got.overlapping++
			}
			inside[m.Client] = append(others, m)
			got.parallel = max(got.parallel, len(inside))
			continue
		}
		i := slices.IndexFunc(others, func(o mark) bool { return o.Event == m.Event && o.Attempt == m.Attempt })
		if i < 0 {
			got.faults = append(got.faults, fmt.Sprintf("order %s left shipping without having entered", m.Order))
			continue
		}
		if inside[m.Client] = slices.Delete(others, i, i+1); len(inside[m.Client]) == 0 {
			delete(inside, m.Client)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(inside)) {
		got.faults = append(got.faults, fmt.Sprintf("order %s entered shipping and never left", inside[client][0].Order))
	}
	return got
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

// held checks that what was halted stayed halted: the halt is the same after the kill as before it, after the second start
// nothing of the client entered shipping until the halt was lifted, and then the event that halted it came first.
func held(e evidence, s seen) (faults []string) {
	if !slices.ContainsFunc(s.Halted, func(h eventstore.Halt) bool { return h.Ref() == s.Before.Ref() && h.Since.Equal(s.Before.Since) }) {
		faults = append(faults, fmt.Sprintf("the halt of %s is not the one from before the kill", s.Before.Unit))
	}
	for _, h := range s.Halted {
		client, first := h.Unit.Key, true
		for i, m := range e.Marks {
			if m.Life < 2 || m.Client != client || !m.Enter {
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
