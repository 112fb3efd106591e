package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// fillIn names the variable that makes the test program one that fills a store.
const fillIn = "KEYHOLD_TEST_FILL"

func TestMain(m *testing.M) {
	if db := os.Getenv(fillIn); db != "" {
		if err := fill(context.Background(), db); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// build makes the program as a user has it: without the race detector that the tests run under. With "test", "-c" it is that of
// these tests.
func build(t *testing.T, how ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "keyhold")
	out, err := exec.CommandContext(t.Context(), "go", append(how, "-o", program, ".")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

const partitions = 100_000

// A store of 100,000 partitions answers before its operator has taken the hand from the key: whole processes are measured, the best of a few.
func TestAHundredThousandPartitionsAreLookedAtAtOnce(t *testing.T) {
	const most, tries = 200 * time.Millisecond, 12
	program := build(t, "build")
	db := filepath.Join(t.TempDir(), "big.db")
	filler := exec.CommandContext(t.Context(), build(t, "test", "-c"))
	filler.Env = append(os.Environ(), fillIn+"="+db)
	if out, err := filler.CombinedOutput(); err != nil {
		t.Fatalf("fill the store: %v\n%s", err, out)
	}

	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"status", command.ExitDegraded, fmt.Sprintf("%d,000", partitions/1000)},
		{"partitions ls", command.ExitOK, "client-100"},
		{"partitions ls shipping --status halted", command.ExitOK, "card declined"},
		{"partitions show shipping client-99999", command.ExitOK, "halted"},
		{"why order client-99999", command.ExitOK, "card declined"},
		{"version", command.ExitOK, "keyhold"},
	} {
		best := time.Hour
		for try := 0; try < tries && (try < 3 || best > most); try++ {
			began := time.Now()
			out, code := run(t, program, db, c.line)
			best = min(best, time.Since(began))
			if code != c.code || !strings.Contains(out, c.says) {
				t.Fatalf("%s: exit %d, want %d and %q:\n%s", c.line, code, c.code, c.says, out)
			}
		}
		t.Logf("%-42s %v", c.line, best.Round(100*time.Microsecond))
		if best > most {
			t.Errorf("%s takes %v, at most %v were promised", c.line, best, most)
		}
	}
}

// run gives what a process of the program writes, and its exit code.
func run(t *testing.T, program, db, line string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, strings.Fields(line)...)
	cmd.Env = append(os.Environ(), "KEYHOLD_DB="+db, "KEYHOLD_ACTOR=ada")
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// fill makes a store in which every client has one event, which two handlers have applied, and the last client one more, at which shipping
// is halted.
func fill(ctx context.Context, db string) error {
	store := sqlite.Open(db)
	if _, err := store.Start(ctx, eventstore.StartOptions{}); err != nil {
		return err
	}
	placed := func(client int) event.Envelope {
		key := fmt.Sprintf("client-%d", client)
		return event.Envelope{ID: event.NewID(), Type: "order.placed", Version: 1, Encoding: event.JSON, Category: "order", Key: key, Data: []byte(`{}`), Time: time.Now()}
	}
	const batch = 10_000
	for from := 0; from < partitions; from += batch {
		var events []event.Envelope
		for i := range batch {
			events = append(events, placed(from+i))
		}
		if _, err := store.Begin("fill").Commit(ctx, eventstore.Changes{Publish: events}); err != nil {
			return err
		}
	}
	handler := func(name string) eventstore.Handler {
		return eventstore.Handler{Name: name, Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.placed"}, Sequential: true}
	}
	err := store.SaveRegistry(ctx, eventstore.Registered{
		Categories: []eventstore.Category{{Name: "order", KeyField: "client_id"}}, Handlers: []eventstore.Handler{handler("clients"), handler("shipping")},
	}, []eventstore.Start{{Handler: "clients", Category: "order", Now: true}, {Handler: "shipping", Category: "order", Now: true}})
	if err != nil {
		return err
	}
	last := placed(partitions - 1)
	u := event.Unit{Name: "shipping", Key: last.Key}
	_, err = store.Begin("fill").Commit(ctx, eventstore.Changes{
		Publish: []event.Envelope{last}, Fence: eventstore.Fence{Unit: u},
		Halt: &eventstore.Halt{Unit: u, Lane: last.Ref(), Sequence: 2, EventID: last.ID, EventType: last.Type, Attempts: 5, Reason: "retries exhausted", Error: "card declined", Since: time.Now()},
	})
	if err != nil {
		return err
	}
	return store.Stop(ctx)
}

// The program as scripts meet it: exit codes, the two streams, the end by an interrupt.
func TestTheProgramInAScript(t *testing.T) {
	t.Parallel()
	program := build(t, "build")
	db := filepath.Join(t.TempDir(), "new.db")
	for _, c := range []struct {
		line string
		code int
	}{
		{"status", command.ExitNotFound},
		{"migrate up --create", command.ExitOK},
		{"status", command.ExitOK},
		{"partitions ls nosuch", command.ExitNotFound},
		{"partitions", command.ExitOK},
		{"partitions skip", command.ExitUsage},
		{"nosuch", command.ExitUsage},
		{"jobs cancel 1", command.ExitNotFound},
		{"completion bash", command.ExitOK},
	} {
		if out, code := run(t, program, db, c.line); code != c.code {
			t.Errorf("%s: exit %d, want %d:\n%s", c.line, code, c.code, out)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := exec.CommandContext(ctx, program, "status", "--watch", "--every", "10ms", "--db", db)
	watch.Cancel = func() error { return watch.Process.Signal(os.Interrupt) }
	out := &stream{seen: cancel}
	watch.Stdout, watch.Stderr = out, out
	_ = watch.Run() // its error is the context's, whatever the program said
	if code := watch.ProcessState.ExitCode(); code != command.ExitOK || !strings.Contains(out.text.String(), "healthy") {
		t.Errorf("an interrupted watch: exit %d:\n%s", code, out.text.String())
	}
}

// stream calls seen when something was written.
type stream struct {
	text bytes.Buffer // not embedded: what is copied to a buffer goes past Write
	seen func()
}

func (s *stream) Write(p []byte) (int, error) {
	defer s.seen()
	return s.text.Write(p)
}
