package sqlite

import (
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
)

// trouble makes an error one of kind [eventstore.ErrTrouble] where SQLite's code says that it is not the doing of whoever got it.
// SQLITE_LOCKED is: it tells of a conflict between statements of one connection.
func trouble(err error) error {
	if errors.Is(err, eventstore.ErrTrouble) || errors.Is(err, eventstore.ErrUnknownCommit) {
		return err
	}
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PROTOCOL:
		return fmt.Errorf("%w: %w", eventstore.ErrTrouble, err)
	}
	return err
}
