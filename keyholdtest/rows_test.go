package keyholdtest_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/keyholdtest"
)

// ledger is a store in a file, with a table of the handler's own.
func ledger(t *testing.T) keyholdtest.Option {
	return keyholdtest.On(sqlite.New(sqlite.Config{
		Path: filepath.Join(t.TempDir(), "keyhold.db"),
		Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS parcels (client TEXT, item TEXT, fragile BOOLEAN, weight REAL, n INTEGER)`)
			return err
		},
	}))
}

// write notes a parcel in a table, without asking whether it is there.
func write(ctx keyhold.Context, e Filled) error {
	_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO parcels VALUES ($1, $2, $3, $4, 7)`, e.Client, e.Item, e.Item == "cup", 0.5)
	return err
}

const all = `SELECT client, item FROM parcels ORDER BY rowid`

func TestRowsAreWrittenOnceHoweverTheCommitFails(t *testing.T) {
	t.Parallel()
	for fault, attempts := range map[keyholdtest.CommitFault]int{keyholdtest.Before: 4, keyholdtest.Unknown: 4, keyholdtest.After: 2} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			store := ledger(t)
			keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
				keyholdtest.Handler(k, Packing(write)).
					FailCommit(fault, 2).
					Given(filled("ada", "tea"), filled("ada", "cup")).
					ThenAttempts(attempts).
					ThenRows(all, []any{"ada", "tea"}, []any{"ada", "cup"})
			}, store)
		})
	}
}

type nickname string

func TestRowsAreComparedByWhatTheySay(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, Packing(write), ledger(t)).
		ThenRows(all).
		Given(filled("ada", "cup")).
		ThenRows(`SELECT client, item, fragile, weight, n, CAST(item AS BLOB), NULL FROM parcels`,
			[]any{nickname("ada"), []byte("cup"), true, float32(0.5), uint8(7), "cup", nil})
}

func TestRowsOutliveARestart(t *testing.T) {
	t.Parallel()
	k := keyholdtest.New(t, ledger(t))
	h := keyholdtest.Handler(k, Packing(write)).Given(filled("ada", "tea"))
	k.Restart()
	h.ThenAttempts(0).Given(filled("ada", "cup")).ThenRows(all, []any{"ada", "tea"}, []any{"ada", "cup"})
}
