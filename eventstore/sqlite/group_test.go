package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// size waits for the COMMIT of a group with that many jobs.
func (b *bundle) size(n int) {
	b.Helper()
	b.writer().signals.committed.WaitFor(b, func(size int) bool { return size == n })
}

func TestCommitsThatWaitShareOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const waiters = 100
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	results := make([]<-chan error, waiters)
	for i := range results {
		results[i] = b.commit(publish(fmt.Sprintf("e-%d", i)))
	}
	_, err := tx.Commit(t.Context(), eventstore.Changes{})
	b.must(err)
	b.size(waiters + 1)
	for _, r := range results {
		b.must(<-r)
	}
	if tail := b.tail(); tail != waiters {
		t.Errorf("tail is %d, want %d", tail, waiters)
	}
}

func TestGroupIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, _ := b.visit(t.Context())
	results := make([]<-chan error, groupSize+10)
	for i := range results {
		results[i] = b.commit(publish(fmt.Sprintf("e-%d", i)))
	}
	b.must(tx.Rollback())
	for _, r := range results {
		b.must(<-r)
	}
	for total := 0; total < len(results); {
		n := b.writer().signals.committed.Wait(t)
		if n > groupSize {
			t.Fatalf("a group of %d", n)
		}
		total += n
	}
}

func TestGroupDoesNotKeepTheFirstWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *Store) {
		tune := s.tune
		s.tune = func(w *writer) {
			tune(w)
			w.groupTime = 0
		}
	})
	tx, _ := b.visit(t.Context())
	first, second := b.commit(publish("e-1")), b.commit(publish("e-2"))
	b.must(tx.Rollback())
	b.must(<-first)
	b.must(<-second)
	for range 2 {
		b.size(1)
	}
}

func TestRefusalInAGroupIsItsOwn(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(b *bundle) func(){
		"of data alone": func(b *bundle) func() {
			tx, _ := b.visit(t.Context())
			return func() { b.must(tx.Rollback()) }
		},
		"with the application's SQL": func(b *bundle) func() {
			tx, db := b.visit(t.Context())
			b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
			return func() {
				_, err := tx.Commit(t.Context(), eventstore.Changes{})
				b.must(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			end := begin(b)
			first := b.commit(emit("o-1", 0))
			second := b.commit(emit("o-1", 0)) // loses to the first, in the same transaction
			third := b.commit(emit("o-1", 1))
			end()
			b.must(<-first)
			var conflict *eventstore.VersionError
			if err := <-second; !errors.As(err, &conflict) || conflict.Actual != 1 || conflict.Expected != 0 {
				t.Errorf("second: %v", err)
			}
			b.must(<-third)
			events, err := b.store.ReadStream(t.Context(), event.Stream{Kind: "order", ID: "o-1"}, 0, 10)
			b.must(err)
			if len(events) != 2 || b.tail() != 2 {
				t.Errorf("%d events, tail %d", len(events), b.tail())
			}
		})
	}
}

// failOn makes every write of an event with that id fail, as a fault of the disk would, in the middle of the changes.
func (b *bundle) failOn(id, how string) {
	b.Helper()
	_, err := b.raw().ExecContext(b.Context(), fmt.Sprintf(`CREATE TRIGGER fault BEFORE INSERT ON keyhold_log WHEN new.id = '%s' BEGIN SELECT RAISE(%s, 'fault'); END`, id, how))
	b.must(err)
}

func TestFailedWriteInAGroupIsItsOwn(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"ABORT", "ROLLBACK"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.failOn("bad", how)
			tx, _ := b.visit(t.Context())
			first := b.commit(publish("e-1"))
			halfDone := publish("e-2")
			halfDone.Publish = append(halfDone.Publish, publish("bad").Publish...)
			bad := b.commit(halfDone)
			last := b.commit(publish("e-3"))
			b.must(tx.Rollback())
			b.must(<-first)
			if err := <-bad; err == nil || !strings.Contains(err.Error(), "fault") {
				t.Errorf("bad: %v", err)
			}
			b.must(<-last)
			if tail := b.tail(); tail != 2 {
				t.Errorf("tail is %d, want 2: e-1 and e-3", tail)
			}
		})
	}
}

func TestFailedWriteBesideTheApplicationsSQLIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.failOn("bad", "ABORT")
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	halfDone := publish("e-2")
	halfDone.Publish = append(halfDone.Publish, publish("bad").Publish...)
	bad := b.commit(halfDone)
	good := b.commit(publish("e-1"))
	_, err := tx.Commit(t.Context(), eventstore.Changes{})
	b.must(err)
	b.size(3)
	if err := <-bad; err == nil || !strings.Contains(err.Error(), "fault") {
		t.Errorf("bad: %v", err)
	}
	b.must(<-good)
	if b.shipments() != 1 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

