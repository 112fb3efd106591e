package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// closing notes that the store was closed.
type closing struct {
	io.Closer
	closed int
}

func (c *closing) Close() error { c.closed++; return c.Closer.Close() }

// mounted runs a command line of an application that has the command below its own root.
func (d *desktop) mounted(t *testing.T, args ...string) (result, error) {
	t.Helper()
	root := &cobra.Command{Use: "orders", SilenceErrors: true}
	root.AddCommand(newCommand(d.options, d.env))
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	Report(&errs, err)
	return result{d.scrub(out.String()), d.scrub(errs.String()), ExitCode(err)}, err
}

func TestAnApplicationMountsTheCommandOverItsOwnStore(t *testing.T) {
	t.Parallel()
	d := setup(t)
	var c closing
	d.options = Options{Name: "admin", Open: func(ctx context.Context) (eventstore.Operations, io.Closer, error) {
		store, err := sqlite.Attach(ctx, d.db)
		c.Closer = store
		return store, &c, err
	}}

	r, _ := d.mounted(t, "admin", "status")
	if r.code != ExitDegraded || !strings.Contains(r.out, "    orders admin partitions ls --handler shipping --status halted\n") || r.err != "" {
		t.Errorf("commands that are offered: %+v", r)
	}
	if c.closed != 1 {
		t.Errorf("closed %d times", c.closed)
	}
	if r, _ := d.mounted(t, "admin", "status", "--db", "x"); r.code != ExitUsage || !strings.Contains(r.err, "unknown flag: --db") {
		t.Errorf("--db: %+v", r)
	}
	if r, _ := d.mounted(t, "admin", "migrate", "up"); r.code != ExitUsage || !strings.Contains(r.err, `orders admin has no command "migrate"`) {
		t.Errorf("migrate: %+v", r)
	}
	if r, err := d.mounted(t, "admin", "jobs", "show", "7"); r.code != ExitNotFound || !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("what the application gets: %+v, %v", r, err)
	}

	d.options.Migrations = &Migrations{
		Status: func(context.Context) (int, int, []eventstore.Migration, error) {
			return 1, 2, []eventstore.Migration{{Number: 2, Name: "two", SQL: "SELECT 2;\n"}}, nil
		},
		Up: func(context.Context) ([]eventstore.Migration, error) {
			return []eventstore.Migration{{Number: 2, Name: "two"}}, errors.New("the disk is full")
		},
	}
	if r, _ := d.mounted(t, "admin", "migrate", "status", "--sql"); r.code != ExitOK || !strings.Contains(r.out, "SELECT 2;") || !strings.Contains(r.out, "orders admin migrate up") {
		t.Errorf("%+v", r)
	}
	if r, _ := d.mounted(t, "admin", "migrate", "up"); r.code != ExitError || !strings.Contains(r.err, "1 step taken, then: the disk is full") {
		t.Errorf("%+v", r)
	}
	d.options.Migrations.Status = func(context.Context) (int, int, []eventstore.Migration, error) { return 3, 2, nil, nil }
	if r, _ := d.mounted(t, "admin", "migrate", "up"); r.code != ExitMoved || !strings.Contains(r.err, "this program knows up to 2") {
		t.Errorf("%+v", r)
	}
}

// The file of an application that names it is found without a word; one that is named is named again in what is offered.
func TestWhichStoreIsMeant(t *testing.T) {
	t.Parallel()
	d := setup(t)
	delete(d.vars, "KEYHOLD_DB")
	if r := d.run(t, "status"); r.code != ExitUsage || !strings.Contains(r.err, "no store was named\nName the SQLite file of the application, or the postgres:// URL of its database, with --db, or set KEYHOLD_DB.") {
		t.Errorf("no store: %+v", r)
	}
	if r := d.run(t, "status", "--db", d.db); !strings.Contains(r.out, "keyhold --db shop.db partitions ls --handler shipping") {
		t.Errorf("--db: %+v", r)
	}
	d.options.DB = d.db
	if r := d.run(t, "status"); r.code != ExitDegraded {
		t.Errorf("that of the application: %+v", r)
	}
	d.vars["KEYHOLD_DB"] = d.db + ".gone"
	if r := d.run(t, "status"); r.code != ExitNotFound || !strings.Contains(r.err, "there is no file shop.db.gone") {
		t.Errorf("one that is not there: %+v", r)
	}
	d.vars["KEYHOLD_DB"] = "redis://app:secret@host:6379"
	if r := d.run(t, "status"); r.code != ExitUsage || !strings.Contains(r.err, "begins with redis://") || strings.Contains(r.err, "secret") {
		t.Errorf("the broker: %+v", r)
	}
	d.vars["KEYHOLD_DB"] = t.TempDir()
	if r := d.run(t, "status"); r.code != ExitError || !strings.Contains(r.err, "is no file") {
		t.Errorf("a folder: %+v", r)
	}
}

func TestWhoActs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flag, variable, login, want string
	}{
		"--actor":           {"carl", "bob", "ada", "carl"},
		"the variable":      {"", "bob", "ada", "bob"},
		"the name at login": {"", "", "ada", "ada"},
	} {
		d := setup(t)
		d.vars["KEYHOLD_ACTOR"], d.env.login = c.variable, func() string { return c.login }
		if r := d.run(t, "handlers", "pause", "clients", "--actor", c.flag); !strings.Contains(r.out, "by "+c.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	d := setup(t)
	d.env.login = func() string { return "" }
	if r := d.run(t, "handlers", "pause", "clients"); r.code != ExitUsage || !strings.Contains(r.err, "nobody is named who acts") {
		t.Errorf("nobody: %+v", r)
	}
}
