package projection

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// trouble is for what is no event's fault: everything is read again, after a while.
func (b *build) trouble(ctx context.Context, what string, err error) next {
	b.forget()
	b.refresh()
	if ctx.Err() != nil {
		return next{}
	}
	pause := b.pause
	b.pause = min(2*b.pause, longestPause)
	if errors.Is(err, eventstore.ErrProjectionMoved) {
		pause = time.Millisecond // somebody acted: there is a state to be read
	} else {
		b.rt.cfg.Observer.Trouble(b.name(), what, err)
	}
	b.keep(ctx, pause)
	return next{}
}

// keep waits whatever wakes come: what could not be done is not tried again at the rate of commits.
func (b *build) keep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// nobodys reports whether an error is no event's fault: what lies beneath is in trouble, or somebody else has moved the build.
func nobodys(err error) bool {
	for _, kind := range []error{
		eventstore.ErrTrouble, eventstore.ErrStale, eventstore.ErrClosed, eventstore.ErrUnknownCommit, eventstore.ErrProjectionMoved,
		errNotCalled,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// failed counts a failed attempt at the next event, nil for Setup, and halts the build when there is to be no other.
func (b *build) failed(ctx context.Context, e *eventstore.Placed, err error) next {
	b.forget()
	if ctx.Err() != nil || nobodys(err) {
		return b.trouble(ctx, "apply", err)
	}
	if p, ok := errors.AsType[*actors.PanicError](err); ok {
		b.rt.cfg.Observer.Panicked(b.name(), p)
	}
	var at eventstore.ProjectionEvent
	var envelope *event.Envelope
	if e != nil {
		at, envelope = eventOf(e), &e.Envelope
	}
	return b.writeDown(ctx, at, envelope, b.attempts(at.ID)+1, err)
}

// unshown counts an attempt to take the place of the build before that failed of itself. No event is to blame; those that come
// meanwhile are applied, which forgets nothing of it.
func (b *build) unshown(ctx context.Context, err error) next {
	b.forget()
	at := eventstore.ProjectionEvent{Type: eventstore.AtSwitch}
	if b.own.Tried != nil && b.own.Tried.Event == at {
		b.switches = max(b.switches, b.own.Tried.Attempts)
	}
	b.switches++
	return b.writeDown(ctx, at, nil, b.switches, err)
}

// maxErrorText is how many bytes are kept of the text of an error.
const maxErrorText = 4 << 10

// writeDown makes a failed attempt durable, and that the build is halted where it was the last.
func (b *build) writeDown(ctx context.Context, at eventstore.ProjectionEvent, envelope *event.Envelope, attempts int, err error) next {
	now, text := b.rt.cfg.Now().UTC(), event.Text(err.Error(), maxErrorText)
	step := b.stepTo(b.own.Position)
	switch reason := b.whyHalt(err, attempts); reason {
	case "":
		step.Tried = &eventstore.ProjectionTried{ // of which the suspicions are 0: it has returned
			Event: at, Attempts: attempts, Error: text, Time: now, Again: now.Add(max(b.prog.desc.Retry.Delay(attempts), time.Millisecond)),
		}
	default:
		step.Halt = &eventstore.ProjectionHalt{Event: at, Attempts: attempts, Reason: reason, Error: text, Since: now}
	}
	if err := b.record(ctx, step); err != nil {
		return b.trouble(ctx, "write down what failed; the attempt is not counted", err)
	}
	if step.Halt != nil {
		b.own.Halt, b.own.Tried, b.switches = step.Halt, nil, 0
		b.rt.cfg.Observer.Halted(b.name(), *step.Halt)
		return next{}
	}
	b.own.Tried = step.Tried
	b.rt.cfg.Observer.Retried(b.name(), envelope, attempts, err)
	return next{}
}

func (b *build) whyHalt(err error, attempts int) string {
	var undecodable *undecodableError
	switch {
	case errors.As(err, &undecodable):
		return "undecodable"
	case errors.Is(err, eventstore.ErrNoSQL):
		return "the store has no SQL"
	}
	reason := ""
	if asked := b.guarded(func() error { reason = b.prog.desc.Retry.GiveUp(err); return nil }); asked == nil && reason != "" {
		return reason
	}
	if attempts >= b.prog.desc.Retry.Attempts {
		return "retries exhausted"
	}
	return ""
}
