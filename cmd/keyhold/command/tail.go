package command

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

// tail writes the newest events, then those that come, until ctx is done.
func (r *run) tail(ctx context.Context, d *admin.Desk, q admin.EventQuery, last int, every time.Duration) error {
	if last < 0 || last > eventstore.MaxRecent {
		return misused("Read more of them with "+r.typed()+" events cat.", "%s: -n is %d, it can be 0 to %d", r.command.CommandPath(), last, eventstore.MaxRecent)
	}
	if every <= 0 {
		return misused("Give a duration such as --every 5s.", "%s: --every is %v", r.command.CommandPath(), every)
	}
	ticks, stop := r.env.tick(every)
	defer stop()
	q.Newest, q.Limit = true, 1000
	for {
		page, err := d.Events(ctx, q)
		if ctx.Err() != nil {
			return nil // that is how a tail ends
		}
		if err != nil {
			return err
		}
		items := page.Items
		if q.Cursor == "" {
			items = items[max(len(items)-last, 0):]
		}
		if err := r.each(items); err != nil {
			return err
		}
		q.Cursor = page.Next
		if len(page.Items) == q.Limit {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}
