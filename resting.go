package keyhold

import (
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const (
	reviewBeats = 10  // heartbeats between two reviews
	reviewAsks  = 100 // units that the store is asked for at once
)

// review compares what the broker has noted of units that wait for a person with what the store knows, now and again and again. Nobody goes for a unit that is noted: so
// the note of one that waits no longer must not stay. It does where nobody took it back: no node ran when a person acted, a call was lost, or the one
// who halted it was slow to say so.
func (c *shared) review(ctx context.Context) {
	every := reviewBeats * c.beat
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := c.reviewOnce(ctx); err != nil && ctx.Err() == nil {
			rareLog(c.r.app.cfg.Logger, &c.once, "cannot compare which keys wait for a person: will try again", "compare what rests", err)
		}
		timer.Reset(every)
	}
}

func (c *shared) reviewOnce(ctx context.Context) error {
	for _, name := range c.r.names {
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			keys, next, err := c.broker.Resting(ctx, name, cursor)
			if err != nil {
				return err
			}
			cursor = next
			var asks []eventstore.Ask
			for _, key := range keys {
				u := event.Unit{Name: name, Key: key}
				if c.node.Placement().First(u) == c.broker.OwnerID() { // one node looks after each
					asks = append(asks, eventstore.Ask{Unit: u})
				}
			}
			for some := range slices.Chunk(asks, reviewAsks) {
				if err := c.reviewSome(ctx, some); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *shared) reviewSome(ctx context.Context, asks []eventstore.Ask) error {
	known, err := c.r.app.cfg.Store.Recover(ctx, asks)
	if err != nil {
		return err
	}
	for i := range known {
		if known[i].Halt == nil && known[i].Pause == nil {
			c.wake(asks[i].Unit)
		}
	}
	return nil
}
