package actors

import (
	"context"

	"github.com/keyhold/keyhold/eventstore"
)

// TxOpen reports whether ctx is that of a behavior, or of [Runtime.Do], whose own transaction is open: on a store with a single writer
// nobody gets another one before it ends.
func TxOpen(ctx context.Context) bool {
	a := attemptOf(ctx)
	return a != nil && a.inSQL()
}

// IsTx reports whether db was given by the Tx of a [UnitOfWork].
func IsTx(db eventstore.SQL) bool {
	_, ok := db.(lazySQL)
	return ok
}
