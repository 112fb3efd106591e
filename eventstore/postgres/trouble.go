package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/eventstore"
)

// code is the SQLSTATE of an error that the server gave, "" where it gave none.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// trouble makes an error one of kind [eventstore.ErrTrouble] where it is not the doing of whoever got it. Nothing may have been committed: whoever sent a
// COMMIT asks [outcome] instead.
func trouble(err error) error {
	switch {
	case err == nil, errors.Is(err, eventstore.ErrTrouble), errors.Is(err, eventstore.ErrUnknownCommit), errors.Is(err, eventstore.ErrClosed):
		return err
	case isUnmade(err):
		return fmt.Errorf("%w: %w%s", eventstore.ErrTrouble, err, whatToDo(err))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case code(err) == idleInTransaction:
		return fmt.Errorf("%w: %w: %w", eventstore.ErrTrouble, ErrIdle, err)
	case isLost(err), isPassing(code(err)):
		return fmt.Errorf("%w: %w", eventstore.ErrTrouble, err)
	}
	return err
}

const (
	idleInTransaction   = "25P03"
	deadlockDetected    = "40P01"
	serializationFailed = "40001"
	uniqueViolated      = "23505"
	lockTimedOut        = "55P03"
)

// isPassing reports whether a SQLSTATE tells of something that passes, or that an administrator must end.
func isPassing(state string) bool {
	switch state {
	case deadlockDetected, serializationFailed,
		"25006", // read only: a standby, after a failover
		lockTimedOut,
		"57014",                                     // cancelled, by a statement timeout or a person
		"57P01", "57P02", "57P03", "57P04", "57P05", // shut down, crashed, starting up, database dropped, idle
		"XX001", "XX002": // corrupted data, index
		return true
	}
	switch {
	case len(state) != 5:
		return false
	case state[:2] == "08", state[:2] == "53", state[:2] == "58": // connection; out of disk, memory, connections; input and output
		return true
	}
	return false
}

// isLost reports whether the connection broke, or could not be made.
func isLost(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) ||
		pgconn.SafeToRetry(err) || pgconn.Timeout(err)
}
