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

// waiter is somebody who wants the store alone, until he had it. Who queues for it waits for all transactions that are under way, and whoever comes meanwhile waits behind it: on every
// node, for as long as the longest of those transactions takes, which may be the application's own. So he queues for a while only, and not again before those that were in the way
// then are over: one that stays open keeps nobody waiting but him. Each time he queues for twice as long, without a limit: where there is always some transaction open, he has the store
// once that is longer than each of them. The zero value has not tried yet.
type waiter struct {
	patience time.Duration // for which he queued last
	inWay    []string      // transactions that had the store after that
}

// firstAlone is for how long one queues at first, and how long he waits at least before he does again.
const firstAlone = time.Second

// errNotAlone: it could not be had.
var errNotAlone = fmt.Errorf("%w: transactions of others were open on the store all the time: look in pg_stat_activity for one that stays open", eventstore.ErrTrouble)

const (
	ofStore   = `locktype = 'advisory' AND granted AND classid = 'keyhold_store'::regclass AND objid = 0 AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	whoHas    = `SELECT coalesce(array_agg(virtualtransaction), '{}') FROM pg_locks WHERE ` + ofStore
	stillHave = `SELECT EXISTS (SELECT FROM pg_locks WHERE ` + ofStore + ` AND virtualtransaction = ANY($1))`
)

// next is for how long he queues when he does again.
func (w *waiter) next() time.Duration { return max(2*w.patience, firstAlone) }

// try queues once, by take, where that is due: [errNotAlone] says that he is to try again.
func (w *waiter) try(ctx context.Context, q queryer, take func(patience time.Duration) error) error {
	if len(w.inWay) > 0 {
		var still bool
		if _, err := get(ctx, q, stillHave, []any{w.inWay}, &still); err != nil {
			return err
		}
		if still {
			return errNotAlone
		}
		w.inWay = nil
	}
	patience := w.next()
	err := take(patience)
	switch {
	case err == nil:
		*w = waiter{}
	case errors.Is(err, errNotAlone):
		w.patience = patience
		if _, unseen := get(ctx, q, whoHas, nil, &w.inWay); unseen != nil {
			w.inWay = nil
		}
	}
	return err
}

// untilAlone tries until the store was had alone, or ctx is done; take gets how long it may queue for that. That it takes long is told once.
func untilAlone(ctx context.Context, q queryer, tell func(error), take func(patience time.Duration) error) error {
	var w waiter
	for tries := 1; ; tries++ {
		before := w.patience
		err := w.try(ctx, q, take)
		if !errors.Is(err, errNotAlone) {
			return err
		}
		if tries == 2 {
			tell(err)
		}
		rest := firstAlone
		if w.patience > before { // others were held up for so long
			rest = w.patience
		}
		pause(ctx, ctx, rest+rand.N(rest/4))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// notAloneYet is what an operator is told of somebody who tries for long.
func notAloneYet(who string, err error) eventstore.Notice {
	return eventstore.Notice{What: "waiting to have the store alone", Who: who, Error: err}
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
