package guide_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/inline"
)

// The README's program is run by a test in the root of the repository; here is what else it shows.

var Order = orders.Order

func TestTheKeyOfTheREADMEIsDeclared(t *testing.T) {
	t.Parallel()
	app := keyhold.New(keyhold.Config{Name: "shop", Store: memory.Open(), Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
	app.Register(Order, keyhold.Category{Name: "order", Key: "client_id"})
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := app.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheLogSaysOfAHaltWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	shown := ""
	for _, block := range fenced.FindAllStringSubmatch(read(t, filepath.Join("..", "..", "README.md")), -1) {
		if block[1] == "text" {
			shown = strings.Join(strings.Fields(block[2]), " ")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		app := keyhold.New(keyhold.Config{
			Name: "shop", Store: memory.Open(), Transport: inline.New(),
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})),
		})
		app.Register(
			keyhold.Category{Name: "order", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[orders.OrderPlaced]()}},
			keyhold.Handler[struct{}]{
				Name: "invoices", Categories: []string{"order"}, SequentialBy: "client_id", New: func(string) struct{} { return struct{}{} },
				On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e orders.OrderPlaced) error {
					if e.OrderID == "o-3" {
						return errors.New("ada has no tax number")
					}
					return nil
				})},
			})
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"o-1", "o-2", "o-3"} {
			if err := keyhold.Publish(t.Context(), app, orders.OrderPlaced{OrderID: id, ClientID: "ada", Total: orders.Euros(42)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := app.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(shown, strings.TrimSpace(sameEachTime(log.String()))); d != "" {
			t.Errorf("(-README +log):\n%s", d)
		}
	})
}
