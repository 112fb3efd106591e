package admin

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ProblemKind tells problems apart.
type ProblemKind string

// The kinds of problems, the worst first. Notes are listed behind them, and do not make a store degraded.
const (
	ProblemApart    ProblemKind = "apart"    // a process is up, and takes no part, or is not known to the others: it cannot reach the store or the broker, or is on another broker
	ProblemDiverged ProblemKind = "diverged" // lanes of which the broker has events that the store has not
	ProblemHalted   ProblemKind = "halted"   // units of a handler wait for a person
	ProblemParking  ProblemKind = "parking"  // units of a handler set events aside
	ProblemNobody   ProblemKind = "nobody"   // nobody has the store open, and there is work that a program would do
	ProblemStalled  ProblemKind = "stalled"  // a handler has work, nothing known is in the way, and nothing was passed for a minute
	ProblemTrying   ProblemKind = "trying"   // units of a handler whose next event failed, and is tried again; a note in the first minute
	ProblemPaused   ProblemKind = "paused"   // a handler, or units of it, were paused by a person
	ProblemDead     ProblemKind = "dead"     // dead letters
	ProblemAbsent   ProblemKind = "absent"   // a handler has work, and the running program does not have it
	ProblemSoon     ProblemKind = "soon"     // a note: what will keep this process from its work if nobody sees to it, as the end of its certificate
	ProblemUnlike   ProblemKind = "unlike"   // a note: nodes differ in a setting that must be the same on all
	ProblemUnclean  ProblemKind = "unclean"  // a note: the last program did not stop by itself
)

// Problem is one thing that is wrong.
type Problem struct {
	Kind    ProblemKind `json:"kind"`
	Handler string      `json:"handler,omitempty"`
	Count   int         `json:"count,omitempty"`
	AtLeast bool        `json:"at_least,omitempty"` // there may be more than Count
	Oldest  time.Time   `json:"oldest,omitzero"`
	Note    bool        `json:"note,omitempty"`    // it does not make the store degraded
	Words   string      `json:"words"`             // "2 keys of shipping are halted, the oldest for 4 m"
	Command string      `json:"command,omitempty"` // that shows more: "keyhold partitions ls --handler shipping --status halted"
	Steps   []Step      `json:"steps,omitempty"`   // what may be done, where Words cannot say it
}

// patience is how long something may take before it is a problem.
const patience = time.Minute

// gravity orders problems, the worst first.
var gravity = []ProblemKind{
	ProblemApart, ProblemDiverged, ProblemHalted, ProblemParking, ProblemNobody, ProblemAbsent, ProblemStalled, ProblemPaused, ProblemTrying, ProblemDead, ProblemSoon, ProblemUnlike, ProblemUnclean,
}

func (d *Desk) problems(ctx context.Context, s *Status, present []eventstore.Owner) ([]Problem, error) {
	found, err := d.problemsOfStore(ctx, s, present)
	if err != nil {
		return nil, err
	}
	for i := range s.Handlers {
		of, err := d.problemsOf(ctx, &s.Handlers[i], s.Owner != nil)
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	lanes, err := d.problemOfLanes(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, lanes...)
	of, err := d.projectionProblems(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, of...)
	rank := func(p Problem) int {
		if p.Note {
			return len(gravity) + slices.Index(gravity, p.Kind)
		}
		return slices.Index(gravity, p.Kind)
	}
	slices.SortStableFunc(found, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Count, a.Count))
	})
	return found, nil
}

func (d *Desk) problemsOfStore(ctx context.Context, s *Status, present []eventstore.Owner) ([]Problem, error) {
	found := []Problem{}
	var lag uint64
	if s.Owner == nil {
		for i := range s.Handlers {
			n, err := d.waitsForAProgram(ctx, &s.Handlers[i])
			if err != nil {
				return nil, err
			}
			lag += n
		}
	}
	switch {
	case lag > 0:
		found = append(found, Problem{
			Kind: ProblemNobody, Count: int(lag),
			Words: fmt.Sprintf("%s, and %s to be applied: start the application", nobody, ofMany(lag, "event is", "events are")),
		})
	case s.Owner == nil:
		found = append(found, Problem{Kind: ProblemNobody, Note: true, Words: nobody})
	}
	found = append(found, d.problemsOfProcesses(present)...)
	if s.Unclean {
		found = append(found, Problem{Kind: ProblemUnclean, Note: true, Words: "the last program that had the store open did not stop by itself: " +
			"what it was applying then is tried with care at the next start"})
	}
	return found, nil
}

