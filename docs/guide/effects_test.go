package guide_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/keyholdtest"
)

// The samples of docs/idempotent-effects.md: fees that are charged elsewhere.

type FeeDue struct {
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"`
}

var _ = keyhold.Type[FeeDue]("fee.due", 1)

type paymentProvider interface {
	Charge(ctx context.Context, client string, cents int64, idempotencyKey string) error
}

type cashier struct{ provider paymentProvider }

func (c cashier) ordered(ctx keyhold.Context, e FeeDue) error {
	// The provider answers a second request with the same key as it answered the first.
	return c.provider.Charge(ctx, e.ClientID, e.Cents, ctx.Meta().ID)
}

// ledger is a database that is not the store.
type ledger struct{ db *sql.DB }

func (l ledger) due(ctx keyhold.Context, e FeeDue) error {
	f := ctx.Fence()
	_, err := l.db.ExecContext(ctx, `UPDATE balances SET cents = cents + $1, sequence = $2 WHERE client = $3 AND sequence < $2`,
		e.Cents, f.Sequence, f.Unit.Key)
	return err
}

// guarded is one that keeps the generation, too.
type guarded struct{ db *sql.DB }

func (g guarded) due(ctx keyhold.Context, e FeeDue) error {
	f := ctx.Fence()
	_, err := g.db.ExecContext(ctx, `UPDATE balances SET cents = cents + $1, sequence = $2, generation = $3
		WHERE client = $4 AND sequence < $2 AND generation <= $3`, e.Cents, f.Sequence, f.Generation, f.Unit.Key)
	return err
}

// charges remembers what was asked, by the idempotency key.
type charges struct {
	asked int
	cents map[string]int64
}

func (c *charges) Charge(_ context.Context, _ string, cents int64, key string) error {
	c.asked++
	c.cents[key] = cents
	return nil
}

func TestASecondAttemptHasTheIdempotencyKeyOfTheFirst(t *testing.T) {
	t.Parallel()
	provider := &charges{cents: map[string]int64{}}
	keyholdtest.Handler(t, keyhold.Handler[cashier]{
		Name: "cashier", Categories: []string{"fees"}, SequentialBy: "client_id", New: func(string) cashier { return cashier{provider} },
		On: keyhold.Behavior[cashier]{keyhold.On(cashier.ordered)},
	}).
		FailCommit(keyholdtest.Before, 1).
		Given(FeeDue{ClientID: "ada", Cents: 300}, FeeDue{ClientID: "ada", Cents: 300})
	if provider.asked != 3 || len(provider.cents) != 2 {
		t.Errorf("asked %d times with %d keys, want three times, two keys", provider.asked, len(provider.cents))
	}
}

func TestALedgerIgnoresWhatItHas(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "ledger.db")) // the driver of eventstore/sqlite
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE balances (client TEXT, cents INTEGER, sequence INTEGER); INSERT INTO balances VALUES ('ada', 0, 0)`); err != nil {
		t.Fatal(err)
	}
	keyholdtest.Handler(t, keyhold.Handler[ledger]{
		Name: "ledger", Categories: []string{"fees"}, SequentialBy: "client_id", New: func(string) ledger { return ledger{db} },
		On: keyhold.Behavior[ledger]{keyhold.On(ledger.due)},
	}).
		FailCommit(keyholdtest.Before, 1).
		Given(FeeDue{ClientID: "ada", Cents: 300}, FeeDue{ClientID: "ada", Cents: 40}).
		ThenAttempts(3)
	var got [2]int64
	if err := db.QueryRowContext(t.Context(), `SELECT cents, sequence FROM balances`).Scan(&got[0], &got[1]); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([2]int64{340, 2}, got); d != "" {
		t.Errorf("cents and sequence (-want +got):\n%s", d)
	}
}

func TestALedgerThatKeepsTheGenerationRefusesAnOwnerThatWasReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen int // the highest generation that the ledger knows
		want int64
	}{"the owner": {0, 340}, "one that was replaced": {1 << 40, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "ledger.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE balances (client TEXT, cents INTEGER, sequence INTEGER, generation INTEGER)`); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), `INSERT INTO balances VALUES ('ada', 0, 0, $1)`, c.seen); err != nil {
				t.Fatal(err)
			}
			keyholdtest.Handler(t, keyhold.Handler[guarded]{
				Name: "ledger", Categories: []string{"fees"}, SequentialBy: "client_id", New: func(string) guarded { return guarded{db} },
				On: keyhold.Behavior[guarded]{keyhold.On(guarded.due)},
			}).Given(FeeDue{ClientID: "ada", Cents: 300}, FeeDue{ClientID: "ada", Cents: 40})
			var cents int64
			if err := db.QueryRowContext(t.Context(), `SELECT cents FROM balances`).Scan(&cents); err != nil {
				t.Fatal(err)
			}
			if cents != c.want {
				t.Errorf("%d cents, want %d", cents, c.want)
			}
		})
	}
}
