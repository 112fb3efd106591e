package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

// mute is the address of a host that answers nothing.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// A host that swallows what is sent to it is no fault of the event in hand, although all that is seen of it is that a time is over.
func TestAHostThatDoesNotAnswerIsTrouble(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	u, err := url.Parse(d.config.URL)
	d.must(err)
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	d.config.URL = u.String()
	d.store = New(d.config)
	away, nowhere := make(chan struct{}), mute(t)
	d.store.dial = func(dial pgconn.DialFunc) pgconn.DialFunc {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-away:
				addr = nowhere
			default:
			}
			return dial(ctx, network, addr)
		}
	}
	d.begin(d.store, eventstore.StartOptions{})
	d.store.opened.Load().writers.Reset()
	close(away)
	if _, err = d.store.Begin("test").SQL(d.Context()); !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "see whether a server runs there") {
		t.Errorf("SQL: %v", err)
	}
	c := events("a", 1)
	if _, err = d.store.Begin("test").Commit(d.Context(), c); !errors.Is(err, eventstore.ErrTrouble) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("commit: %v", err)
	}
}

// Whoever waits for a connection that others have is told so when he gives up.
func TestAWaitForAConnectionSaysThatAllAreInUse(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	d.config.MaxConns = 1
	d.start()
	holder, _ := d.open()
	defer holder.Rollback()
	ctx, cancel := context.WithCancelCause(d.Context())
	cancel(context.DeadlineExceeded)
	for what, wait := range map[string]func() error{
		"SQL":    func() error { _, err := d.store.Begin("test").SQL(ctx); return err },
		"commit": func() error { _, err := d.store.Begin("test").Commit(ctx, events("a", 1)); return err },
		"act":    func() error { return d.store.change(ctx, "test", func(*connection) error { return nil }) },
	} {
		err := wait()
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, eventstore.ErrTrouble) ||
			!strings.Contains(err.Error(), "none of the 1 connections came free: see what holds them for so long, or set MaxConns higher") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Where the store ends the wait, more connections would not have helped.
func TestAWaitForAConnectionThatTheStoreEndsIsNotForWantOfThem(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	d.config.MaxConns = 1
	d.start()
	o := d.store.opened.Load()
	held, err := o.writers.Acquire(d.Context())
	d.must(err)
	defer held.Release()
	givenUp, giveUp := context.WithCancel(d.Context())
	for name, c := range map[string]struct {
		ctx context.Context
		end func()
	}{
		"the place is lost":     {d.Context(), func() { o.lost(context.DeadlineExceeded) }},
		"the place is gone":     {d.Context(), func() { o.lost(context.DeadlineExceeded); o.over(eventstore.ErrStale) }},
		"the store is stopped":  {d.Context(), func() { o.end(eventstore.ErrClosed) }},
		"nobody wants it still": {givenUp, giveUp},
	} {
		o.begin()
		waits := make(chan error, 3)
		for _, wait := range []func() error{
			func() error { _, err := d.store.Begin("test").SQL(c.ctx); return err },
			func() error { _, err := d.store.Begin("test").Commit(c.ctx, events("a", 1)); return err },
			func() error { return d.store.change(c.ctx, "test", func(*connection) error { return nil }) },
		} {
			go func() { waits <- wait() }()
		}
		for range 3 {
			c.end()
			if err := <-waits; err == nil || strings.Contains(err.Error(), "came free") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	o.begin()
}

// Who is not let in is told what to do, at the start of a program and by the operator's command.
func TestWhoIsNotLetInIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	server := postgresserver.Run(t, postgresserver.Options{
		HBA:    []string{"host all app all scram-sha-256", "hostnossl all secure all reject", "host all few all trust"},
		Config: []string{"max_connections=10", "superuser_reserved_connections=2"},
	})
	for _, sql := range []string{"CREATE ROLE app LOGIN PASSWORD 'secret'", "CREATE ROLE secure LOGIN", "CREATE ROLE few LOGIN CONNECTION LIMIT 1", "CREATE ROLE nologin", "CREATE ROLE outside LOGIN"} {
		if err := server.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	db, err := server.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed := "REVOKE CONNECT ON DATABASE " + db + " FROM PUBLIC; GRANT CONNECT ON DATABASE " + db + " TO app, few, secure, nologin"
	if err := server.Exec(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	at := func(user, addr, database, query string) string {
		return "postgres://" + user + "@" + addr + "/" + database + "?connect_timeout=1&" + query
	}
	few := at("few", server.Addr(), db, "sslmode=disable")
	held, err := pgx.Connect(t.Context(), few)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close(context.WithoutCancel(t.Context()))
	for name, c := range map[string]struct{ url, want string }{
		"wrong password":    {at("app:guess", server.Addr(), db, "sslmode=disable"), "see whether user and password are those of this server"},
		"no such role":      {at("nobody", server.Addr(), db, "sslmode=disable"), "see whether this user is there and may log in"},
		"may not log in":    {at("nologin", server.Addr(), db, "sslmode=disable"), "see whether this user is there and may log in"},
		"may not connect":   {at("outside", server.Addr(), db, "sslmode=disable"), "GRANT CONNECT ON DATABASE to the role"},
		"TLS is required":   {at("secure", server.Addr(), db, "sslmode=disable"), "where they ask for TLS, put sslmode=require or sslmode=verify-full into the URL"},
		"TLS is not there":  {at("keyhold", server.Addr(), db, "sslmode=require"), "the server has no TLS: turn it on there"},
		"no such database":  {at("keyhold", server.Addr(), "not_there", "sslmode=disable"), "create the database, or name another one in the URL"},
		"no connection":     {few, "the server, or the role, has no connection left"},
		"nobody listens":    {at("keyhold", "127.0.0.1:1", db, "sslmode=disable"), "see whether a server runs there"},
		"no such host":      {at("keyhold", "no-such-host.invalid:5432", db, "sslmode=disable"), "see whether a server runs there"},
		"nothing answers":   {at("keyhold", mute(t), db, "sslmode=disable"), "see whether a server runs there"},
		"may make no table": {at("app:secret", server.Addr(), db, "sslmode=disable"), "GRANT USAGE, CREATE ON that SCHEMA to it, or set Config.Schema"},
	} {
		_, err := Open(c.url).Start(t.Context(), eventstore.StartOptions{Node: "shop"})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "store ") {
			t.Errorf("%s: start gives %v, want something about %q", name, err, c.want)
		}
		if name == "may make no table" { // to an operator it is no store
			continue
		}
		if _, err := Attach(t.Context(), c.url); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: attach gives %v, want something about %q", name, err, c.want)
		}
	}
	schema := Config{URL: at("app:secret", server.Addr(), db, "sslmode=disable"), Schema: "shop"}
	if _, err := New(schema).Start(t.Context(), eventstore.StartOptions{Node: "shop"}); err == nil || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE to the role") {
		t.Errorf("a schema that may not be made: %v", err)
	}
}

func TestWhatToDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{&tls.CertificateVerificationError{Err: errors.New("x509: certificate signed by unknown authority")}, "sslrootcert"},
		{pgconn.ErrStandbyConnection, "name the primary"},
		{&pgconn.PgError{Code: "57P03"}, "try again"},
		{&pgconn.PgError{Code: "22000"}, ""},
		{errors.New("anything else"), ""},
	} {
		if got := whatToDo(c.err); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
