package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keyhold/keyhold/eventstore"
)

// TestWhoeverWaitsToBeAloneKeepsNobodyWaiting: a transaction of the application's own is open for long, and something comes that waits for all that write, such as the start of a node. What
// comes after that, on every node, does not wait for the first.
func TestWhoeverWaitsToBeAloneKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for who, wants := range map[string]func(ctx context.Context, d *desk) error{
		"a start": func(ctx context.Context, d *desk) error {
			second := New(d.config)
			_, err := second.Start(ctx, eventstore.StartOptions{Relayed: true})
			return errors.Join(err, second.Stop(context.WithoutCancel(ctx)))
		},
		"a registration": func(ctx context.Context, d *desk) error {
			had, err := d.store.LoadRegistry(ctx)
			if err != nil {
				return err
			}
			return d.store.SaveRegistry(ctx, had, nil)
		},
		"the last stretch of a projection": func(ctx context.Context, d *desk) error {
			for {
				tx := d.store.Begin("projection")
				db, err := tx.SQL(ctx)
				if err == nil {
					_, err = d.store.ReadPlaced(ctx, db, "", nil, 10)
				}
				if err = errors.Join(err, tx.Rollback()); !errors.Is(err, eventstore.ErrTrouble) || ctx.Err() != nil {
					return err
				}
			}
		},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, eventstore.StartOptions{Relayed: true})
			d.stop()
			d.config.TransactionTimeout = time.Minute // the test may be slow
			d.start(eventstore.StartOptions{Relayed: true})
			own := d.beginOwn(d.own())
			d.must(d.publishIn(own, events("a", 1)))
			ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
			defer cancel()
			waits := background(func() error { return wants(ctx, d) })
			d.waiting(1)
			for range 3 {
				_, err := d.store.Begin("beside").Commit(ctx, events("b", 1))
				d.must(err)
			}
			select {
			case err := <-waits:
				t.Errorf("it did not wait for the transaction that is open: %v", err)
			default:
			}
			d.must(own.Commit(d.Context()))
			d.must(<-waits)
		})
	}
}

// crowd is a store on which as many transactions are under way as it has numbers, all of one length and each begun at another time: when one is over, the
// next begins. Nobody begins while somebody queues to be alone.
type crowd struct {
	length time.Duration
	ends   []time.Time
	number []int // of the transaction
	queued []time.Duration
}

func newCrowd(size int, length time.Duration) *crowd {
	c := &crowd{length: length, number: make([]int, size)}
	for i := range size {
		c.ends = append(c.ends, time.Now().Add(length*time.Duration(i+1)/time.Duration(size)))
	}
	return c
}

// open gives the transactions that are under way now.
func (c *crowd) open() (all []string) {
	for i := range c.ends {
		for !c.ends[i].After(time.Now()) {
			c.ends[i], c.number[i] = c.ends[i].Add(c.length), c.number[i]+1
		}
		all = append(all, fmt.Sprintf("%d/%d", i, c.number[i]))
	}
	return all
}

// queue is what somebody does who wants the store alone.
func (c *crowd) queue(patience time.Duration) error {
	c.open()
	c.queued = append(c.queued, patience)
	last := slices.MaxFunc(c.ends, time.Time.Compare)
	if left := time.Until(last); left <= patience {
		pause(context.Background(), context.Background(), left)
		return nil
	}
	pause(context.Background(), context.Background(), patience)
	for i := range c.ends {
		if !c.ends[i].After(time.Now()) {
			c.ends[i], c.number[i] = time.Now().Add(c.length), c.number[i]+1
		}
	}
	return errNotAlone
}

// query implements queryer.
func (c *crowd) query(_ context.Context, query string, args ...any) (rows, error) {
	switch query {
	case whoHas:
		return &oneRow{value: c.open()}, nil
	case stillHave:
		return &oneRow{value: slices.ContainsFunc(c.open(), func(open string) bool { return slices.Contains(args[0].([]string), open) })}, nil
	}
	return nil, fmt.Errorf("asked for %s", query)
}

