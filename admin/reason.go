package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
)

// stateWaiting is of a unit whose next event the program that runs does not know.
const stateWaiting = "waiting"

// stateOf says in one word what a unit is doing; of several things the gravest.
func stateOf(v *Unit) string {
	switch {
	case v.Halt != nil:
		return string(eventstore.StatusHalted)
	case v.Pause != nil || v.HandlerPause != nil:
		return string(eventstore.StatusPaused)
	case v.Parking != nil:
		return string(eventstore.StatusParking)
	case v.Activity != nil && v.Activity.State == stateWaiting:
		return stateWaiting
	case v.Tried != nil:
		return string(eventstore.StatusTrying)
	case v.Lag > 0:
		return string(eventstore.StatusBehind)
	}
	return string(eventstore.StatusDone)
}

// reasons says what is going on with a unit, the gravest first; there is always one.
func (d *Desk) reasons(v *Unit) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if h := v.Halt; h != nil {
		add("halted for %s at %s: %s", d.since(h.Since), typed(h.At, h.Type), because(h.Reason, h.Attempts, h.Error))
	}
	if missingEvent(v) {
		add("neither the store nor the broker has that event, and what comes after it is not applied out of order: was the store restored from a backup, or were " +
			"records deleted? Where another application produces the category, that one has it no more")
	}
	if otherHistory(v) {
		add("another application produces the category, and its store went back in time: was it restored from a backup, or did it fail over without its last commits? What it has published again " +
			"up to there was not applied here, and what was applied here instead stays")
	}
	if fullOfParked(v) {
		add("there is no room to set more aside: a retry applies what is set aside first, which makes room")
	}
	if p := v.Pause; p != nil {
		add("paused for %s %s", d.since(p.Since), by(p.Actor, p.Reason))
	}
	if p := v.HandlerPause; p != nil {
		add("the whole of %s is paused for %s %s", v.Handler, d.since(p.Since), by(p.Actor, p.Reason))
	}
	if p := v.Parking; p != nil {
		add("%s set aside, in order, for %s, the first is %s: %s", ofMany(p.Count, "event is", "events are"), d.since(p.First.Since),
			typed(p.First.At, p.First.Type), because(p.First.Reason, p.First.Attempts, p.First.Error))
		if p.First.Due {
			add("they are about to be applied")
		}
	}
	all = append(all, d.attempts(v)...)
	if v.Activity != nil && v.Activity.State == stateWaiting {
		add("waits for a newer program%s: the one that runs does not know the type of the next event%s", d.ofActivity(v.Activity), nextType(v))
	}
	if v.Absent {
		if len(all) == 0 && v.Lag == 0 {
			all = append(all, d.progress(v))
		}
		add("no program that was started last has %s: %s", v.Handler, absentWords(v.Lag))
		return all
	}
	stopped := stopOf(v)
	switch {
	case len(all) == 0:
		all = append(all, d.progress(v))
	case v.Owner == nil && stopped != "":
		add("%s, and a program that starts %s: what is done about it now is taken up then", nobody, stopped)
	case v.Owner == nil && v.Lag > 0:
		all = append(all, d.progress(v))
	}
	if v.Dead > 0 {
		add("%s kept of it", ofMany(v.Dead, "dead letter is", "dead letters are"))
	}
	return all
}

// absentWords says what becomes of the events of a handler that the program lacks.
func absentWords(lag uint64) string {
	if lag == 0 {
		return "what comes is kept for it, and not applied"
	}
	return ofMany(lag, "event is", "events are") + " kept for it, and not applied"
}

// fullOfParked reports whether a unit is halted because it may set nothing more aside.
func fullOfParked(v *Unit) bool {
	return v.Halt != nil && v.Halt.Reason == eventstore.TooManyParked && v.Parking != nil
}

// missingEvent reports whether a unit is halted because what comes next is nowhere.
func missingEvent(v *Unit) bool { return v.Halt != nil && v.Halt.Reason == "missing" }

// otherHistory reports whether a unit is halted because the broker has another event than it has applied.
func otherHistory(v *Unit) bool { return v.Halt != nil && v.Halt.Reason == eventstore.HistoryDiverged }

