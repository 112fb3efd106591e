package leases_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/partitions"
)

const (
	ttl       = 15 * time.Second
	heartbeat = 3 * time.Second
	margin    = 3 * time.Second
	life      = ttl - margin
)

// port renews as it is told to, and remembers what it was asked.
type port struct {
	renew func(ctx context.Context, held []partitions.Held) []error // nil: all is well
	mu    struct {
		sync.Mutex
		calls []call
	}
}

type call struct {
	at   time.Duration
	held []partitions.Held
}

func (p *port) Traits() partitions.Traits {
	return partitions.Traits{Leased: true, TTL: ttl, Heartbeat: heartbeat, Margin: margin}
}

func (p *port) Renew(ctx context.Context, held []partitions.Held) []error {
	p.mu.Lock()
	p.mu.calls = append(p.mu.calls, call{at: sinceStart(), held: held})
	p.mu.Unlock()
	if p.renew != nil {
		return p.renew(ctx, held)
	}
	return make([]error, len(held))
}

func (p *port) calls() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.mu.calls...)
}

// all fails a whole call.
func all(held []partitions.Held, err error) []error {
	errs := make([]error, len(held))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// holder remembers what it was told.
type holder struct {
	mu struct {
		sync.Mutex
		renewed []time.Time
		told    []string
	}
}

func (h *holder) Renewed(held partitions.Held, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.renewed = append(h.mu.renewed, sent)
}

func (h *holder) Lost(held partitions.Held, why leases.Loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.told = append(h.mu.told, fmt.Sprintf("%s at %d: %s at %s", held.Unit, held.Generation, why, sinceStart()))
}

func (h *holder) lost() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.mu.told...)
}

func (h *holder) renewals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.renewed)
}

// epoch is when the clock of every bubble starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func sinceStart() time.Duration { return time.Since(epoch) }

func held(n int, g event.Generation) partitions.Held {
	return partitions.Held{Unit: event.Unit{Name: "shipping", Key: fmt.Sprint(n)}, Generation: g}
}

// setup starts a keeper, to be called within a bubble.
func setup(t *testing.T, p *port, change ...func(*leases.Config)) *leases.Keeper {
	t.Helper()
	cfg := leases.Config{Port: p}
	for _, c := range change {
		c(&cfg)
	}
	k := leases.New(cfg)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return k
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	ctx, done := context.WithTimeout(context.Background(), d)
	defer done()
	<-ctx.Done()
	synctest.Wait()
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestLeasesAreRenewedTogetherOnceInAHeartbeatAtLatest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		k := setup(t, p)
		for n := range 5 {
			k.Add(held(n, 1), time.Now(), h)
			pass(100 * time.Millisecond)
		}
		pass(10*heartbeat - time.Second/2)
		last := map[event.Unit]time.Duration{}
		for n := range 5 {
			last[held(n, 1).Unit] = time.Duration(n) * 100 * time.Millisecond
		}
		for _, c := range p.calls() {
			if len(c.held) != 5 {
				t.Errorf("%d in a call at %s", len(c.held), c.at)
			}
			for _, h := range c.held {
				if age := c.at - last[h.Unit]; age > heartbeat || age < heartbeat/2 {
					t.Errorf("%s was renewed when it was %s old", h.Unit, age)
				}
				last[h.Unit] = c.at
			}
		}
		if n := len(p.calls()); n < 9 || n > 14 {
			t.Errorf("%d calls in ten heartbeats", n)
		}
		same(t, "lost", []string(nil), h.lost())
		same(t, "renewed", 5*len(p.calls()), h.renewals())
	})
}

func TestSeldomRenewedLeasesAreRenewedEveryOtherHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		k := setup(t, p, func(c *leases.Config) { c.Seldom = true })
		for n := range 5 {
			k.Add(held(n, 1), time.Now(), h)
		}
		pass(20 * heartbeat)
		if n := len(p.calls()); n < 10 || n > 14 {
			t.Errorf("%d calls in twenty heartbeats", n)
		}
		same(t, "lost", []string(nil), h.lost())
	})
}

func TestNothingIsDoneWhileNothingIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		k := setup(t, p)
		k.Add(held(1, 1), time.Now(), h)
		k.Remove(held(1, 1))
		pass(time.Minute)
		same(t, "calls", 0, len(p.calls()))
		same(t, "held", 0, k.Len())
		same(t, "lost", []string(nil), h.lost())
	})
}

func TestOneRenewalThatFailsIsNoLossAndIsMadeAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var troubles []error
		p, h := &port{}, &holder{}
		p.renew = func(_ context.Context, held []partitions.Held) []error {
			if len(p.calls()) <= 3 {
				return all(held, errors.New("connection refused"))
			}
			return make([]error, len(held))
		}
		k := setup(t, p, func(c *leases.Config) { c.Trouble = func(err error) { troubles = append(troubles, err) } })
		k.Add(held(1, 1), time.Now(), h)
		pass(heartbeat + 3*heartbeat/4)
		same(t, "lost", []string(nil), h.lost())
		if h.renewals() != 1 {
			t.Errorf("renewed %d times, after %d calls", h.renewals(), len(p.calls()))
		}
		same(t, "troubles", 3, len(troubles))
		pass(2 * life)
		same(t, "lost later", []string(nil), h.lost())
	})
}