// problemsOfProcesses gives what keeps processes from their share of the work: this one, as it knows by itself, and others, as they said.
func (d *Desk) problemsOfProcesses(present []eventstore.Owner) (found []Problem) {
	here := false
	if live := d.opts.Live; live != nil && live.Consumes != nil {
		if err := live.Consumes(); err != nil {
			here = true
			found = append(found, Problem{Kind: ProblemApart, Words: "this process is up, and takes no part: " + err.Error()})
		}
	}
	if live := d.opts.Live; live != nil && live.Notices != nil {
		for _, words := range live.Notices() {
			found = append(found, Problem{Kind: ProblemSoon, Note: true, Words: words})
		}
	}
	for _, p := range present {
		if a := AboutOf(p.About); a != nil && (d.opts.Live == nil || p.PID != os.Getpid() || p.Node != d.opts.Live.Node) {
			for _, words := range a.Notices {
				who := Owner{PID: p.PID, Node: p.Node}
				found = append(found, Problem{Kind: ProblemSoon, Note: true, Words: who.String() + " says: " + words})
			}
		}
		if p.Trouble == "" || here && p.PID == os.Getpid() && p.Node == d.opts.Live.Node {
			continue
		}
		who := Owner{PID: p.PID, Node: p.Node}
		found = append(found, Problem{Kind: ProblemApart, Count: 1, Oldest: p.Since, Words: who.String() + " says" + d.forSince(1, p.Since) + ": " + p.Trouble})
	}
	for _, words := range unlike(present) {
		found = append(found, Problem{Kind: ProblemUnlike, Note: true, Words: words})
	}
	return found
}

// waitsForAProgram gives how many events a handler applies once a program starts: those of stopped units it does not, nor any where it is
// paused as a whole or the last program did not have it.
func (d *Desk) waitsForAProgram(ctx context.Context, h *Handler) (uint64, error) {
	if h.Pause != nil || !h.Running {
		return 0, nil
	}
	lag := h.Lag
	for _, c := range []struct {
		status eventstore.Status
		n      int
	}{{eventstore.StatusHalted, h.Halted}, {eventstore.StatusParking, h.Parking}, {eventstore.StatusPaused, h.Paused}} {
		if c.n == 0 {
			continue
		}
		all, err := d.store.ListPartitions(ctx, eventstore.PartitionQuery{Name: h.Name, Status: c.status, Limit: MaxLimit})
		if err != nil {
			return 0, err
		}
		for _, p := range all {
			lag -= min(lag, uint64(p.Tail-min(p.Tail, p.Checkpoint)))
		}
	}
	return lag, nil
}

// problemsOf gives what is wrong with one handler.
func (d *Desk) problemsOf(ctx context.Context, h *Handler, owned bool) ([]Problem, error) {
	var found []Problem
	stopped := []struct {
		kind   ProblemKind
		status eventstore.Status
		n      int
		one    string
		many   string
	}{
		{ProblemHalted, eventstore.StatusHalted, h.Halted, "is halted", "are halted"},
		{ProblemParking, eventstore.StatusParking, h.Parking, "has events set aside", "have events set aside"},
		{ProblemPaused, eventstore.StatusPaused, h.Paused, "is paused", "are paused"},
		{ProblemTrying, eventstore.StatusTrying, h.Trying, "tries again what failed", "try again what failed"},
	}
	for _, c := range stopped {
		if c.n == 0 {
			continue
		}
		oldest, err := d.oldest(ctx, h.Name, c.status)
		if err != nil {
			return nil, err
		}
		p := Problem{
			Kind: c.kind, Handler: h.Name, Count: c.n, AtLeast: c.n >= eventstore.MaxCount, Oldest: oldest,
			Command: d.cmdPartitions(h.Name, string(c.status)),
		}
		p.Words = fmt.Sprintf("%s of %s %s", counted(c.n, "key", "keys"), h.Name, c.many)
		if c.n == 1 {
			p.Words = fmt.Sprintf("1 key of %s %s", h.Name, c.one)
		}
		p.Words += d.forSince(c.n, oldest)
		p.Note = c.kind == ProblemTrying && (oldest.IsZero() || d.opts.Now().Sub(oldest) < patience)
		found = append(found, p)
	}
	found = append(found, d.problemsOfWhole(h)...)
	if len(found) == 0 && owned && h.Lag > 0 && d.opts.Now().Sub(h.Moved) > patience {
		stalled, err := d.stalled(ctx, h)
		if err != nil {
			return nil, err
		}
		found = append(found, stalled...)
	}
	dead, err := d.deadLetters(ctx, h)
	return append(found, dead...), err
}

