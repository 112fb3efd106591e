package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// errNotMade is an act that was given up while it waited for its turn to write.
var errNotMade = errors.New("nothing was changed")

// turns is a store whose acts tell when they wait: a program that holds a long transaction keeps everybody else from writing.
type turns struct {
	eventstore.Operations
	run *run
}

func (t turns) Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error) {
	return turn(ctx, t, func() (eventstore.ActRecord, error) { return t.Operations.Act(ctx, a) })
}

func (t turns) ActOnProjection(ctx context.Context, a eventstore.ProjectionAct) (eventstore.ActRecord, error) {
	return turn(ctx, t, func() (eventstore.ActRecord, error) { return t.Operations.ActOnProjection(ctx, a) })
}

func (t turns) StartJob(ctx context.Context, j eventstore.Job) (eventstore.Job, error) {
	return turn(ctx, t, func() (eventstore.Job, error) { return t.Operations.StartJob(ctx, j) })
}

func (t turns) ActOnJob(ctx context.Context, id int64, kind eventstore.ActKind, actor, reason string) (eventstore.Job, error) {
	return turn(ctx, t, func() (eventstore.Job, error) { return t.Operations.ActOnJob(ctx, id, kind, actor, reason) })
}

// turn acts, and says after a second that it is still waiting.
func turn[T any](ctx context.Context, t turns, act func() (T, error)) (T, error) {
	ticks, stop := t.run.env.tick(time.Second)
	defer stop()
	var telling lifecycle.Loop
	err := telling.Start(ctx, func(looking context.Context) {
		select {
		case <-ticks:
			t.tell(looking)
		case <-looking.Done():
		}
	})
	if err != nil {
		var none T
		return none, err
	}
	v, err := act()
	if stopped := telling.Stop(context.WithoutCancel(ctx)); stopped != nil {
		err = errors.Join(err, stopped)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, eventstore.ErrUnknownCommit) {
		err = fmt.Errorf("%w: %w", errNotMade, err)
	}
	return v, err
}

func (t turns) tell(ctx context.Context) {
	who := "another program"
	if o, err := t.Overview(ctx); err == nil && o.Owner != nil {
		who = "the program that has the store open, " + clean((&admin.Owner{PID: o.Owner.PID, Node: o.Owner.Node}).String()) + ","
	}
	if ctx.Err() == nil {
		fmt.Fprintf(t.run.err, "waiting for a turn to write: %s is in a transaction; interrupt to give up, nothing is changed then\n", who)
	}
}
