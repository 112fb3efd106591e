package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/eventstore"
)

// Config says where a store is and what it does at each start. URL is required.
type Config struct {
	// URL of the database, or the same in keyword form: "postgres://user@host:5432/orders", "host=/run/postgresql dbname=orders". What it
	// leaves out comes from the PG* variables of the environment. It must lead to PostgreSQL itself, or to a pooler in session mode: a
	// process holds its place by the lock of a session. Several hosts may be named; those that are not the primary are passed over.
	URL string
	// Schema has Keyhold's tables, and those of the application where it does not say another: it is all of the search_path. It is made where it
	// is not there. "" leaves the search_path of the user as it is: the schema is public as a rule. Several applications can have one database, each a schema of its own.
	Schema string
	// Setup runs at each Start, after Keyhold's own migrations, in a transaction of its own: the place to create or change
	// the tables of the application. One process does it at a time. A panic in it is an error of Start. May be nil.
	Setup func(ctx context.Context, db eventstore.SQL) error
	// MaxConns is how many units of work have the database at once, the others wait; 0 is the larger of 8 and twice the number of processors.
	MaxConns int
	// Readers is how many connections read at once, for Keyhold and again for [Store.Reader]; 0 is half of MaxConns.
	Readers int
	// TransactionTimeout is for how long a process may do nothing in a transaction that it has begun, before the database ends it: so what a frozen
	// process locked is free again. Where it was frozen in the middle of what it sends, other processes of the store end it, for which they must be of the same
	// user: one whose network takes longer than that for what a single statement carries (the data of all events of a commit) looks like that to them. What a behavior has
	// locked by SQL of its own stays locked where the process was frozen in the middle of one of these statements. Where units are leased it must be at most half of what a lease lasts. 0 is 7 seconds, or that half if it is less. A behavior that
	// needs longer between two of its statements gets an error of kind [ErrIdle].
	TransactionTimeout time.Duration
}

// ErrIdle: a unit of work did something else than SQL for so long that the database ended its transaction. It is of kind
// [eventstore.ErrTrouble]: nothing was committed.
var ErrIdle = errors.New("transaction was idle for too long: do the work that takes time before Tx(), not after")

// resolved is a config with nothing left open.
type resolved struct {
	Config
	pool *pgxpool.Config
	name string // of the database, for people
	own  sessions
	dial func(pgconn.DialFunc) pgconn.DialFunc // a seam for tests
}

// under gives the config where units are leased for so long.
func (c Config) under(lease time.Duration) (Config, error) {
	switch most := lease / 2; {
	case lease == 0:
	case c.TransactionTimeout == 0:
		c.TransactionTimeout = max(min(defaultTransactionTimeout, most), minTransactionTimeout)
	case c.TransactionTimeout > most:
		return c, fmt.Errorf("postgres: TransactionTimeout is %s, and a lease lasts %s: what a frozen node has locked would keep the next one waiting; set %s at most, or a longer TTL", c.TransactionTimeout, lease, most)
	}
	return c, nil
}

// resolve fills in what is left open, and says all that is wrong.
func (c Config) resolve() (*resolved, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("postgres: "+format, args...)) }
	if c.MaxConns < 0 {
		fault("MaxConns is %d, it cannot be negative", c.MaxConns)
	}
	if c.Readers < 0 {
		fault("Readers is %d, it cannot be negative", c.Readers)
	}
	if c.TransactionTimeout < 0 || 0 < c.TransactionTimeout && c.TransactionTimeout < minTransactionTimeout {
		fault("TransactionTimeout is %s, it must be %s at least", c.TransactionTimeout, minTransactionTimeout)
	}
	if strings.ContainsAny(c.Schema, "\"\x00,") || c.Schema != strings.TrimSpace(c.Schema) || strings.HasPrefix(c.Schema, "pg_") {
		fault("Schema %q cannot be the name of a schema", c.Schema)
	}
	if c.URL == "" {
		fault("URL is empty: name the database, such as postgres://user@host:5432/orders")
		return nil, errors.Join(faults...)
	}
	parsed, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		fault("URL: %w; write it as postgres://user@host:5432/orders, or host=... dbname=...", err)
		return nil, errors.Join(faults...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if c.MaxConns == 0 {
		c.MaxConns = max(8, 2*runtime.GOMAXPROCS(0))
	}
	if c.Readers == 0 {
		c.Readers = (c.MaxConns + 1) / 2
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = defaultTransactionTimeout
	}
	r := &resolved{Config: c, pool: parsed, name: parsed.ConnConfig.Database}
	if parsed.ConnConfig.Database == "" {
		r.name = parsed.ConnConfig.User
	}
	r.name += " on " + parsed.ConnConfig.Host
	if c.Schema != "" {
		r.name += ", schema " + c.Schema
	}
	return r, nil
}

const (
	defaultTransactionTimeout = 7 * time.Second
	minTransactionTimeout     = 100 * time.Millisecond
)
