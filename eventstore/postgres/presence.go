package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Present implements [eventstore.Presence].
func (s *Store) Present(ctx context.Context) (all []eventstore.Owner, err error) {
	err = s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			alive, err := living(ctx, q)
			all = owners(alive)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look who has the store open: %w", err)
	}
	return all, nil
}

// Say implements [eventstore.Presence].
func (s *Store) Say(ctx context.Context, trouble string, since time.Time) error {
	err := s.change(ctx, "say", func(c *connection) error {
		_, err := c.exec(`UPDATE keyhold_starts SET trouble = $2, since = $3 WHERE generation = $1`, s.generation(), words(trouble), millis(since))
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
		_, err := c.exec(`UPDATE keyhold_starts SET about = $2 WHERE generation = $1`, s.generation(), words(about))
		return err
	})
	if err != nil {
		return fmt.Errorf("say what this process is: %w", err)
	}
	return nil
}

// generation is that of the start; 0 when it is stopped.
func (s *Store) generation() int64 {
	if o := s.opened.Load(); o != nil {
		return int64(o.identity.StartGeneration)
	}
	return 0
}
