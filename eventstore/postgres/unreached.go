package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/eventstore"
)

// isUnmade reports whether an error is that of a connection that could not be made, for another reason than that nobody wants it any more. That its time was over is the time of
// the attempt, not of whoever waits for it.
func isUnmade(err error) bool {
	_, is := errors.AsType[*pgconn.ConnectError](err)
	return is && !errors.Is(err, context.Canceled)
}

const seeServer = ": see whether a server runs there and lets this process in, and whether host and port are right"

// toDo by the SQLSTATE with which a server lets nobody in.
var toDo = map[string]string{
	"28P01": ": see whether user and password are those of this server; what the URL leaves out comes from PGUSER, PGPASSWORD and the password file",
	"28000": ": see whether this user is there and may log in, and which lines of pg_hba.conf are for it; where they ask for TLS, put sslmode=require or sslmode=verify-full into the URL",
	"3D000": ": create the database, or name another one in the URL",
	"42501": ": GRANT CONNECT ON DATABASE to the role",
	"53300": ": the server, or the role, has no connection left. A process takes MaxConns of them, Readers twice, and four more: set those lower, max_connections or CONNECTION LIMIT higher, or put a pooler in session mode between",
	"57P03": ": the server starts or stops, try again",
}

// whatToDo says what to do about a connection that could not be made, behind the error; "" where nothing is known that the error does not say.
func whatToDo(err error) string {
	if state := code(err); state != "" {
		return toDo[state]
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return ": the certificate of the server must be for the host that the URL names, and signed by what sslrootcert in the URL has"
	}
	if errors.Is(err, pgconn.ErrStandbyConnection) {
		return ": name the primary in the URL, which may have several hosts"
	}
	if strings.Contains(err.Error(), "server refused TLS connection") { // it is of no type
		return ": the server has no TLS: turn it on there (ssl = on), or put sslmode=disable into the URL where nobody can listen on the way"
	}
	var op *net.OpError
	if _, dns := errors.AsType[*net.DNSError](err); dns || errors.As(err, &op) && op.Op == "dial" || pgconn.Timeout(err) {
		return seeServer
	}
	return ""
}

// inUse says of a wait for a connection that took too long that others had all of them. Where it was somebody else who ended it, or the store, that is not why.
func inUse(ctx context.Context, pool *pgxpool.Pool, err error) error {
	s, why := pool.Stat(), context.Cause(ctx)
	if isUnmade(err) || s.AcquiredConns() < s.MaxConns() || why == nil || why == context.Canceled || isOwnEnd(why) {
		return err
	}
	return fmt.Errorf("none of the %d connections came free: see what holds them for so long, or set MaxConns higher: %w", s.MaxConns(), err)
}

// isOwnEnd reports whether the store itself has ended what was under way: it stops, or the process has no place on it.
func isOwnEnd(why error) bool {
	return errors.Is(why, eventstore.ErrClosed) || errors.Is(why, eventstore.ErrTrouble) || errors.Is(why, eventstore.ErrStale)
}
