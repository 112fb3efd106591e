package sqlite

import (
	"context"
	"errors"

	"github.com/keyhold/keyhold/eventstore"
)

// access is how a database is reached: by the process that owns it, or beside that.
type access interface {
	// read runs f with connections that read.
	read(ctx context.Context, f func(*readers) error) error
	// change runs f in a transaction. f first checks and then writes, and may be called again after a rollback.
	change(ctx context.Context, who string, f func(*connection) error) error
	// holder tells which process has the store open now, nil when none has or it cannot be told.
	holder() (*eventstore.Owner, error)
}

// operations is an [eventstore.Operations] by whatever access there is.
type operations struct{ access }

var _ eventstore.Operations = operations{}

// isOwn reports whether err is one that the store itself found, so that it is to be told without more words.
func isOwn(err error) bool {
	return errors.Is(err, eventstore.ErrStateMoved) || errors.Is(err, eventstore.ErrNotFound) || errors.Is(err, eventstore.ErrInUse)
}
