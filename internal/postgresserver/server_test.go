package postgresserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/netns"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, url string) (n int) {
	t.Helper()
	if err := connect(t, url).QueryRow(t.Context(), `SELECT count(*) FROM a`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDatabasesAreFastAndEmpty(t *testing.T) {
	t.Parallel()
	postgresserver.Database(t) // the first starts the server
	best := time.Hour
	for range 3 {
		began := time.Now()
		url := postgresserver.Database(t)
		best = min(best, time.Since(began))
		exec(t, url, `CREATE TABLE a (n int)`) // refused where it is already
	}
	if t.Logf("best of 3: %v", best); best > 2*time.Second {
		t.Errorf("a database took %v, want at most 2 s", best)
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("test", func(t *testing.T) {
		url = postgresserver.Database(t)
		c, err := pgx.Connect(t.Context(), url) // left open by the test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { t.Cleanup(func() { c.Close(context.Background()) }) })
	})
	var fault *pgconn.PgError
	if _, err := pgx.Connect(t.Context(), url); !errors.As(err, &fault) || fault.Code != "3D000" {
		t.Errorf("connecting gave %v, want 3D000: it does not exist", err)
	}
}

func TestKilledServerKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := postgresserver.Run(t, postgresserver.Options{Fsync: true})
	url := s.Database(t)
	exec(t, url, `CREATE TABLE a AS SELECT 1 AS n`)
	c := connect(t, url)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, url); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	if err := s.Restart(t.Context()); err != nil { // while it runs
		t.Fatal(err)
	}
	c = connect(t, url)
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	var fault *pgconn.PgError
	if _, err := c.Exec(t.Context(), `SELECT 1`); !errors.As(err, &fault) || fault.Code != "57P01" {
		t.Errorf("a session was told %v, want 57P01: admin shutdown", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fsync string
	if err := connect(t, url).QueryRow(t.Context(), `SHOW fsync`).Scan(&fsync); err != nil || fsync != "on" {
		t.Errorf("fsync is %q, %v", fsync, err)
	}
}

func TestFreezesWithItsSessions(t *testing.T) {
	t.Parallel()
	s := postgresserver.Run(t, postgresserver.Options{Config: []string{"max_connections=7"}})
	c := connect(t, s.URL("postgres"))
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Exec(ctx, `SELECT 1`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen session gave %v, want a timeout", err)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	var most string
	if err := connect(t, s.URL("postgres")).QueryRow(t.Context(), `SHOW max_connections`).Scan(&most); err != nil || most != "7" {
		t.Errorf("max_connections is %q, %v, want 7", most, err)
	}
}

// TestListensForOthers has a host of its own ask a server that runs elsewhere.
func TestListensForOthers(t *testing.T) {
	t.Parallel()
	n := netns.Run(t, "data")
	h, err := n.Host()
	if err != nil {
		t.Fatal(err)
	}
	var s *postgresserver.Server
	if err := n.Within(func() (err error) {
		s, err = postgresserver.Start(t.Context(), postgresserver.Options{Listen: n.Addr("data").String()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	_, port, _ := net.SplitHostPort(s.Addr())
	config, err := pgx.ParseConfig(postgresserver.URL(net.JoinHostPort(n.Addr("data").String(), port), "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = h.Within(func() (err error) { c, err = (&net.Dialer{}).DialContext(ctx, network, addr); return err })
		return c, err
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("from another host: %v", err)
	}
	c.Close(t.Context())
	if err := s.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

func TestStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary := postgresserver.Run(t, postgresserver.Options{})
	name, err := primary.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	standby := postgresserver.Run(t, postgresserver.Options{StandbyOf: primary})
	if err := primary.Exec(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = '*'`); err != nil { // a commit returns when the standby has it
		t.Fatal(err)
	}
	if err := primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, primary.URL(name), `CREATE TABLE a AS SELECT 1 AS n`)
	var fault *pgconn.PgError
	if _, err := connect(t, standby.URL(name)).Exec(t.Context(), `CREATE TABLE b (n int)`); !errors.As(err, &fault) || fault.Code != "25006" {
		t.Errorf("a standby that is written to gave %v, want 25006: read only", err)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, standby.URL(name), `INSERT INTO a VALUES (2)`)
	if n := count(t, standby.URL(name)); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	if err := standby.Promote(t.Context()); err == nil {
		t.Error("a primary was promoted")
	}
}

func TestSaysWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	_, err := postgresserver.Start(t.Context(), postgresserver.Options{Config: []string{"no_such_setting=1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("a setting that does not exist gave %v", err)
	}
}

func TestMissingServer(t *testing.T) {
	defer postgresserver.SetDebian(filepath.Join(t.TempDir(), "*", "initdb"))()
	t.Setenv("KEYHOLD_POSTGRES_BIN", "")
	t.Setenv("PATH", t.TempDir())
	run := func() *child.Verdict {
		return child.Judge(t, func(tb child.TB) { postgresserver.Run(tb, postgresserver.Options{}) })
	}
	t.Setenv("CI", "")
	if s := run(); !s.Skipped {
		t.Error("without a server the test was not skipped")
	}
	t.Setenv("CI", "true")
	if s := run(); !s.Failed {
		t.Error("without a server the test did not fail in CI")
	}
	t.Setenv("CI", "")
	t.Setenv("KEYHOLD_POSTGRES_BIN", filepath.Dir(os.Args[0]))
	if s := run(); !s.Failed {
		t.Error("a folder without the programs was not refused")
	}
}
