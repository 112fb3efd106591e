package projection

import (
	"context"

	"github.com/keyhold/keyhold/eventstore"
)

const crashedProcess = "crashed the process"

// suspected runs what is next, nil being Setup, as it runs always, but for what a build had in hand when the process before ended: that is
// counted before it runs, with no other suspect beside it, and not run any more when the process has ended of it too often.
func (b *build) suspected(ctx context.Context, e *eventstore.Placed, run func(context.Context) next) next {
	counted := b.own.Tried != nil && b.own.Tried.Suspicions > 0
	if !b.suspect && !counted {
		return run(ctx)
	}
	var at eventstore.ProjectionEvent
	if e != nil {
		at = eventOf(e)
	}
	if !b.suspect { // whoever counted it has not died of it
		return b.suspects(ctx, at, 0, run)
	}
	suspicions := 0
	if counted && b.own.Tried.Event.ID == at.ID {
		suspicions = b.own.Tried.Suspicions
	}
	if suspicions >= b.rt.cfg.MaxCrashes {
		return b.condemn(ctx, at, suspicions)
	}
	release, err := b.rt.cfg.Alone(ctx)
	if err != nil {
		return b.trouble(ctx, "wait for its turn", err)
	}
	defer release()
	return b.suspects(ctx, at, suspicions+1, func(ctx context.Context) next {
		b.suspect = false
		return run(ctx)
	})
}

// suspects makes the suspicions of what is next durable, and runs it then.
func (b *build) suspects(ctx context.Context, at eventstore.ProjectionEvent, suspicions int, run func(context.Context) next) next {
	now := b.rt.cfg.Now().UTC()
	tried := &eventstore.ProjectionTried{Event: at, Attempts: b.attempts(at.ID), Time: now, Again: now, Suspicions: suspicions}
	if b.own.Tried != nil && b.own.Tried.Event.ID == at.ID {
		tried.Error = b.own.Tried.Error
	}
	step := b.stepTo(b.own.Position)
	step.Tried = tried
	if err := b.record(ctx, step); err != nil {
		return b.trouble(ctx, "write down what it is suspected of", err)
	}
	b.own.Tried = tried
	return run(ctx)
}

func (b *build) condemn(ctx context.Context, at eventstore.ProjectionEvent, suspicions int) next {
	step := b.stepTo(b.own.Position)
	step.Halt = &eventstore.ProjectionHalt{
		Event: at, Attempts: b.attempts(at.ID) + suspicions, Reason: crashedProcess, Error: b.own.Tried.Error, Since: b.rt.cfg.Now().UTC(),
	}
	if err := b.record(ctx, step); err != nil {
		return b.trouble(ctx, "write down that it crashed the process", err)
	}
	b.own.Halt, b.own.Tried, b.suspect = step.Halt, nil, false
	b.rt.cfg.Observer.Halted(b.name(), *step.Halt)
	return next{}
}