// stopOf says what the start of a program does not change for a unit that waits for a person; "" for one that does not.
func stopOf(v *Unit) string {
	switch {
	case v.Halt != nil:
		return "does not lift the halt"
	case v.Pause != nil || v.HandlerPause != nil:
		return "does not end the pause"
	case v.Parking != nil && !v.Parking.First.Due:
		return "does not apply what is set aside"
	}
	return ""
}

// nextType names the type of the next event, where only one can be meant.
func nextType(v *Unit) string {
	name := ""
	for _, l := range v.Lanes {
		if l.Lag == 0 {
			continue
		}
		if name != "" {
			return ""
		}
		name = " (" + l.NextType + ")"
	}
	return name
}

// attempts says what is known of attempts at the next event of a unit that is not halted at it.
func (d *Desk) attempts(v *Unit) (all []string) {
	t := v.Tried
	if t == nil || v.Halt != nil && v.Halt.At.Sequence == t.At.Sequence && v.Halt.At.lane() == t.At.lane() {
		return nil
	}
	if t.Attempts > 0 {
		s := fmt.Sprintf("%s failed %s, last %s ago", typed(t.At, t.Type), ofMany(t.Attempts, "time", "times"), d.since(t.Last))
		if t.Error != "" {
			s += ": " + upTo(200, t.Error)
		}
		if t.Again.After(d.opts.Now()) {
			s += "; it is tried again in " + age(t.Again.Sub(d.opts.Now()))
		}
		all = append(all, s)
	}
	if t.Suspicions > 0 {
		s := fmt.Sprintf("the process may have died of %s %s", typed(t.At, t.Type), ofMany(t.Suspicions, "time", "times"))
		if t.CrashedAlone > 0 {
			s += fmt.Sprintf(", %d of them with no other suspect beside it", t.CrashedAlone)
		}
		all = append(all, s)
	}
	return all
}

// progress says how far a unit is that nothing is known to stop.
func (d *Desk) progress(v *Unit) string {
	switch {
	case v.Lag == 0 && v.Activity != nil && v.Activity.At != nil:
		return v.Activity.State + d.ofActivity(v.Activity)
	case v.Lag == 0 && v.PassedOver > 0:
		return "everything is applied; " + passedOver(v.PassedOver)
	case v.Lag == 0:
		return "everything is applied"
	case v.Owner == nil:
		return fmt.Sprintf("%s: %s applied when a program starts", nobody, ofMany(v.Lag, "event is", "events are"))
	case v.Activity != nil:
		return fmt.Sprintf("%s to be applied; %s%s", ofMany(v.Lag, "event is", "events are"), v.Activity.State, d.ofActivity(v.Activity))
	}
	return fmt.Sprintf("%s to be applied%s", ofMany(v.Lag, "event is", "events are"), notInTheWay)
}

// passedOver tells of events that are above a checkpoint and that nobody waits for.
func passedOver(n uint64) string {
	return ofMany(n, "event that it does not handle is", "events that it does not handle are") + " still to be passed over"
}

// notInTheWay is said of events that nothing known keeps from being applied.
const notInTheWay = ", nothing known is in the way"

// ofActivity says at which event, and since when, as far as it is known.
func (d *Desk) ofActivity(a *Activity) string {
	var b strings.Builder
	if a.At != nil {
		b.WriteString(" " + typed(*a.At, a.Type))
	}
	if a.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d", a.Attempt)
	}
	if !a.Since.IsZero() {
		b.WriteString(" for " + d.since(a.Since))
	}
	return b.String()
}

// behind says what waits behind the event at which a unit stands, with the first few of it.
func (d *Desk) behind(v *Unit) string {
	const named = 3
	n, waiting := v.Lag, toApply(v.Waiting)
	if v.Parking != nil {
		n += uint64(v.Parking.Count)
	}
	if (v.Halt != nil || v.Parking != nil || v.Tried != nil) && n > 0 { // the one it stands at is not behind it
		n--
		waiting = waiting[min(1, len(waiting)):]
	}
	if n == 0 {
		return ""
	}
	var first []string
	for _, e := range waiting[:min(named, len(waiting))] {
		typ := e.Type
		if e.Void {
			typ = "void"
		}
		first = append(first, fmt.Sprintf("%s (%s)", typ, d.since(e.Time)))
	}
	s := ofMany(n, "event waits", "events wait")
	if v.Halt != nil || v.Parking != nil || v.Tried != nil {
		s += " behind it"
	}
	switch {
	case len(first) == 0:
		return s
	case uint64(len(first)) < n:
		first = append(first, "…")
	}
	return s + ": " + strings.Join(first, ", ")
}

