package keyhold_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/local"
)

type refusedEvent struct {
	Client string `json:"client"`
	Other  string `json:"other"`
}

var _ = keyhold.Type[refusedEvent]("refused.happened", 1)

// refusedLog is what an application logs, and how often a handler of it ran.
type refusedLog struct {
	bytes.Buffer
	ran chan string
}

func newRefusedLog() *refusedLog { return &refusedLog{ran: make(chan string, 100)} }

// refusedApp is an application whose category has a key, with a handler of each name and a projection of categories.
func refusedApp(path, key string, log *refusedLog, projected []string, handlers ...string) *keyhold.App {
	app := keyhold.New(keyhold.Config{Name: "refused", Store: sqlite.Open(path), Transport: local.New(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	app.Register(keyhold.Category{Name: "refused", Key: key, Events: []keyhold.EventType{keyhold.EventOf[refusedEvent]()}},
		keyhold.Category{Name: "further", Buckets: 4})
	type nobody struct{}
	for _, name := range handlers {
		app.Register(keyhold.Handler[nobody]{
			Name: name, Categories: []string{"refused"}, StartFrom: keyhold.Oldest, New: func(string) nobody { return nobody{} },
			On: keyhold.Behavior[nobody]{keyhold.On(func(nobody, keyhold.Context, refusedEvent) error { log.ran <- "ran"; return nil })},
		})
	}
	if projected != nil {
		app.Register(keyhold.Projection[nobody]{
			Name: "seen", Categories: projected, New: func() nobody { return nobody{} },
			On: keyhold.ProjectionCases[nobody]{keyhold.Project(func(nobody, keyhold.ProjectionContext, refusedEvent) error { return nil })},
		})
	}
	return app
}

// lives starts an application, has it publish, and stops it when a handler has run.
func lives(t *testing.T, log *refusedLog, app *keyhold.App) {
	t.Helper()
	log.Reset()
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.Publish(t.Context(), app, refusedEvent{Client: "a", Other: "b"}); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "a handler's run", log.ran)
	if err := app.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestARefusedStartLeavesTheRegistryAsItWas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "refused.db")
	log := newRefusedLog()
	lives(t, log, refusedApp(path, "client", log, []string{"refused"}, "bills"))
	err := refusedApp(path, "client", log, []string{"refused", "further"}, "invoices").Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set Version to 2") {
		t.Fatalf("start: %v", err)
	}
	store := sqlite.Open(path)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Stop(context.Background()) }()
	r, err := store.LoadRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Handlers) != 1 || r.Handlers[0].Name != "bills" {
		t.Errorf("handlers after a refused start: %+v", r.Handlers)
	}
}

func TestARefusedStartDoesNotForgetThatTheProcessBeforeDied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, image := filepath.Join(dir, "refused.db"), filepath.Join(dir, "image.db")
	log := newRefusedLog()
	lives(t, log, refusedApp(path, "client", log, nil, "bills"))
	// What a process that dies leaves behind is what its files are while it runs.
	store := sqlite.Open(path)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image+end, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	const died = "did not stop by itself"
	for range 2 {
		log.Reset()
		if err := refusedApp(image, "other", log, nil, "bills").Start(t.Context()); err == nil || !strings.Contains(err.Error(), "key") {
			t.Fatalf("start: %v", err)
		}
	}
	lives(t, log, refusedApp(image, "client", log, nil, "bills"))
	if !strings.Contains(log.String(), died) {
		t.Errorf("the crash is forgotten:\n%s", log)
	}
	lives(t, log, refusedApp(image, "client", log, nil, "bills"))
	if strings.Contains(log.String(), died) {
		t.Errorf("a stop in good order is not believed:\n%s", log)
	}
}
