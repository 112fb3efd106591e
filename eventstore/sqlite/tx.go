package sqlite

import (
	"context"

	"github.com/keyhold/keyhold/eventstore"
)

// tx is one unit of work.
type tx struct {
	opened *opened // the store's as it was started when the unit of work began; nil when it was not
	who    string
	job    *job // once SQL has the connection
	door   eventstore.SQL
	failed error // of SQL: nothing can commit any more
	ended  bool
}

// Begin makes a unit of work. While one has SQL open, all others wait: work that takes time belongs before [eventstore.Tx.SQL].
// A body that has it for more than 250 ms is reported through StartOptions.Observe, as "long hold".
func (s *Store) Begin(who string) eventstore.Tx { return &tx{opened: s.opened.Load(), who: who} }

func (t *tx) SQL(ctx context.Context) (eventstore.SQL, error) {
	switch {
	case t.ended:
		return nil, eventstore.ErrEnded
	case t.opened == nil:
		return nil, eventstore.ErrClosed
	case t.failed != nil:
		return nil, t.failed
	case t.job != nil:
		return t.door, t.job.visitor.ctx.Err()
	}
	j := newJob(t.who, nil)
	j.visitor = newVisitor(ctx)
	if t.failed = t.opened.writer.submit(ctx, j); t.failed != nil {
		return nil, t.failed
	}
	select {
	case d := <-j.visitor.enter:
		t.job, t.door = j, d
	case t.failed = <-j.done:
	case <-t.opened.writer.gone:
		t.failed = j.last()
	case <-ctx.Done():
		j.withdraw() // or the writer has it, and sees that ctx is done
		t.failed = ctx.Err()
	}
	return t.door, t.failed
}

func (t *tx) Begun() bool { return t.job != nil && !t.ended }

func (t *tx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if t.ended {
		return eventstore.Committed{}, eventstore.ErrEnded
	}
	if err := t.ready(&c); err != nil {
		_ = t.Rollback()
		return eventstore.Committed{}, err
	}
	t.ended = true
	var done eventstore.Committed
	apply := func(conn *connection) (err error) {
		done, err = conn.apply(&c)
		return err
	}
	var err error
	if t.job == nil {
		err = t.opened.writer.do(ctx, newJob(t.who, apply))
	} else {
		t.job.visitor.leaving <- apply
		err = t.opened.writer.await(ctx, t.job)
	}
	if err != nil {
		return eventstore.Committed{}, err
	}
	return done, nil
}

// ready says why nothing can be committed.
func (t *tx) ready(c *eventstore.Changes) error {
	switch {
	case t.opened == nil:
		return eventstore.ErrClosed
	case t.failed != nil:
		return t.failed
	}
	return c.Validate()
}

func (t *tx) Rollback() error {
	if t.ended || t.job == nil {
		t.ended = true
		return nil
	}
	t.ended = true
	t.job.visitor.leaving <- nil
	_ = t.opened.writer.await(context.Background(), t.job) // whatever it says, nothing was committed
	return nil
}