// problemsOfWhole gives what concerns all units of a handler.
func (d *Desk) problemsOfWhole(h *Handler) []Problem {
	var found []Problem
	if p := h.Pause; p != nil {
		found = append(found, Problem{
			Kind: ProblemPaused, Handler: h.Name, Count: int(h.Lag), Oldest: p.Since, Note: h.Lag == 0, Command: d.cmdHandler("resume", h.Name),
			Words: fmt.Sprintf("%s is paused for %s %s; %d behind", h.Name, d.since(p.Since), by(p.Actor, p.Reason), h.Lag),
		})
	}
	if !h.Running && h.Lag > 0 {
		found = append(found, Problem{
			Kind: ProblemAbsent, Handler: h.Name, Count: int(h.Lag), Command: d.command("handlers ls", nil), Steps: d.absentSteps(h.Name, h.Kind),
			Words: fmt.Sprintf("the program that started last does not have %s, which is %d behind and keeps those events from being deleted", h.Name, h.Lag),
		})
	}
	return found
}

// oldest is when the unit stopped that is stopped longest, of the first that a page can hold.
func (d *Desk) oldest(ctx context.Context, handler string, s eventstore.Status) (time.Time, error) {
	all, err := d.store.ListPartitions(ctx, eventstore.PartitionQuery{Name: handler, Status: s, Limit: MaxLimit})
	if err != nil {
		return time.Time{}, err
	}
	return earliest(all, func(p eventstore.Partition) time.Time { return p.Since }), nil
}

// stalled looks whether what a handler has to apply has waited for long.
func (d *Desk) stalled(ctx context.Context, h *Handler) ([]Problem, error) {
	const most = 20
	behind, err := d.store.ListPartitions(ctx, eventstore.PartitionQuery{Name: h.Name, Status: eventstore.StatusBehind, Limit: most})
	if err != nil {
		return nil, err
	}
	var next []event.Envelope
	for _, p := range behind {
		first, err := d.store.ReadLane(ctx, p.Lane, p.Checkpoint, 1)
		if err != nil {
			return nil, err
		}
		next = append(next, first...)
	}
	oldest := earliest(next, func(e event.Envelope) time.Time { return e.Time })
	if oldest.IsZero() || d.opts.Now().Sub(oldest) <= patience {
		return nil, nil
	}
	return []Problem{{
		Kind: ProblemStalled, Handler: h.Name, Count: int(h.Lag), Oldest: oldest,
		Command: d.cmdPartitions(h.Name, string(eventstore.StatusBehind)),
		Words:   fmt.Sprintf("%s is %d behind and passed nothing for a minute; an event waits for %s", h.Name, h.Lag, d.since(oldest)),
	}}, nil
}

func (d *Desk) deadLetters(ctx context.Context, h *Handler) ([]Problem, error) {
	if h.Dead == 0 {
		return nil, nil
	}
	all, err := d.store.ListDead(ctx, h.Name, event.Position{}, MaxLimit)
	if err != nil {
		return nil, err
	}
	p := Problem{
		Kind: ProblemDead, Handler: h.Name, Count: h.Dead, AtLeast: h.Dead >= eventstore.MaxCount,
		Oldest:  earliest(all, func(l eventstore.Dead) time.Time { return l.Time }),
		Command: d.cmdDead("ls", h.Name, ""),
		Words:   fmt.Sprintf("%s has %s", h.Name, counted(h.Dead, "dead letter", "dead letters")),
	}
	p.Words += d.forSince(p.Count, p.Oldest)
	return []Problem{p}, nil
}

// forSince says for how long, of the oldest of several; "" where it is not known.
func (d *Desk) forSince(n int, oldest time.Time) string {
	switch {
	case oldest.IsZero():
		return ""
	case n == 1:
		return ", for " + d.since(oldest)
	}
	return ", the oldest for " + d.since(oldest)
}

// earliest is the first of the times that are not zero; zero where none is.
func earliest[T any](all []T, of func(T) time.Time) (first time.Time) {
	for _, v := range all {
		if t := of(v); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
