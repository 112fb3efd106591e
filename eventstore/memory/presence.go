package memory

import (
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Present implements [eventstore.Presence].
func (s *Store) Present(ctx context.Context) (all []eventstore.Owner, err error) {
	err = s.read(ctx, func(d *data) { all = slices.Clone(d.starts) })
	return all, err
}

// Say implements [eventstore.Presence].
func (s *Store) Say(ctx context.Context, trouble string, since time.Time) error {
	return s.change(ctx, func(d *data) error {
		for i := range d.starts {
			if o := &d.starts[i]; o.Generation == s.generation {
				o.Trouble, o.Since = trouble, since.UTC().Truncate(time.Millisecond)
				if trouble == "" {
					o.Since = time.Time{}
				}
			}
		}
		return nil
	})
}

// Describe implements [eventstore.Presence].
func (s *Store) Describe(ctx context.Context, about string) error {
	return s.change(ctx, func(d *data) error {
		for i := range d.starts {
			if o := &d.starts[i]; o.Generation == s.generation {
				o.About = about
			}
		}
		return nil
	})
}