// toApply gives those that are not passed over.
func toApply(all []Event) (some []Event) {
	for i := range all {
		if !all[i].PassedOver {
			some = append(some, all[i])
		}
	}
	return some
}

// steps says what a person may do about a unit, the most likely first.
func (d *Desk) steps(v *Unit) []Step {
	all := []Step{}
	add := func(words, command string) { all = append(all, Step{Words: words, Command: command}) }
	if v.HandlerPause != nil {
		add("have the whole of "+v.Handler+" go on", d.cmdHandler("resume", v.Handler))
	}
	if v.Pause != nil {
		add("have it go on", d.cmdUnit("resume", v))
	}
	var seen, decided []string
	if v.Expect != nil {
		seen = []string{"--expect", strconv.FormatUint(v.Expect.Sequence, 10)}
		decided = slices.Concat(seen, reasonFlag)
	}
	switch {
	case fullOfParked(v):
		add("look at what the events hold", d.cmdUnit("show", v, "--data"))
		add("apply what is set aside first, in order, then go on with this event, once the cause is mended", d.cmdUnit("retry", v, seen...))
		add("keep this event as a dead letter; what is set aside stays so", d.cmdUnit("dlq", v, decided...))
		add("go on without this event, for good; what is set aside stays so", d.cmdUnit("skip", v, decided...))
	case missingEvent(v):
		add("look for it again, once it is there: the backup that has it was restored, or its producer runs", d.cmdUnit("retry", v, seen...))
		add("go on without it, for good", d.cmdUnit("skip", v, decided...))
	case otherHistory(v):
		add("go on behind the event that its producer has there now; what both have apart is yours to mend first", d.cmdUnit("retry", v, seen...))
	case v.Halt != nil:
		add("look at what the event holds", d.cmdUnit("show", v, "--data"))
		add("try the event again, once the cause is mended", d.cmdUnit("retry", v, seen...))
		add("keep it as a dead letter and go on without it", d.cmdUnit("dlq", v, decided...))
		add("go on without it, for good", d.cmdUnit("skip", v, decided...))
	case v.Parking != nil && !v.Parking.First.Due:
		add("look at what the events hold", d.cmdUnit("show", v, "--data"))
		add("apply what is set aside, once the cause is mended", d.cmdUnit("retry", v, seen...))
		add("keep the first as a dead letter and apply the others", d.cmdUnit("dlq", v, decided...))
		add("drop the first and apply the others", d.cmdUnit("skip", v, decided...))
	}
	if v.State == stateWaiting {
		add("start the program that knows the type", "")
	}
	if v.Absent && (v.Lag > 0 || v.Halt != nil || v.Parking != nil) {
		all = append(all, d.absentSteps(v.Handler, v.Kind)...)
	} else if v.Owner == nil && !v.Absent && (v.Lag > 0 || v.Parking != nil) && stopOf(v) == "" {
		add("start the application", "")
	}
	if v.Dead > 0 {
		add("list the dead letters of it", d.cmdDead("ls", v.Handler, v.Key))
	}
	return all
}

// absentSteps says what a person may do about a handler that the program lacks.
func (d *Desk) absentSteps(name, kind string) []Step {
	steps := []Step{{Words: "start a program that has it"}}
	if kind != string(eventstore.EntityKind) { // streams carry the name
		steps = append(steps, Step{Words: "where the program has it under another name, give all that is kept under this one to NEW, before it starts",
			Command: d.command("handlers rename", reasonFlag, name, "NEW")})
	}
	return append(steps, Step{Words: "where it is gone for good, forget it", Command: d.command("handlers rm", reasonFlag, name)})
}
