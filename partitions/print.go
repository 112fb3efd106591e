package partitions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyhold/keyhold/event"
)

func (e *Acquire) String() string {
	if e.Floor == 0 {
		return "acquire"
	}
	return fmt.Sprintf("acquire above %d", e.Floor)
}

func (e *Recover) String() string {
	if e.Raise {
		return fmt.Sprintf("raise to %d and recover", e.Generation)
	}
	return fmt.Sprintf("recover at %d", e.Generation)
}

func (e *Fetch) String() string {
	verb := "fetch"
	if e.Ack {
		verb = "acknowledge and fetch"
	}
	at := make([]string, len(e.Positions))
	for i, p := range e.Positions {
		at[i] = place(p.Lane, p.Sequence)
	}
	return fmt.Sprintf("%s at %d: up to %d above %s", verb, e.Generation, e.Max, strings.Join(at, ", "))
}

func (e *Apply) String() string {
	s := fmt.Sprintf("apply at %d: %s, attempt %d", e.Generation, place(e.Entry.Ref(), e.Entry.Sequence), e.Attempt)
	if e.Fresh {
		s += ", new instance"
	}
	if e.Suspect {
		s += ", suspect"
	}
	if e.Alone {
		s += ", alone"
	}
	if e.Aside != nil {
		s += ", " + e.Aside.String()
	}
	if e.Untry {
		s += ", untry"
	}
	return s + moves(e.Moves)
}

func (e *Serve) String() string {
	if e.Fresh {
		return fmt.Sprintf("serve at %d, new instance", e.Generation)
	}
	return fmt.Sprintf("serve at %d", e.Generation)
}

func (e *WriteHalt) String() string {
	return fmt.Sprintf("write halt at %d: %s%s%s", e.Generation, e.Halt, untry(e.Untry), moves(e.Moves))
}

func (e *WriteDead) String() string {
	return fmt.Sprintf("write dead letter at %d: %s%s%s", e.Generation, e.Dead, untry(e.Untry), moves(e.Moves))
}

func (e *WriteParked) String() string {
	all := make([]string, len(e.Parked))
	for i := range e.Parked {
		all[i] = e.Parked[i].String()
	}
	return fmt.Sprintf("park at %d: %s%s%s", e.Generation, strings.Join(all, "; "), untry(e.Untry), moves(e.Moves))
}

func (e *WriteTried) String() string {
	s := fmt.Sprintf("write tried at %d", e.Generation)
	if e.Alone {
		s += ", alone"
	}
	return s + ": " + e.Tried.String()
}

func (e *FetchAside) String() string {
	return fmt.Sprintf("fetch up to %d set aside at %d", e.Max, e.Generation)
}

func (e *SettleAside) String() string {
	if e.Failure == nil {
		return fmt.Sprintf("settle at %d: %s is through", e.Generation, &e.Aside)
	}
	return fmt.Sprintf("settle at %d: %s stays: %s", e.Generation, &e.Aside, e.Failure)
}

func (e *SuspectAside) String() string {
	s := fmt.Sprintf("suspect at %d: %s, suspicions %d", e.Generation, &e.Aside, e.Suspicions)
	if e.Alone {
		s += ", alone"
	}
	return s
}

func (a *AsideRef) String() string {
	if a.Dead {
		return "dead letter " + place(a.Lane, a.Sequence)
	}
	return "parked " + place(a.Lane, a.Sequence)
}

func (t *Tried) String() string {
	s := fmt.Sprintf("%s, attempts %d", place(t.Lane, t.Sequence), t.Attempts)
	if t.Suspicions > 0 {
		s += fmt.Sprintf(", suspicions %d, alone %d", t.Suspicions, t.Alone)
	}
	if t.Error != "" {
		s += ": " + t.Error
	}
	return s
}

func untry(yes bool) string {
	if yes {
		return ", untry"
	}
	return ""
}

func (e *CommitPassed) String() string {
	return fmt.Sprintf("commit passed at %d%s", e.Generation, moves(e.Moves))
}

func (e *Passivate) String() string { return "passivate" }

func (e *Release) String() string {
	if e.IfIdle {
		return fmt.Sprintf("release %d if idle", e.Generation)
	}
	return fmt.Sprintf("release %d", e.Generation)
}

func (e *Discard) String() string { return "discard instance" }

func (e *Cancel) String() string { return "cancel: " + e.Why.String() }

func (e *SetTimer) String() string {
	if e.At == 0 {
		return "timer off"
	}
	return "timer at " + e.At.String()
}

func (e *Note) String() string {
	var b strings.Builder
	b.WriteString("note " + e.Kind.String())
	if e.Sequence != 0 {
		b.WriteString(" " + place(e.Lane, e.Sequence))
	}
	if e.Attempt != 0 {
		fmt.Fprintf(&b, ", attempt %d", e.Attempt)
	}
	if e.Why != "" {
		b.WriteString(": " + e.Why)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Again != 0 {
		b.WriteString(", again at " + e.Again.String())
	}
	return b.String()
}

func (e *Idle) String() string {
	s := "idle"
	if e.Because != PhaseIdle {
		s += ", " + e.Because.String()
	}
	if e.Held > 0 {
		s += ", not to be had for " + e.Held.String()
	}
	if e.Holder != "" {
		s += ", held " + heldBy(e.Holder, e.HeldAt)
	}
	if e.Unfit {
		s += ", unfit"
	}
	if e.Unread {
		s += ", unread"
	}
	return s
}

func heldBy(holder string, at event.Generation) string {
	if holder == "" {
		return ""
	}
	return fmt.Sprintf("by %s at %d", holder, at)
}

func (f *Failure) String() string {
	s := place(f.Lane, f.Sequence) + " "
	if s += f.Reason; f.Reason == "" {
		s += "behind"
	}
	switch {
	case f.Attempts == 1:
		s += " after 1 attempt"
	case f.Attempts > 1:
		s += fmt.Sprintf(" after %d attempts", f.Attempts)
	}
	if f.Error != "" {
		s += ": " + f.Error
	}
	return s
}

func place(lane event.LaneRef, seq event.Sequence) string { return fmt.Sprintf("%s #%d", lane, seq) }

func moves(all []Move) string {
	if len(all) == 0 {
		return ""
	}
	s := make([]string, len(all))
	for i, m := range all {
		s[i] = fmt.Sprintf("%s %d->%d", m.Lane, m.From, m.To)
	}
	return "; moves " + strings.Join(s, ", ")
}

// OutcomeOf is the outcome of a call of a [Port] that returned err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrFenced):
		return Stale
	case errors.Is(err, ErrUnknown):
		return Unknown
	case errors.Is(err, ErrBusy):
		return Busy
	}
	return Failed
}
