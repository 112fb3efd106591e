package postgres

import (
	"context"
	"errors"

	"github.com/keyhold/keyhold/eventstore"
)

// access is how a database is reached: by a process that has the store started, or beside that.
type access interface {
	// read runs f with connections that read.
	read(ctx context.Context, f func(*readers) error) error
	// change runs f in a transaction (READ COMMITTED), fenced, beside others. f is called again after a rollback where the database broke a
	// deadlock. What f notes in counts is written at the end.
	change(ctx context.Context, who string, f func(*connection) error) error
	// changeAlone does the same while nobody else writes anything of Keyhold's.
	changeAlone(ctx context.Context, who string, f func(*connection) error) error
}

// operations is an [eventstore.Operations] by whatever access there is.
type operations struct{ access }

// isOwn reports whether err is one that the store itself found, so that it is to be told without more words.
func isOwn(err error) bool {
	return errors.Is(err, eventstore.ErrStateMoved) || errors.Is(err, eventstore.ErrNotFound) || errors.Is(err, eventstore.ErrInUse)
}
