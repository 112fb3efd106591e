package keyhold_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
)

func TestEventThatIsTooLargeIsRefusedInTheCallersUnitOfWork(t *testing.T) {
	t.Parallel()
	app := run(t, onDisk(filepath.Join(t.TempDir(), "shop.db")), cart, losses, newNotes().losses())
	large := itemLost{"ada", strings.Repeat("x", event.MaxData)}
	check := func(how string, err error) {
		if !errors.Is(err, event.ErrTooLarge) || !strings.Contains(err.Error(), "itemLost") {
			t.Errorf("%s: %.200v", how, err)
		}
	}
	check("publish", keyhold.Publish(t.Context(), app, large))
	tx, err := app.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check("publish in a transaction", keyhold.PublishTx(t.Context(), app, tx, large))
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	fits := itemLost{"ada", strings.Repeat("x", event.MaxData-100)}
	if err := keyhold.Publish(t.Context(), app, fits); err != nil {
		t.Errorf("one that fits: %.200v", err)
	}
}

func TestHandlerThatEmitsTooLargeAnEventHaltsAtOnce(t *testing.T) {
	t.Parallel()
	app := run(t, inMemory(), cart, losses, keyhold.Handler[int]{
		Name: "echo", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest, New: func(string) int { return 0 },
		On: keyhold.Behavior[int]{keyhold.On(func(_ int, ctx keyhold.Context, _ itemAdded) error {
			ctx.Emit(itemLost{"ada", strings.Repeat("x", event.MaxData)})
			return nil
		})},
	})
	add(t, app, "c1", "ada", "tea")
	h, err := app.Halt(t.Context(), keyhold.Unit{Name: "echo", Key: "ada"})
	if err != nil || h == nil || h.Attempts != 1 || h.Reason != "poison" {
		t.Errorf("halt: %+v, %v", h, err)
	}
}
