package command

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// ownerOf names the variable that makes the test program another process, which has a store open until its input ends.
const ownerOf = "KEYHOLD_TEST_OWNER_OF"

func own(path string) int {
	ctx := context.Background()
	store := sqlite.Open(path)
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "shop@test"}); err != nil {
		fmt.Println(err)
		return 1
	}
	registered, err := store.LoadRegistry(ctx)
	if err == nil {
		err = store.SaveRegistry(ctx, registered, nil) // as a program does that has these handlers
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
	if err := store.Stop(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// owned has another process open the store until the test ends, and gives its id.
func (d *desktop) owned(t *testing.T) int {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program)
	child.Env = append(os.Environ(), ownerOf+"="+d.db)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends by that
		if err := child.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	return child.Process.Pid
}

func TestBesideTheProcessThatHasTheStoreOpen(t *testing.T) {
	t.Parallel()
	d := setup(t)
	owner := fmt.Sprintf("process %d (shop@test)", d.owned(t))

	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"status", ExitDegraded, owner + " has the store open"},
		{"why order client-4", ExitOK, owner},
		{"partitions ls shipping --status halted", ExitOK, "client-7"},
		{"events cat order client-4", ExitOK, "o-4-4"},
		{"partitions retry shipping client-4 --expect 2", ExitOK, "Taken up within half a second, by " + owner},
		{"partitions retry shipping client-4 --expect 2", ExitMoved, "it is not stopped at an event, not at #2"},
		{"handlers pause clients --reason deploy", ExitOK, owner},
		{"dlq replay shipping --all --yes", ExitOK, "at work  " + owner},
		{"handlers rename clients customers --reason naming --yes", ExitMoved, "in use"},
		{"handlers rm clients --reason naming --yes", ExitMoved, "in use"},
		{"handlers reset clients --from oldest --reason naming --yes", ExitMoved, "in use"},
		{"migrate status", ExitOK, "nothing to do"},
		{"audit", ExitOK, "deploy"},
	} {
		r := d.run(t, words(c.line)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", c.line, r.code, c.code, c.says, r.out, r.err)
		}
		if c.code == ExitMoved && !strings.HasPrefix(r.err, "error: ") {
			t.Errorf("%s: the error stream begins %q", c.line, r.err)
		}
	}
}

// An older store is migrated when nobody has it, and refused while somebody has.
func TestMigrateUpNeedsTheStoreForItself(t *testing.T) {
	t.Parallel()
	d := setupEmpty(t)
	if r := d.run(t, "migrate", "up"); r.code != ExitNotFound || !strings.Contains(r.err, "there is no file") {
		t.Fatalf("%+v", r)
	}
	if r := d.run(t, "migrate", "up", "--create", "--dry-run", "--sql"); r.code != ExitOK || !strings.Contains(r.out, "CREATE TABLE keyhold_store") {
		t.Fatalf("%+v", r)
	}
	if _, err := os.Stat(d.db); !os.IsNotExist(err) {
		t.Fatalf("a dry run made the file: %v", err)
	}
	if r := d.run(t, "migrate", "up", "--create"); r.code != ExitOK || !strings.Contains(r.out, "0001_layout.sql") {
		t.Fatalf("%+v", r)
	}
	if r := d.run(t, "status"); r.code != ExitOK || !strings.Contains(r.out, "No handlers are registered") {
		t.Fatalf("%+v", r)
	}
	older(t, d.db)
	if r := d.run(t, "status"); r.code != ExitMoved || !strings.Contains(r.err, "keyhold migrate up") {
		t.Fatalf("%+v", r)
	}
	if r := d.run(t, "migrate", "status", "-o", "json"); r.code != ExitOK || !strings.Contains(r.out, `"pending": [`) {
		t.Fatalf("%+v", r)
	}
}

// older takes the last step of a store back, as far as its format is noted.
func older(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`DELETE FROM keyhold_format WHERE number = (SELECT max(number) FROM keyhold_format)`); err != nil {
		t.Fatal(err)
	}
}
