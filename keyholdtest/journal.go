package keyholdtest

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// journal is what happened in one step of a test: from one Given, When, Advance, Resume or Restart to the next. Units write it,
// from their goroutines.
type journal struct {
	mu struct {
		sync.Mutex
		commits  []eventstore.Changes // that were made, in order
		attempts map[string]int       // at events, by handler
		failures []failure
		lines    []string // logged
		dropped  int      // lines after the most that anybody reads
	}
}

// failure is an error that a behavior gave.
type failure struct {
	unit event.Unit
	what string // was done
	err  error
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.commits, j.mu.attempts, j.mu.failures = nil, nil, nil
	j.mu.lines, j.mu.dropped = nil, 0
}

func (j *journal) committed(c eventstore.Changes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.commits = append(j.mu.commits, c)
	if s := c.Settle; s != nil && s.Failed != nil {
		j.gaveUpLocked(c.Fence.Unit, s.Failed.Reason)
	}
}

func (j *journal) attempt(u event.Unit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attemptLocked(u)
}

func (j *journal) attemptLocked(u event.Unit) {
	if j.mu.attempts == nil {
		j.mu.attempts = map[string]int{}
	}
	j.mu.attempts[u.Name]++
}

func (j *journal) fail(u event.Unit, what string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.failures = append(j.mu.failures, failure{u, what, err})
}

// attempts tells how many attempts a handler made at events.
func (j *journal) attempts(handler string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.attempts[handler]
}

// by gives the commits of some units, in order.
func (j *journal) by(match func(event.Unit) bool) []eventstore.Changes {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []eventstore.Changes
	for _, c := range j.mu.commits {
		if match(c.Fence.Unit) {
			out = append(out, c)
		}
	}
	return out
}

// take removes the failures of some units, and gives them.
func (j *journal) take(match func(event.Unit) bool) []failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	var taken, left []failure
	for _, f := range j.mu.failures {
		if match(f.unit) {
			taken = append(taken, f)
		} else {
			left = append(left, f)
		}
	}
	j.mu.failures = left
	return taken
}

// Write takes a line of the log.
func (j *journal) Write(line []byte) (int, error) {
	const most = 50
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.mu.lines) < most {
		j.mu.lines = append(j.mu.lines, string(line))
	} else {
		j.mu.dropped++
	}
	return len(line), nil
}

// handler makes the application's log a part of the journal.
func (j *journal) handler() slog.Handler {
	return slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "stack":
			return slog.String(a.Key, own(a.Value.String()))
		}
		return a
	}})
}

// own gives the places of a stack from the panic down to where the behavior was called, innermost first.
func own(stack string) string {
	var places []string
	_, stack, _ = strings.Cut(stack, "\npanic(")
	lines := strings.Split(stack, "\n")
	for i := 2; i+1 < len(lines) && !strings.HasPrefix(lines[i], "github.com/keyhold/keyhold/actors."); i += 2 {
		place, _, _ := strings.Cut(filepath.Base(lines[i+1]), " ")
		places = append(places, place)
	}
	return strings.Join(places, " < ")
}

// account gives what was logged in this step, to follow a message.
func (j *journal) account() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.mu.lines) == 0 {
		return ""
	}
	text := "\nlogged meanwhile:\n  " + strings.TrimSuffix(strings.Join(j.mu.lines, "  "), "\n")
	if j.mu.dropped > 0 {
		text += fmt.Sprintf("\n  and %d lines more", j.mu.dropped)
	}
	return text
}

// The reasons of halts and dead letters for which no attempt was made.
const (
	undecodable = "undecodable"
	missing     = "missing"
	tooMany     = "too many parked"
)

func (j *journal) observer() keyhold.Observer {
	return keyhold.Observer{
		Applied:      func(u event.Unit, _ *event.Envelope) { j.attempt(u) },
		Retried:      func(u event.Unit, _ *event.Envelope, _ int, _ error) { j.attempt(u) },
		CommitFailed: func(u event.Unit, _ error) { j.attempt(u) },
		Halted:       func(h eventstore.Halt) { j.gaveUp(h.Unit, h.Reason) },
		DeadLettered: func(d eventstore.Dead) { j.gaveUp(d.Unit, d.Reason) },
		Parked:       func(p eventstore.Parked) { j.gaveUp(p.Unit, p.Reason) },
		TimerFailed: func(u event.Unit, name string, err error) {
			j.fail(u, fmt.Sprintf("timer %q", name), err)
		},
		Misused: func(u event.Unit, err error) { j.fail(u, "a goroutine that a behavior left behind", err) },
	}
}

func (j *journal) gaveUp(u event.Unit, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gaveUpLocked(u, reason)
}

func (j *journal) gaveUpLocked(u event.Unit, reason string) {
	if reason != undecodable && reason != missing && reason != tooMany {
		j.attemptLocked(u)
	}
}

// only matches one unit, handled all units of a handler.
func only(u event.Unit) func(event.Unit) bool {
	return func(other event.Unit) bool { return other == u }
}

func handled(name string) func(event.Unit) bool {
	return func(u event.Unit) bool { return u.Name == name }
}

// emitted gives the events of some units in this step, sent the commands they sent to one entity.
func (k *Kit) emitted(match func(event.Unit) bool) []any {
	k.T.Helper()
	return k.values(match, func(e *event.Envelope) bool { return !strings.HasSuffix(e.Category, event.CommandsSuffix) })
}

func (k *Kit) sent(match func(event.Unit) bool, to keyhold.Ref) []any {
	k.T.Helper()
	return k.values(match, func(e *event.Envelope) bool {
		return e.Category == actors.CommandCategory(to.Kind) && e.Key == to.ID
	})
}

func (k *Kit) values(match func(event.Unit) bool, want func(*event.Envelope) bool) []any {
	k.T.Helper()
	var all []any
	take := func(envelopes []event.Envelope) {
		k.T.Helper()
		for i := range envelopes {
			e := &envelopes[i]
			if !want(e) {
				continue
			}
			v := k.decode(e)
			if e.Lane == event.Backfill {
				v = keyhold.Backfill(v)
			}
			all = append(all, v)
		}
	}
	for _, c := range k.journal.by(match) {
		for _, a := range c.Append {
			take(a.Events)
		}
		take(c.Publish)
	}
	return all
}
