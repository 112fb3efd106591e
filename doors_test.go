package keyhold_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
)

func TestPublishCommitsAllItsEventsOrNone(t *testing.T) {
	t.Parallel()
	n := newNotes()
	app := run(t, inMemory(), cart, losses, n.losses())
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "tea"}, itemLost{"", "jam"}); !errors.Is(err, keyhold.ErrBadKey) {
		t.Errorf("publish with a bad key: %v", err)
	}
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "milk"}, itemLost{"ada", "rye"}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"milk", "rye"}, n.of("ada")); d != "" {
		t.Error(d)
	}
	stop(t, app)
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "tea"}); !errors.Is(err, keyhold.ErrNotStarted) {
		t.Errorf("publish of a stopped application: %v", err)
	}
}

func TestTransactionInsideAnOpenOneIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	app := run(t, onDisk(filepath.Join(t.TempDir(), "shop.db")), cart, losses)
	err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		tx, err := app.BeginTx(u) // nothing is open yet
		if err != nil {
			return err
		}
		if err := tx.Rollback(); err != nil {
			return err
		}
		if _, err := u.Tx().ExecContext(u, `CREATE TABLE mine (x)`); err != nil {
			return err
		}
		_, err = app.BeginTx(u)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "doors_test.go:") || !strings.Contains(err.Error(), "use its Tx()") {
		t.Errorf("begin: %v", err)
	}
	err = keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
		return keyhold.PublishTx(u, app, u.Tx(), itemLost{"ada", "tea"})
	})
	if err == nil || !strings.Contains(err.Error(), "use Emit of its context") {
		t.Errorf("publish: %v", err)
	}
}

func TestTransactionNamesWhoBeganIt(t *testing.T) {
	t.Parallel()
	_, err := run(t, inMemory(), cart).BeginTx(t.Context())
	if !errors.Is(err, eventstore.ErrNoSQL) || !strings.Contains(err.Error(), "/doors_test.go:") {
		t.Errorf("begin: %v", err)
	}
	if strings.Contains(err.Error(), "ctx.Tx()") {
		t.Errorf("the error speaks of behaviors: %v", err)
	}
}

func TestEventThatNobodyMayEmitHereHaltsAtOnce(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]any{"of no category": stranger{}, "of an entity": itemAdded{"ada", "tea"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := run(t, inMemory(), cart, keyhold.Handler[int]{
				Name: "echo", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest, New: func(string) int { return 0 },
				On: keyhold.Behavior[int]{keyhold.On(func(_ int, ctx keyhold.Context, _ itemAdded) error {
					ctx.Emit(e)
					return nil
				})},
			})
			add(t, app, "c1", "ada", "tea")
			h, err := app.Halt(t.Context(), keyhold.Unit{Name: "echo", Key: "ada"})
			if err != nil || h == nil || h.Attempts != 1 || h.Reason != "poison" {
				t.Errorf("halt: %+v, %v", h, err)
			}
		})
	}
}