// oneRow are rows of one, with one value.
type oneRow struct {
	value any
	read  bool
}

func (r *oneRow) Next() bool {
	first := !r.read
	r.read = true
	return first
}

func (r *oneRow) Scan(into ...any) error {
	switch into := into[0].(type) {
	case *[]string:
		*into = r.value.([]string)
	case *bool:
		*into = r.value.(bool)
	}
	return nil
}

func (r *oneRow) Err() error { return nil }
func (r *oneRow) Close()     {}

// TestTheStoreIsHadAloneWhereThereIsAlwaysSomeTransactionOpen: each of them takes a minute, so that whoever queues for less has to give up. Nobody queues while a transaction is open for which
// he has queued before.
func TestTheStoreIsHadAloneWhereThereIsAlwaysSomeTransactionOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(20, time.Minute)
		told := 0
		var inWay []string
		if err := untilAlone(t.Context(), c, func(err error) {
			told++
			if !errors.Is(err, errNotAlone) {
				t.Errorf("told: %v", err)
			}
		}, func(patience time.Duration) error {
			for _, open := range c.open() {
				if slices.Contains(inWay, open) {
					t.Errorf("%s was in the way before", open)
				}
			}
			err := c.queue(patience)
			inWay = c.open()
			if len(c.queued) == 20 {
				return errors.New("never")
			}
			return err
		}); err != nil {
			t.Errorf("queued for %v: %v", c.queued, err)
		}
		if len(c.queued) > 7 { // 1, 2, 4, 8, 16, 32, 64 seconds
			t.Errorf("queued for %v", c.queued)
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

// refusing is SQL in which whoever queues has to give up.
type refusing struct {
	eventstore.SQL
	asked []string
	why   error
}

func (r *refusing) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.asked = append(r.asked, query)
	return nil, r.why
}

func TestTheLastStretchOfAProjectionGetsMorePatience(t *testing.T) {
	t.Parallel()
	db := &refusing{why: &pgconn.PgError{Code: lockTimedOut}}
	var s stretch
	for i, seconds := range []int{1, 2, 4, 8, 1} {
		switch i {
		case 3:
			db.why = nil
		case 4:
			db.why = &pgconn.PgError{Code: lockTimedOut}
		}
		nobody := &crowd{} // of those that were in the way
		if err := s.try(t.Context(), nobody, db); errors.Is(err, errNotAlone) != (db.why != nil) {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if want := fmt.Sprintf("SET LOCAL lock_timeout = %d; ", seconds*1000) + aloneStore + "; SET LOCAL lock_timeout = DEFAULT"; db.asked[i] != want {
			t.Errorf("attempt %d: %s, want %s", i+1, db.asked[i], want)
		}
	}
}

// TestAPlaceIsTakenAgainBesideTransactionsOfOthers: each attempt is on a session of its own, and goes on where the one before ended.
func TestAPlaceIsTakenAgainBesideTransactionsOfOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	d.stop()
	d.config.TransactionTimeout = time.Minute // the test may be slow
	d.start(eventstore.StartOptions{Relayed: true})
	o := d.store.opened.Load()
	d.must(o.owner.rest(d.Context()))
	again := retake{o.config, o.identity, new(waiter)}
	first, second := d.beginOwn(d.own()), d.beginOwn(d.own())
	d.must(d.publishIn(first, events("a", 1)))
	try := func(queued time.Duration) {
		t.Helper()
		conn, err := again.try(d.Context(), o.owner.conn)
		if !errors.Is(err, errNotAlone) {
			t.Fatalf("taken: %v, %v", conn, err)
		}
		d.same("queued for", again.waiter.patience, queued)
	}
	try(firstAlone)
	try(firstAlone) // the first is still there
	d.must(d.publishIn(second, events("b", 1)))
	d.must(first.Commit(d.Context()))
	try(2 * firstAlone)
	d.must(second.Commit(d.Context()))
	conn, err := again.try(d.Context(), o.owner.conn)
	d.must(err)
	o.owner.conn = conn
}
