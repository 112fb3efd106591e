package keyhold_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/inline"
)

// What the warning says to do about a handler that was started under another name can be done, and works.
func TestAHandlerStartedUnderAnotherNameCanTakeItsOldPlace(t *testing.T) {
	t.Parallel()
	ctx, path, n := t.Context(), filepath.Join(t.TempDir(), "shop.db"), newNotes()
	var out bytes.Buffer
	life := func(name string, during func(app *keyhold.App)) (said string) {
		t.Helper()
		out.Reset()
		app := keyhold.New(keyhold.Config{Name: "shop", Store: sqlite.Open(path), Transport: inline.New(),
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		h := n.handler()
		h.Name = name
		app.Register(cart, h)
		if err := app.Start(ctx); err != nil {
			t.Fatal(err)
		}
		during(app)
		if err := app.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	add := func(item string) func(*keyhold.App) {
		return func(app *keyhold.App) {
			if _, err := keyhold.Ask[*added](ctx, app, cart.ID("1"), &addItem{Item: item, Client: "ada"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*keyhold.App) {}
	if said := life("old", add("tea")); said != "" {
		t.Errorf("the first start warns: %s", said)
	}
	if said := life("new", nothing); !strings.Contains(said, `run \"keyhold handlers rm new\" and \"keyhold handlers rename old new\", and start it again`) {
		t.Errorf("nothing is said of the other name: %s", said)
	}
	if d := cmp.Diff([]string{"tea", "tea"}, n.of("ada")); d != "" {
		t.Errorf("what the new name applied again: %s", d)
	}

	beside, err := sqlite.Attach(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	desk := admin.New(beside, admin.Options{Actor: "ann"})
	for _, r := range []admin.ActRequest{
		{Kind: eventstore.ActRemove, Handler: "new", Reason: "the wrong name"}, {Kind: eventstore.ActRename, Handler: "old", To: "new", Reason: "a better word"},
	} {
		if _, err := desk.Act(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := beside.Close(); err != nil {
		t.Fatal(err)
	}
	if said := life("new", add("milk")); said != "" {
		t.Errorf("it still warns: %s", said)
	}
	if d := cmp.Diff([]string{"tea", "tea", "milk"}, n.of("ada")); d != "" {
		t.Errorf("in its old place: %s", d)
	}
}
