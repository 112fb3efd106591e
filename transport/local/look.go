package local

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
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
func (t *Transport) look(lanes eventstore.Lanes, node transport.Node) func(context.Context) {
	return func(ctx context.Context) {
		t.routes.Store(&routes{subscribers: node.Subscribers(), wake: node.Wake})
		defer t.routes.Store(nil)
		for {
			lookUntilDone(ctx, lanes, node)
			select {
			case <-t.wanted:
			case <-ctx.Done():
				return
			}
		}
	}
}

// lookUntilDone looks through everything once, again from the beginning after an error.
func lookUntilDone(ctx context.Context, lanes eventstore.Lanes, node transport.Node) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := wakeUnpassed(ctx, lanes, node)
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

func wakeUnpassed(ctx context.Context, lanes eventstore.Lanes, node transport.Node) error {
	for work, err := range storelane.Unpassed(ctx, lanes, node.Subscriptions) {
		if err != nil {
			return err
		}
		node.Wake(work.Unit)
	}
	return nil
}
