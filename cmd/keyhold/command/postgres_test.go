package command

import (
	"context"
	"crypto/rand"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

// template is a database with the store of the shop, of which each test has a copy.
var template struct {
	sync.Once
	name string
	err  error
}

// setupPostgres gives an operator a copy of the shop's store in a PostgreSQL database.
func setupPostgres(t *testing.T) *desktop {
	t.Helper()
	server := postgresserver.Shared(t)
	template.Do(func() {
		ctx := context.WithoutCancel(t.Context())
		if template.name, template.err = server.Create(ctx); template.err == nil {
			template.err = makeShop(ctx, postgres.Open(server.URL(template.name)))
		}
	})
	if template.err != nil {
		t.Fatal(template.err)
	}
	d := setupEmpty(t)
	copied := "shop_" + strings.ToLower(rand.Text())
	if err := server.Exec(t.Context(), "CREATE DATABASE "+copied+" TEMPLATE "+template.name+" STRATEGY FILE_COPY"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Drop(context.WithoutCancel(t.Context()), copied) })
	d.db = server.URL(copied)
	d.vars["KEYHOLD_DB"] = d.db
	return d
}

var cursor = regexp.MustCompile(`--after [A-Za-z0-9_=-]{10,}`)

// What an operator sees does not depend on where the store is.
func TestCommandsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	shared := setupPostgres(t) // by those who only look
	for name, lines := range sessions {
		if name == "migrate" { // the steps are others
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := shared
			if !slices.Contains([]string{"status", "partitions-ls", "partitions-show", "why", "dlq-ls", "dlq-show", "handlers-ls", "events-cat", "mistakes"}, name) {
				d = setupPostgres(t)
			}
			want, err := os.ReadFile("testdata/commands/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			const same = "--after PLACE" // places are opaque
			got := cursor.ReplaceAllString(d.runAll(t, lines), same)
			if diff := cmp.Diff(cursor.ReplaceAllString(string(want), same), got); diff != "" {
				t.Errorf("it is not what SQLite's operator sees (-SQLite +PostgreSQL):\n%s", diff)
			}
		})
	}
}

func TestMigrateOnPostgreSQL(t *testing.T) {
	t.Parallel()
	d := setupEmpty(t)
	d.db = postgresserver.Database(t)
	d.vars["KEYHOLD_DB"] = d.db
	for _, line := range []string{"migrate up", "migrate up --dry-run", "migrate status"} {
		if r := d.run(t, words(line)...); r.code != ExitNotFound || !strings.Contains(r.err, "there is no Keyhold store in ") {
			t.Errorf("%s of an empty database: %+v", line, r)
		}
	}
	if r := d.run(t, "status"); r.code != ExitError || !strings.Contains(r.err, "is no Keyhold store") {
		t.Errorf("status of an empty database: %+v", r)
	}
	if r := d.run(t, "migrate", "up", "--create"); r.code != ExitOK || !strings.Contains(r.out, "Taken:") {
		t.Errorf("up: %+v", r)
	}
	if r := d.run(t, "migrate", "status"); r.code != ExitOK || !strings.Contains(r.out, "nothing to do") {
		t.Errorf("status: %+v", r)
	}
	store := postgres.Open(d.db)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{NoMigrate: true}); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A URL may have a password, which is nobody else's business.
func TestAPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	d := setupPostgres(t)
	secret := strings.Replace(d.db, "@", ":s3cr3t@", 1)
	d.vars["KEYHOLD_DB"] = ""
	if r := d.run(t, "status", "--db", secret); r.code != ExitDegraded || !strings.Contains(r.out, "--db 'postgres://keyhold:xxxxx@") || strings.Contains(r.out+r.err, "s3cr3t") {
		t.Errorf("%+v", r)
	}
	for place, want := range map[string]string{
		"shop.db":                               "shop.db",
		"postgres://u:s3cr3t@h/db":              "postgres://u:xxxxx@h/db",
		"postgresql://u@h/db?password=s3cr3t":   "postgresql://u@h/db?password=xxxxx",
		"postgres://u:s3cr3t@h:not a port/db":   "postgres://...",
		"postgres://u@h/db?search_path=keyhold": "postgres://u@h/db?search_path=keyhold",
	} {
		if got := redacted(place); got != want {
			t.Errorf("%s is printed as %s", place, got)
		}
	}
	for _, line := range []string{"status", "migrate up", "migrate status"} {
		gone := strings.Replace(secret, "/shop_", "/gone_", 1)
		if r := d.run(t, append(words(line), "--db", gone)...); r.code != ExitError || !strings.Contains(r.err, "does not exist") || strings.Contains(r.err, "s3cr3t") {
			t.Errorf("%s of a database that is not there: %+v", line, r)
		}
		if r := d.run(t, append(words(line), "--db", "postgres://u:s3cr3t@h:not a port/db")...); r.code != ExitError || strings.Contains(r.err, "s3cr3t") {
			t.Errorf("%s of what is no URL: %+v", line, r)
		}
	}
}
