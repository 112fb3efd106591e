package postgres

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// session is how connections are made: with timeouts on both sides, so that neither a process that is frozen nor a host that is gone holds a lock
// for long, and a server that is not the primary is passed over.
func (r *resolved) session(readOnly bool) *pgx.ConnConfig {
	c := r.pool.ConnConfig.Copy()
	set := func(name, value string) {
		if _, given := c.RuntimeParams[name]; !given {
			c.RuntimeParams[name] = value
		}
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	set("application_name", "keyhold")
	set("tcp_keepalives_idle", "5")
	set("tcp_keepalives_interval", "2")
	set("tcp_keepalives_count", "3")
	set("tcp_user_timeout", ms(r.TransactionTimeout))
	c.RuntimeParams["idle_in_transaction_session_timeout"] = ms(r.TransactionTimeout)
	c.RuntimeParams["idle_session_timeout"] = "0"
	c.RuntimeParams["default_transaction_isolation"] = "read committed" // what is locked in one statement is read in the next
	if readOnly {
		c.RuntimeParams["default_transaction_read_only"] = "on"
	}
	if r.Schema != "" {
		c.RuntimeParams["search_path"] = quote(r.Schema)
	}
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	c.DialFunc = dialer(r.TransactionTimeout).DialContext
	if r.dial != nil {
		c.DialFunc = r.dial(c.DialFunc)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// A statement that waits for a lock ends with its client. Not every system that a server runs on can see that: then it goes without.
		_, err := conn.Exec(ctx, `SET client_connection_check_interval = 1000`).ReadAll()
		if code(err) != "" {
			err = nil
		}
		return err
	}
	return c
}

// dialer makes connections that notice within some seconds that the other side is gone.
func dialer(patience time.Duration) *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { limitSilence(fd, patience) })
		},
	}
}

// connectTimeout is for how long a host may leave unanswered that somebody wants to connect.
const connectTimeout = 5 * time.Second

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// openPool makes a pool; it connects when somebody wants a connection.
func (r *resolved) openPool(ctx context.Context, size int, readOnly bool) (*pgxpool.Pool, error) {
	p := r.pool.Copy()
	p.ConnConfig = r.session(readOnly)
	p.MaxConns, p.MinConns, p.MinIdleConns = int32(size), 0, 0
	p.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		r.own.add(conn)
		return nil
	}
	p.BeforeClose = r.own.remove
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), p)
}

// openReader makes the pool for the application's own queries.
func (r *resolved) openReader() *sql.DB {
	db := stdlib.OpenDB(*r.session(true))
	db.SetMaxOpenConns(r.Readers)
	db.SetMaxIdleConns(r.Readers)
	return db
}

// connect makes one connection.
func (r *resolved) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, r.session(false))
}
