package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// Whatever command line is offered to a person can be typed: the command is there, and takes those flags and arguments.
func TestCommandLinesThatAreOfferedCanBeTyped(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.run(t, "handlers", "pause", "clients")
	d.run(t, "partitions", "pause", "billing", "client-1")
	var lines []string
	for _, asked := range []string{"status", "why order client-4", "why order client-6", "why order client-5", "why clients client-12", "why billing client-1", "why order client-3"} {
		r := d.run(t, append(words(asked), "-o", "json")...)
		var document any
		if err := json.Unmarshal([]byte(r.out), &document); err != nil {
			t.Fatalf("%s: %v: %+v", asked, err, r)
		}
		lines = append(lines, offers(document)...)
	}
	if len(lines) < 10 {
		t.Errorf("only %q are offered", lines)
	}
	for _, line := range lines {
		root := newCommand(d.options, d.env)
		args := strings.Fields(line)
		if args[0] != root.Name() {
			t.Errorf("%s: begins with %s", line, args[0])
		}
		c, rest, err := root.Find(args[1:])
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil || c.HasSubCommands() {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// offers are the values called command in a document.
func offers(document any) (lines []string) {
	switch v := document.(type) {
	case map[string]any:
		for name, value := range v {
			if line, ok := value.(string); ok && name == "command" && strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
			lines = append(lines, offers(value)...)
		}
	case []any:
		for _, value := range v {
			lines = append(lines, offers(value)...)
		}
	}
	return lines
}

// What is advised about a key is about that key, whatever characters it has.
func TestCommandLinesAreAboutTheKeyThatWasAskedFor(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("install bash: what a shell makes of a line needs one: ", err)
	} else if err != nil {
		t.Skip("what a shell makes of a line needs one: ", err)
	}
	d := setupEmpty(t)
	keys := []string{"-x", "--all", "--", "two words", "it's", "$(id)", "client\u202e99", "zero\u200bwidth", "küche", "!!"}
	halted(t, d.db, keys)
	for _, key := range keys {
		r := d.run(t, "why", "-o", "json", "--", "order", key)
		var document any
		if err := json.Unmarshal([]byte(r.out), &document); err != nil {
			t.Fatalf("%q: %v: %+v", key, err, r)
		}
		lines := offers(document)
		if len(lines) < 4 {
			t.Errorf("%q: only %q are offered", key, lines)
		}
		for _, line := range lines {
			out, err := exec.CommandContext(t.Context(), bash, "-c", `printf '%s\0' `+line).Output()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			root := newCommand(d.options, d.env)
			c, rest, err := root.Find(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")[1:])
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if got, want := c.Flags().Args(), []string{"shipping", key}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: takes %q for its arguments, want %q: %v", line, got, want, err)
			}
		}
	}
}

// halted makes a store in which a handler shipping is halted at each of these keys.
func halted(t *testing.T, path string, keys []string) {
	t.Helper()
	ctx := t.Context()
	store := sqlite.Open(path)
	if _, err := store.Start(ctx, eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.SaveRegistry(ctx, eventstore.Registered{
		Categories: []eventstore.Category{{Name: "order", KeyField: "client_id"}, {Name: "order.commands", Commands: true}},
		Handlers: []eventstore.Handler{
			{Name: "order", Kind: eventstore.EntityKind, Categories: []string{"order.commands"}, Since: night},
			{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.placed"}, Since: night},
		},
	}, nil))
	_, err := store.Begin("test").Commit(ctx, eventstore.Changes{Publish: []event.Envelope{{
		ID: "c-1", Type: "order.cancel", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order.commands", Key: "o-1", Time: night}}})
	must(err)
	for i, key := range keys {
		u, id := event.Unit{Name: "shipping", Key: key}, fmt.Sprintf("e-%d", i)
		_, err := store.Begin("test").Commit(ctx, eventstore.Changes{Publish: []event.Envelope{{
			ID: id, Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order", Key: key, Time: night}}})
		must(err)
		_, err = store.Begin("test").Commit(ctx, eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{
			Unit: u, Lane: orderLane(key), Sequence: 1, EventID: id, EventType: "order.placed", Attempts: 5, Reason: "poison", Since: night}})
		must(err)
	}
	must(store.Stop(ctx))
}

// What is said of a name that is not there, in a store in which nothing is registered, in one of a program that only produces, and where the application says which store it is.
func TestAStoreInWhichNothingIsRegisteredSaysSo(t *testing.T) {
	t.Parallel()
	ask := []string{"partitions ls nosuch", "partitions ls --category nosuch", "partitions pause nosuch ada --reason r", "handlers pause nosuch", "why nosuch ada", "events cat nosuch", "dlq show nosuch ada 1", "jobs show 7"}
	var all strings.Builder
	for _, store := range []struct {
		name    string
		has     eventstore.Registered
		mounted bool
	}{
		{"nothing", eventstore.Registered{}, false},
		{"a category without handlers", eventstore.Registered{Categories: []eventstore.Category{{Name: "order", KeyField: "client_id"}}}, false},
		{"nothing, mounted", eventstore.Registered{}, true},
	} {
		d := setupEmpty(t)
		own := sqlite.New(sqlite.Config{Path: d.db})
		_, err := own.Start(t.Context(), eventstore.StartOptions{Node: "orders@test"})
		if err := errors.Join(err, own.SaveRegistry(t.Context(), store.has, nil), own.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
		if store.mounted {
			d.options.Open = func(ctx context.Context) (eventstore.Operations, io.Closer, error) {
				store, err := sqlite.Attach(ctx, d.db)
				return store, store, err
			}
		}
		fmt.Fprintf(&all, "=== %s\n\n%s", store.name, d.runAll(t, ask))
	}
	golden(t, "commands/unregistered.txt", all.String())
}

func TestAKeyThatNothingCanBeCalledIsAMistakeOfTheCommandLine(t *testing.T) {
	t.Parallel()
	r := setup(t).run(t, "partitions", "retry", "shipping", "a\x01b")
	if r.code != ExitUsage || !strings.Contains(r.err, `key "a\x01b" contains the control character U+0001`) {
		t.Errorf("%+v", r)
	}
}
