package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Present implements [eventstore.Presence]: it is this process alone.
func (s *Store) Present(ctx context.Context) (all []eventstore.Owner, err error) {
	err = s.read(ctx, func(r *readers) error {
		owner, err := s.holder()
		if err != nil {
			return err
		}
		return r.snapshot(ctx, func(q queryer) error {
			var trouble, about string
			var since int64
			_, err := get(ctx, q, `SELECT trouble, since, about FROM keyhold_store`, nil, &trouble, &since, &about)
			tell(owner, owner.Generation, trouble, since, about)
			all = []eventstore.Owner{*owner}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look who has the store open: %w", err)
	}
	return all, nil
}

// tell fills in what a row says of an owner, which signed elsewhere.
func tell(o *eventstore.Owner, g event.Generation, trouble string, since int64, about string) {
	if o.Generation, o.Trouble, o.About = g, trouble, about; trouble != "" {
		o.Since = fromMillis(since)
	}
}

// Say implements [eventstore.Presence].
func (s *Store) Say(ctx context.Context, trouble string, since time.Time) error {
	err := s.change(ctx, "say", func(c *connection) error {
		_, err := c.exec(`UPDATE keyhold_store SET trouble = ?, since = ?`, trouble, millis(since))
		return err
	})
	if err != nil {
		return fmt.Errorf("say what this process is kept from: %w", err)
	}
	return nil
}

// Describe implements [eventstore.Presence].
func (s *Store) Describe(ctx context.Context, about string) error {
	err := s.change(ctx, "describe", func(c *connection) error {
		_, err := c.exec(`UPDATE keyhold_store SET about = ?`, about)
		return err
	})
	if err != nil {
		return fmt.Errorf("say what this process is: %w", err)
	}
	return nil
}
