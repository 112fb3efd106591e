package eventstoretest

import (
	"context"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ownTx begins a transaction of the application's own, or skips.
func (f *fixture) ownTx() Own {
	f.Helper()
	if f.harness.Own == nil {
		f.Skip("a transaction of another driver cannot be written into")
	}
	tx := f.harness.Own()
	f.Cleanup(func() { _ = tx.Rollback() }) // so that a failed test does not keep its locks
	return tx
}

func (f *fixture) publishIn(tx Own, events []event.Envelope) error {
	_, err := f.store.PublishIn(f.ctx, tx.SQL, events)
	return err
}

// over is how a transaction that was written into stands.
func (f *fixture) over(p *eventstore.Pending) (over, committed bool) {
	f.Helper()
	over, committed, err := p.Over(f.ctx)
	f.must(err)
	return over, committed
}

// notOfAny is SQL that is no store's.
type notOfAny struct{ eventstore.SQL }

var ownTransactions = []check{
	{"what is no transaction of the store is refused", func(f *fixture) {
		f.is(f.publishIn(Own{SQL: notOfAny{}}, f.events("order", "a", 1)), eventstore.ErrOtherTx)
		f.is(f.publishIn(Own{}, f.events("order", "a", 1)), eventstore.ErrOtherTx)
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"the application's commit has its rows and its events", func(f *fixture) {
		f.publish(f.event("order", "a"))
		tx := f.ownTx()
		f.table()
		f.exec(tx, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		e := append(f.events("order", "b", 2), f.events("order", "a", 1)...)
		f.must(f.publishIn(tx, e))
		f.same("rows before", f.rows(), []string{"a=0"})
		f.same("tail before", f.tail(lane("order", "b")), event.Sequence(0))
		f.must(tx.Commit())
		f.same("rows", f.rows(), []string{"a=0", "b=1"})
		f.same("lane b", f.lane(lane("order", "b")), f.placed(1, e[:2]...))
		f.same("lane a", f.laneAfter(orders, 1), f.placed(2, e[2]))
		f.same("all", ids(f.everything(10))[1:], ids(e))
		f.publish(f.event("order", "b"))
		f.same("afterwards", sequences(f.lane(lane("order", "b"))), upTo(3))
	}},
	{"the application's rollback has neither", func(f *fixture) {
		tx := f.ownTx()
		f.must(f.publishIn(tx, f.events("order", "a", 2)))
		f.must(tx.Rollback())
		f.same("lane", f.lane(orders), []event.Envelope{})
		f.publish(f.event("order", "a"))
		f.same("afterwards", sequences(f.lane(orders)), upTo(1))
		f.is(f.publishIn(tx, f.events("order", "a", 1)), eventstore.ErrEnded)
	}},
	{"the end of a transaction is found out", func(f *fixture) {
		for _, commits := range []bool{true, false} {
			tx := f.ownTx()
			p, err := f.store.PublishIn(f.ctx, tx.SQL, append(f.events("order", "a", 2), f.events("audit", "a", 1)...))
			f.must(err)
			f.same("lanes", p.Lanes, []event.LaneRef{lane("audit", "a"), orders})
			if over, _ := f.over(p); over {
				f.Error("it is over before its end")
			}
			end := tx.Rollback
			if commits {
				end = tx.Commit
			}
			f.must(end())
			if over, committed := f.over(p); !over || committed != commits {
				f.Errorf("over: %t, committed: %t, want %t", over, committed, commits)
			}
		}
	}},
	{"a transaction takes events once", func(f *fixture) {
		tx := f.ownTx()
		f.must(f.publishIn(tx, nil)) // none are none
		f.must(f.publishIn(tx, f.events("order", "a", 1)))
		f.is(f.publishIn(tx, f.events("order", "a", 1)), eventstore.ErrStaged)
		f.must(tx.Commit())
		f.same("lane", sequences(f.lane(orders)), upTo(1))
	}},
	{"a transaction goes on after events that were refused", func(f *fixture) {
		if !f.table() {
			return
		}
		tx := f.ownTx()
		if err := f.publishIn(tx, []event.Envelope{{}}); err == nil {
			f.Fatal("no error")
		}
		done, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.store.PublishIn(done, tx.SQL, f.events("order", "a", 1))
		f.is(err, context.Canceled)
		f.exec(tx, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		f.must(tx.Commit())
		f.same("rows", f.rows(), []string{"a=0", "b=1"})
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"a commit to the same key waits for the transaction, and comes after it", func(f *fixture) {
		tx := f.ownTx()
		first, second := f.events("order", "a", 1), f.events("order", "a", 1)
		f.must(f.publishIn(tx, first))
		result := make(chan error, 1)
		go func() {
			_, err := f.try(eventstore.Changes{Publish: second})
			result <- err
		}()
		f.publish(f.event("order", "b")) // another key does not
		f.must(tx.Commit())
		f.must(<-result)
		f.same("lane", ids(f.lane(orders)), append(ids(first), ids(second)...))
	}},
	{"what the transaction publishes is unpublished, for the relay", func(f *fixture) {
		f.restartRelayed(f.stop)
		tx := f.ownTx()
		f.must(f.publishIn(tx, append(f.events("order", "a", 2), f.events("order", "b", 1)...)))
		f.same("before", f.unpublished(), []eventstore.Unpublished{})
		f.must(tx.Commit())
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 0, 2), unpublishedOf(lane("order", "b"), 0, 1)})
	}},
}
