package local

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/transport"
)

// Pauses after a look that failed; each is twice the one before.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// look is what runs between Start and Stop. The routes are there before the first look begins, so a commit is either told
// to Committed while they are there, or durable before that look.
func (t *Transport) look(backlog storelane.Backlog, node transport.Node) func(context.Context) {
	return func(ctx context.Context) {
		t.routes.Store(&routes{subscribers: node.Subscribers(), wake: node.Wake})
		defer t.routes.Store(nil)
		for {
			lookUntilDone(ctx, backlog, node)
			select {
			case <-t.wanted:
			case <-ctx.Done():
				return
			}
		}
	}
}

// lookUntilDone looks through everything once, again from the beginning after an error.
func lookUntilDone(ctx context.Context, backlog storelane.Backlog, node transport.Node) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := wakeAll(ctx, backlog, node)
		if err == nil || ctx.Err() != nil {
			return
		}
		if node.Report != nil {
			node.Report(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// wakeAll wakes the units that have something to do.
func wakeAll(ctx context.Context, backlog storelane.Backlog, node transport.Node) error {
	for unit, err := range storelane.Units(ctx, backlog, node.Subscriptions) {
		if err != nil {
			return err
		}
		node.Wake(unit)
	}
	return nil
}
