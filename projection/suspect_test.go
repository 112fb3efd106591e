package projection

import (
	"context"
	"errors"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
)

// afterAnEnd starts projections after a process that did not stop, and tells of each step that was committed.
func (b *bundle) afterAnEnd(most int, alone func(context.Context) (func(), error), defs ...Definition) *running {
	b.Helper()
	r := b.prepare(b.store, defs...)
	r.cfg.Unclean, r.cfg.MaxCrashes = true, most
	if alone != nil {
		r.cfg.Alone = alone
	}
	b.must(r.Start(b.Context()))
	return r
}

func TestWhatABuildHadInHandIsCountedAloneBeforeItRuns(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1})
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))
	b.publish(nil, sold{"b", 1}, sold{"c", 1})

	entered, left := 0, 0
	var during *eventstore.ProjectionTried
	look := func(ctx Context, e sold) error {
		if e.Item == "b" {
			during = b.build("sales", 1).Tried // another connection: what is committed
			b.same("alone", entered-left, 1)
		}
		return nil
	}
	r = b.afterAnEnd(3, func(context.Context) (func(), error) {
		entered++
		return func() { left++ }, nil
	}, sales(look))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))
	if during == nil || during.Suspicions != 1 || during.Event.ID != "e-2" {
		t.Errorf("while it ran the store knew %+v", during)
	}
	b.same("entered and left", []int{entered, left}, []int{1, 1}) // only the first of them
	if b.build("sales", 1).Tried != nil {
		t.Error("something is left of it")
	}
	b.exact()
}

// Of several processes the one that takes over may have run for long, and the one before may have ended by what it had in hand.
func TestWhoTakesOverFromAProcessThatEndedCountsWhatItHadInHand(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))
	b.publish(nil, sold{"a", 1})
	var during *eventstore.ProjectionTried
	r = b.prepare(b.store, sales(func(Context, sold) error {
		during = b.build("sales", 1).Tried
		return nil
	}))
	b.must(r.TakeOver(t.Context(), true))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))
	if during == nil || during.Suspicions != 1 {
		t.Errorf("while it ran the store knew %+v", during)
	}
}

func TestABuildThatWasStoppedInGoodOrderCountsNothing(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1}, sold{"b", 1})
	r := b.prepare(b.store, sales(func(_ Context, _ sold) error {
		if b.build("sales", 1).Tried != nil {
			t.Error("counted")
		}
		return nil
	}))
	r.cfg.Alone = func(context.Context) (func(), error) {
		t.Error("alone")
		return func() {}, nil
	}
	b.must(r.Start(t.Context()))
	r.caughtUp("sales", 1)
	b.exact()
}

func TestAnEventThatEndedTheProcessTooOftenHaltsItsBuildUnrun(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1}, sold{"bad", 1}, sold{"b", 1})
	for life := 0; life <= 3; life++ { // in the first it is not the first in hand, and suspected of nothing
		// The process ends while the event runs: what it leaves is what was counted before.
		died, err := make(chan struct{}), error(nil)
		ctx, die := context.WithCancel(t.Context())
		r := b.afterAnEnd(2, nil, sales(func(c Context, e sold) error {
			if e.Item == "bad" {
				close(died)
				<-ctx.Done()
				return eventstore.ErrClosed
			}
			return nil
		}))
		if life <= 2 {
			<-died
			if tried := b.build("sales", 1).Tried; life > 0 {
				b.same("suspicions", tried.Suspicions, life)
			} else if tried != nil {
				t.Errorf("suspected: %+v", tried)
			}
			stop, cancel := context.WithCancel(t.Context())
			cancel()
			_ = r.Stop(stop)
			die()
			err = r.Stop(t.Context())
		} else {
			h := <-r.halted
			b.same("halt", []any{h.Event.ID, h.Attempts, h.Reason}, []any{"e-2", 2, "crashed the process"})
			die()
			err = r.Stop(t.Context())
		}
		b.must(err)
	}
}

func TestASuspectThatReturnsIsSuspectedNoMore(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"bad", 1})
	tries := 0
	r := b.afterAnEnd(3, nil, sales(func(ctx Context, _ sold) error {
		if tries++; tries == 1 {
			return errors.New("not now")
		}
		if tried := b.build("sales", 1).Tried; tried == nil || tried.Attempts != 1 || tried.Suspicions != 0 {
			t.Errorf("after it returned: %+v", tried)
		}
		return nil
	}))
	r.caughtUp("sales", 1)
	b.exact()
}

func TestTheWaitToBeAloneEndsWithAStop(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1})
	waits := make(chan struct{})
	r := b.afterAnEnd(3, func(ctx context.Context) (func(), error) {
		close(waits)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, sales(nil))
	<-waits
	b.must(r.Stop(t.Context()))
	if tried := b.build("sales", 1).Tried; tried != nil && tried.Suspicions > 0 {
		t.Errorf("counted without having run: %+v", tried)
	}
}