// Where the database gives up the whole transaction, what is data is applied again; what the application did in SQL cannot be.
func TestLostTransactionIsToldToThoseWithSQLAndAppliedAgainForTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.failOn("bad", "ROLLBACK")
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	good := b.commit(publish("e-1"))
	bad := b.commit(publish("bad"))
	_, err := tx.Commit(t.Context(), publish("e-0"))
	if !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "try again") || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("with SQL: %v", err)
	}
	b.must(<-good)
	if err := <-bad; err == nil || !strings.Contains(err.Error(), "fault") || errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("bad: %v", err)
	}
	if b.shipments() != 0 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
	b.must(<-b.commit(publish("e-2")))
}

func TestCommitWhoseContextEndsWhileItWaitsIsNotApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, _ := b.visit(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	result := background(func() error {
		_, err := b.store.Begin("impatient").Commit(ctx, publish("e-1"))
		return err
	})
	b.writer().signals.queued.WaitFor(t, func(who string) bool { return who == "impatient" })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("commit: %v", err)
	}
	after := b.commit(publish("e-2"))
	b.must(tx.Rollback())
	b.must(<-after)
	if tail := b.tail(); tail != 1 {
		t.Errorf("tail is %d, want 1: e-2", tail)
	}
}

// The commit is part of a group that a body keeps open for long.
func TestCommitWhoseContextEndsWhileItIsInHandIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		tx, _ := b.visit(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		result := background(func() error {
			_, err := b.store.Begin("impatient").Commit(ctx, publish("e-1"))
			return err
		})
		b.writer().signals.queued.WaitFor(t, func(who string) bool { return who == "impatient" })
		entered, leave := make(chan struct{}), make(chan struct{})
		body := background(func() error {
			tx := b.store.Begin("slow body")
			if _, err := tx.SQL(t.Context()); err != nil {
				return err
			}
			close(entered)
			<-leave
			return tx.Rollback()
		})
		b.writer().signals.queued.WaitFor(t, func(who string) bool { return who == "slow body" })
		b.must(tx.Rollback())
		<-entered
		cancel()
		if err := <-result; !errors.Is(err, eventstore.ErrUnknownCommit) || !errors.Is(err, context.Canceled) {
			t.Errorf("commit: %v", err)
		}
		close(leave)
		b.must(<-body)
		b.size(1)
		if tail := b.tail(); tail != 1 {
			t.Errorf("tail is %d: it did happen, though", tail)
		}
		b.stop()
	})
}

func TestStartedAgainElsewhereMakesEveryWriteStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(<-b.commit(publish("e-1")))
	_, err := b.raw().ExecContext(t.Context(), `UPDATE keyhold_store SET start_generation = start_generation + 1`)
	b.must(err)
	for range 2 {
		if err := <-b.commit(publish("e-2")); !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("commit: %v", err)
		}
		late := b.store.Begin("late")
		if _, err := late.SQL(t.Context()); !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("SQL: %v", err)
		}
		b.must(late.Rollback())
		if err := b.store.SaveRegistry(t.Context(), eventstore.Registered{}, nil); !errors.Is(err, eventstore.ErrStale) {
			t.Errorf("save registry: %v", err)
		}
	}
	if tail := b.tail(); tail != 1 {
		t.Errorf("tail is %d", tail)
	}
}

func TestLockedByAnotherProgramIsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(<-b.commit(publish("e-1")))
	conn, err := b.raw().Conn(t.Context())
	b.must(err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	b.must(err)
	_, err = b.store.Begin("kept out").Commit(t.Context(), publish("e-2"))
	if !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "is locked by a program that is no Keyhold node") || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("commit: %v", err)
	}
	_, err = conn.ExecContext(t.Context(), `ROLLBACK`)
	b.must(err)
	b.must(<-b.commit(publish("e-3")))
	if tail := b.tail(); tail != 2 {
		t.Errorf("tail is %d, want 2", tail)
	}
}

func TestStaleMemoryOfALaneIsFoundOutAndRefreshed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(<-b.commit(publish("e-1")))
	_, err := b.raw().ExecContext(t.Context(), `UPDATE keyhold_lanes SET last = 41`)
	b.must(err)
	b.must(<-b.commit(publish("e-2")))
	b.must(<-b.commit(publish("e-3")))
	if tail := b.tail(); tail != 43 {
		t.Errorf("tail is %d, want 43", tail)
	}
}
