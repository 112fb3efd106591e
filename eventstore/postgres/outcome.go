package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// commitPatience is for how long the answer to a COMMIT is waited for. The context of the unit of work does not cut it short: what it would give is an unknown outcome.
const commitPatience = 15 * time.Second

// errRolledBack: the database took COMMIT for ROLLBACK.
var errRolledBack = errors.New("the transaction was rolled back: a statement in it had failed")

// commit writes the counts and commits, in one round trip.
func (w *work) commit() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if query, args := w.counts.statement(); query != "" {
		w.script.add(query, args, nil)
	}
	w.script.add(`COMMIT`, nil, func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errRolledBack
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), commitPatience)
	defer cancel()
	w.sent = true
	return w.script.run(ctx, w.conn)
}

// isRefused reports whether an error tells for certain that a COMMIT did not happen: the server said so and went on, or nothing was sent at all.
func isRefused(err error) bool {
	if errors.Is(err, errRolledBack) || pgconn.SafeToRetry(err) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.SeverityUnlocalized == "ERROR" || pg.SeverityUnlocalized == "" && pg.Severity == "ERROR")
}

const (
	outcomeLooks    = 6
	outcomeDistance = 100 * time.Millisecond // between the first two looks; each further one is longer by that
)

// outcome finds out what became of a COMMIT whose answer was lost. It never guesses: that the transaction was rolled back is true on whichever server
// says so, as this one or none has its commit; that it was committed is true only where its first event is at the place that it drew, since after
// a crash or a failover the number of the transaction may be another one's.
func (o *opened) outcome(ctx context.Context, w *work, why error) (eventstore.Committed, error) {
	unknown := fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, why)
	if w.xid == "" {
		return eventstore.Committed{}, unknown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	for i := range outcomeLooks {
		if i > 0 {
			pause(ctx, o.ending(), time.Duration(i)*outcomeDistance)
		}
		var status *string
		if err := o.side.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, w.xid).Scan(&status); err != nil || status == nil {
			continue
		}
		switch *status {
		case "aborted":
			return eventstore.Committed{}, fmt.Errorf("%w: it was rolled back: %w", eventstore.ErrTrouble, why)
		case "committed":
			if there, err := o.isThere(ctx, w); err == nil && there {
				return w.done, nil
			}
			return eventstore.Committed{}, unknown
		}
	}
	return eventstore.Committed{}, unknown
}

// isThere reports whether the first event of the unit of work is where it was to be.
func (o *opened) isThere(ctx context.Context, w *work) (there bool, err error) {
	var first *event.Envelope
	switch {
	case len(w.changes.Append) > 0:
		first = &w.changes.Append[0].Events[0]
	default:
		first = &w.changes.Publish[0]
	}
	for i := range w.grown {
		if g := &w.grown[i]; g.ref == first.Ref() {
			_, err = get(ctx, pooled{o.side}, `SELECT EXISTS (SELECT 1 FROM keyhold_log WHERE lane = $1 AND sequence = $2 AND id = $3)`,
				[]any{g.id, int64(w.done.Tails[i].First), first.ID}, &there)
		}
	}
	return there, err
}

// pause waits, unless either context ends.
func pause(ctx, other context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-other.Done():
	}
}
