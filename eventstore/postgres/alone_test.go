package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// TestWhoeverWaitsToBeAloneKeepsNobodyWaiting: a transaction of the application's own is open for long, and something comes that waits for all that write, such as the start of a node. What
// comes after that, on every node, does not wait for the first.
func TestWhoeverWaitsToBeAloneKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for who, alone := range map[string]func(ctx context.Context, d *desk) error{
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
			own := d.beginOwn(d.own())
			d.must(d.publishIn(own, events("a", 1)))
			ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
			defer cancel()
			waits := background(func() error { return alone(ctx, d) })
			d.waiting(1)
			began := time.Now()
			for range 3 {
				d.commit(events("b", 1))
				_, err := own.Exec(d.Context(), `SELECT 1`) // it is at work
				d.must(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("three commits took %v", took)
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
