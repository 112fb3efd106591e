package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/eventstore"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("exec: %w", &pgconn.PgError{Code: code, Severity: "ERROR"}) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{state("40001"), true}, {state("40P01"), true}, {state("57P01"), true}, {state("57P03"), true}, {state("25006"), true}, {state("25P03"), true},
		{state("53100"), true}, {state("53300"), true}, {state("58030"), true}, {state("08006"), true}, {state("55P03"), true}, {state("57014"), true},
		{state("23505"), false}, {state("42601"), false}, {state("22P02"), false}, {state("25P02"), false}, {state("P0001"), false},
		{io.ErrUnexpectedEOF, true}, {net.ErrClosed, true}, {pgconn.ErrConnClosed, true}, {&net.OpError{Op: "read", Err: errors.New("reset")}, true},
		{context.Canceled, false}, {context.DeadlineExceeded, false}, {errors.New("anything else"), false},
	} {
		if got := errors.Is(trouble(c.err), eventstore.ErrTrouble); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
	unknown := fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, io.EOF)
	if errors.Is(trouble(unknown), eventstore.ErrTrouble) {
		t.Error("a commit whose outcome is not known is told as one that did not happen")
	}
	if !errors.Is(trouble(state(idleInTransaction)), ErrIdle) {
		t.Error("what was idle for too long is not told so")
	}
}

func TestIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&pgconn.PgError{Code: "23505", Severity: "ERREUR", SeverityUnlocalized: "ERROR"}, true},
		{&pgconn.PgError{Code: "40001", Severity: "ERROR"}, true},
		{&pgconn.PgError{Code: "57P01", Severity: "FATAL", SeverityUnlocalized: "FATAL"}, false},
		{errRolledBack, true},
		{io.ErrUnexpectedEOF, false}, {context.DeadlineExceeded, false},
	} {
		if got := isRefused(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
