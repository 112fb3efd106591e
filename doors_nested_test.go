package keyhold_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold"
)

// The one connection that writes is the behavior's: whatever else wanted to commit would wait for the behavior, which waits for it.
func TestBehaviorWithAnOpenTransactionIsRefusedEveryOtherUnitOfWork(t *testing.T) {
	t.Parallel()
	var app *keyhold.App
	refused := make(chan map[string]error, 1)
	app = run(t, onDisk(filepath.Join(t.TempDir(), "shop.db")), cart, losses, keyhold.Handler[int]{
		Name: "echo", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest, New: func(string) int { return 0 },
		On: keyhold.Behavior[int]{keyhold.On(func(_ int, ctx keyhold.Context, _ itemAdded) error {
			if _, err := ctx.Tx().ExecContext(ctx, `CREATE TABLE mine (x)`); err != nil {
				return err
			}
			wrapped, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := app.Ask(ctx, cart.ID("c2"), &addItem{"ada", "jam"})
			refused <- map[string]error{
				"Publish": keyhold.Publish(wrapped, app, itemLost{"ada", "tea"}),
				"Do":      keyhold.Do(ctx, app, func(keyhold.UnitOfWork) error { return nil }),
				"Ask":     err,
			}
			return nil
		})},
	})
	add(t, app, "c1", "ada", "tea")
	for what, err := range <-refused {
		if !errors.Is(err, keyhold.ErrAskInTx) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
