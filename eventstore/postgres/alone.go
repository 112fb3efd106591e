package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/eventstore"
)

// Who wants the store alone waits for all transactions that are under way, and whoever comes meanwhile waits behind it: on every node, for as long as the longest of those transactions
// takes, which may be the application's own. So it waits for a while only, lets as much time pass for the others, and tries again, each time for longer: a
// database on which every commit is slow is to be had as well.
const (
	firstAlone = time.Second
	mostAlone  = 4 * time.Second
)

// errNotAlone: it could not be had.
var errNotAlone = fmt.Errorf("%w: transactions of others were open on the store all the time: look in pg_stat_activity for one that stays open", eventstore.ErrTrouble)

// alone tries until it has the store alone, or ctx is done; try gets how long it may wait for that.
func alone(ctx context.Context, try func(patience time.Duration) error) error {
	for patience := firstAlone; ; patience = min(2*patience, mostAlone) {
		err := try(patience)
		if !errors.Is(err, errNotAlone) {
			return err
		}
		pause(ctx, ctx, patience+rand.N(patience/4))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// takeAlone are the statements that take the store alone, in so long at most.
func takeAlone(s *script, patience time.Duration) {
	s.add(`SELECT set_config('lock_timeout', $1, true)`, []any{strconv.FormatInt(patience.Milliseconds(), 10)}, nil)
	s.add(aloneStore, nil, nil)
	s.add(`SET LOCAL lock_timeout = DEFAULT`, nil, nil)
}

// notAlone makes an error of these statements what it is.
func notAlone(err error) error {
	if code(err) == lockTimedOut {
		return fmt.Errorf("%w: %w", errNotAlone, err)
	}
	return err
}

// takeAloneIn takes the store alone in a transaction that has just begun.
func takeAloneIn(ctx context.Context, tx pgx.Tx, patience time.Duration) error {
	var s script
	takeAlone(&s, patience)
	return notAlone(s.run(ctx, tx))
}