func TestTheDeadlineIsToldWhenItComesAlthoughARenewalHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		p, h := &port{}, &holder{}
		p.renew = func(_ context.Context, held []partitions.Held) []error { // and does not even mind its context
			<-hung
			return make([]error, len(held))
		}
		k := setup(t, p)
		k.Add(held(1, 7), time.Now(), h)
		pass(life)
		want := []string{"shipping/1 at 7: deadline passed at 12s"}
		same(t, "lost", want, h.lost())

		// The renewal has succeeded after all, too late: it revives nothing.
		close(hung)
		pass(time.Second)
		same(t, "renewed", 0, h.renewals())
		same(t, "held", 0, k.Len())
		same(t, "lost", want, h.lost())
	})
}

func TestTheDeadlineCountsFromWhenTheLeaseWasAskedForAndNotFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		p.renew = func(ctx context.Context, held []partitions.Held) []error {
			if len(p.calls()) == 1 {
				<-time.After(2 * time.Second) // the answer is slow
				return make([]error, len(held))
			}
			return all(held, errors.New("connection refused"))
		}
		k := setup(t, p)
		asked := time.Now()
		pass(time.Second)
		k.Add(held(1, 1), asked, h)
		pass(time.Minute)
		sent := p.calls()[0].at
		same(t, "lost", []string{fmt.Sprintf("shipping/1 at 1: deadline passed at %s", sent+life)}, h.lost())
	})
}

func TestALeaseThatWasGrantedTooLateIsLostAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		k := setup(t, p)
		asked := time.Now()
		pass(life)
		k.Add(held(1, 1), asked, h)
		synctest.Wait()
		same(t, "lost", []string{"shipping/1 at 1: deadline passed at 12s"}, h.lost())
		same(t, "calls", 0, len(p.calls()))
	})
}

func TestAFencedLeaseIsLostAndNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h, other := &port{}, &holder{}, &holder{}
		p.renew = func(_ context.Context, asked []partitions.Held) []error {
			errs := make([]error, len(asked))
			for i := range asked {
				if asked[i] == held(1, 1) {
					errs[i] = fmt.Errorf("renew: %w", partitions.ErrFenced)
				}
			}
			return errs
		}
		k := setup(t, p)
		k.Add(held(1, 1), time.Now(), h)
		k.Add(held(2, 1), time.Now(), other)
		pass(time.Minute)
		if got := h.lost(); len(got) != 1 || p.calls()[0].at > heartbeat {
			t.Errorf("lost: %v, calls: %v", got, p.calls())
		}
		same(t, "the other", []string(nil), other.lost())
		for _, c := range p.calls()[1:] {
			same(t, "renewed", []partitions.Held{held(2, 1)}, c.held)
		}
	})
}

// What comes of a lease that was given up, or superseded, while it was renewed is nobody's business.
func TestTheAnswerForALeaseThatIsNotKeptAnyMoreIsNotTold(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"renewed": nil, "fenced": partitions.ErrFenced, "failed": errors.New("oops")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked, answered := make(chan struct{}, 9), make(chan struct{})
				p, h := &port{}, &holder{}
				p.renew = func(_ context.Context, held []partitions.Held) []error {
					if held[0].Generation > 1 {
						return make([]error, len(held))
					}
					asked <- struct{}{}
					<-answered
					return all(held, answer)
				}
				k := setup(t, p)
				k.Add(held(1, 1), time.Now(), h)
				k.Add(held(2, 1), time.Now(), h)
				<-asked
				k.Remove(held(1, 1))
				k.Add(held(2, 2), time.Now(), h)
				k.Remove(held(2, 1)) // a stranger's
				close(answered)
				pass(0)
				same(t, "lost", []string(nil), h.lost())
				same(t, "renewed", 0, h.renewals())
				same(t, "held", 1, k.Len())
				pass(time.Minute)
				same(t, "lost", []string(nil), h.lost())
				for _, c := range p.calls()[1:] {
					same(t, "asked", []partitions.Held{held(2, 2)}, c.held)
				}
			})
		})
	}
}

func TestManyLeasesGoInBatchesSpreadOverTheHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 20_000
		p, h := &port{}, &holder{}
		k := setup(t, p)
		for n := range many {
			k.Add(held(n, 1), time.Now(), h)
		}
		pass(time.Minute)
		last, early := map[event.Unit]time.Duration{}, 0
		perSlice := map[time.Duration]int{}
		for _, c := range p.calls() {
			if len(c.held) > 256 {
				t.Fatalf("%d in one call", len(c.held))
			}
			perSlice[c.at/(heartbeat/4)]++
			for _, h := range c.held {
				age := c.at - last[h.Unit]
				if age > heartbeat || age < heartbeat/2 {
					t.Fatalf("%s was renewed when it was %s old", h.Unit, age)
				}
				if age < 3*heartbeat/4 {
					early++
				}
				last[h.Unit] = c.at
			}
		}
		same(t, "renewed", many, len(last))
		full := many/256 + 1
		for i := range time.Duration(4) { // of the last heartbeat
			if n := perSlice[time.Minute/(heartbeat/4)-1-i]; n > full*3/4 {
				t.Errorf("%d calls in a quarter of a heartbeat, of %d", n, full)
			}
		}
		if n := len(p.calls()); n > 30*full {
			t.Errorf("%d calls in twenty heartbeats, of %d", n, full)
		}
		same(t, "lost", []string(nil), h.lost())
	})
}

func TestACallThatHangsHoldsUpOnlyWhatIsInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, stuck, fine := &port{}, &holder{}, &holder{}
		p.renew = func(ctx context.Context, asked []partitions.Held) []error {
			for _, h := range asked {
				if h == held(0, 1) {
					<-ctx.Done()
					return all(asked, ctx.Err())
				}
			}
			return make([]error, len(asked))
		}
		k := setup(t, p)
		k.Add(held(0, 1), time.Now(), stuck)
		pass(heartbeat - 2*time.Millisecond) // it is on its way
		for n := range 600 {
			k.Add(held(n+1, 1), time.Now(), fine)
		}
		pass(heartbeat)
		if n := fine.renewals(); n < 600 {
			t.Errorf("%d of 600 were renewed", n)
		}
		same(t, "lost", []string(nil), fine.lost())
	})
}

// Not even one that does not mind its context.
func TestACallThatNeverReturnsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		returns := make(chan struct{})
		defer close(returns)
		p, stuck, fine := &port{}, &holder{}, &holder{}
		p.renew = func(_ context.Context, asked []partitions.Held) []error {
			if asked[0] == held(0, 1) {
				<-returns
			}
			return make([]error, len(asked))
		}
		k := setup(t, p)
		k.Add(held(0, 1), time.Now(), stuck)
		pass(heartbeat)
		k.Add(held(1, 1), time.Now(), fine)
		pass(time.Minute)
		same(t, "lost", 1, len(stuck.lost()))
		same(t, "lost", []string(nil), fine.lost())
	})
}

// The keeper may be late itself, or a holder keep it against the rules: an answer is judged by the clock alone.
func TestAnAnswerAfterTheDeadlineIsNoneAlthoughNobodyHasLookedSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers, blocks := make(chan struct{}), &blocking{until: make(chan struct{})}
		p, h := &port{}, &holder{}
		p.renew = func(_ context.Context, held []partitions.Held) []error {
			<-answers
			return make([]error, len(held))
		}
		k := setup(t, p)
		k.Add(held(1, 1), time.Now(), blocks)
		pass(time.Second)
		k.Add(held(2, 1), time.Now(), h)
		pass(life + time.Second) // the keeper tells of the first, and does not come back
		close(answers)
		synctest.Wait()
		same(t, "renewed", 0, h.renewals())
		same(t, "lost", []string{"shipping/2 at 1: deadline passed at 14s"}, h.lost())
		close(blocks.until)
	})
}

// blocking is a holder that does what none may.
type blocking struct {
	holder
	until chan struct{}
}

func (b *blocking) Lost(partitions.Held, leases.Loss) { <-b.until }

// A call that is given a heartbeat leaves time for another.
func TestACallThatHangsIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		p.renew = func(ctx context.Context, held []partitions.Held) []error {
			if len(p.calls()) == 1 {
				<-ctx.Done()
				return all(held, ctx.Err())
			}
			return make([]error, len(held))
		}
		k := setup(t, p)
		k.Add(held(1, 1), time.Now(), h)
		pass(time.Minute)
		same(t, "lost", []string(nil), h.lost())
	})
}

func TestAPortThatLeavesOutAnswersHasRenewedNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		p.renew = func(context.Context, []partitions.Held) []error { return nil }
		k := setup(t, p)
		k.Add(held(1, 1), time.Now(), h)
		pass(life)
		same(t, "renewed", 0, h.renewals())
		same(t, "lost", []string{"shipping/1 at 1: deadline passed at 12s"}, h.lost())
	})
}

func TestStopTellsNobodyAnythingAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := &port{}, &holder{}
		p.renew = func(ctx context.Context, held []partitions.Held) []error {
			<-ctx.Done() // of Stop
			return all(held, partitions.ErrUnknown)
		}
		var troubles []error
		k := leases.New(leases.Config{Port: p, Trouble: func(err error) { troubles = append(troubles, err) }})
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err == nil {
			t.Error("started twice")
		}
		k.Add(held(1, 1), time.Now(), h)
		pass(heartbeat)
		if err := k.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		same(t, "lost", []string(nil), h.lost())
		same(t, "troubles", 0, len(troubles))
	})
}
