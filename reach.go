package keyhold

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// reach is whether something answers that this process cannot do without, as those tell who ask it anyway. It is logged once when it does not, and once when it does again.
type reach struct {
	what, then string // "the broker redis"; what the loss of it means, and what to do
	log        *slog.Logger
	patience   time.Duration // how old an answer may be

	mu struct {
		sync.Mutex
		answered time.Time // last; zero = not yet
		lost     time.Time // since when it does not; zero = it does
		tries    int       // that failed since
		err      error
	}
}

// told takes note of an answer, or of the error that came instead.
func (r *reach) told(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && !r.mu.lost.IsZero():
		r.log.Info("reached again: "+r.what, "out_of_reach_for", now.Sub(r.mu.lost).Round(time.Millisecond), "failed", r.mu.tries)
	case err != nil && r.mu.lost.IsZero():
		r.log.Warn("out of reach: "+r.what+": "+r.then, "error", err)
	}
	if r.mu.err = err; err == nil {
		r.mu.answered, r.mu.lost, r.mu.tries = now, time.Time{}, 0
		return
	}
	if r.mu.tries++; r.mu.lost.IsZero() {
		r.mu.lost = now
	}
}

// loss is what is wrong, and since when; nil where it answers.
func (r *reach) loss() (since time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.lost.IsZero() {
		return time.Time{}, nil
	}
	return r.mu.lost, fmt.Errorf("%s is out of reach: %w", r.what, r.mu.err)
}

// fault is what is wrong now; nil where it answers.
func (r *reach) fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case !r.mu.lost.IsZero():
		return fmt.Errorf("%s is out of reach for %v: %w", r.what, now.Sub(r.mu.lost).Round(time.Second), r.mu.err)
	case r.mu.answered.IsZero():
		return fmt.Errorf("%s has not answered yet", r.what)
	case now.Sub(r.mu.answered) > r.patience:
		return fmt.Errorf("%s has not answered for %v", r.what, now.Sub(r.mu.answered).Round(time.Second))
	}
	return nil
}

// storeReach is told by whoever looks for acts, which happens every quarter of a second.
func (a *App) storeReach() *reach {
	return &reach{
		what: "the store", log: a.cfg.Logger, patience: longestGap + 5*time.Second,
		then: "nothing is committed until it answers, and what people do to it is taken up then; see whether its server runs and lets this process in",
	}
}

// Ready reports what keeps this process from taking part in the work, although it may run; nil = nothing does. It is started, its store answers, and, where it is one of several
// nodes, the broker has known of it for no longer than a lease lasts, and no other application contradicts what it declares. It does no I/O, so it is fit
// for the readiness probe of an orchestrator. For a probe of whether the process lives, [App.Running] says enough: a process that cannot reach its store is not mended by a restart.
func (a *App) Ready() error {
	r, err := a.live()
	if err != nil {
		return err
	}
	return r.reaches()
}

// Notices gives what somebody should see to soon, although it keeps this process from nothing: the certificate of its node service ends, or has ended. It does no I/O, so that it can go
// beside the answer of a readiness probe.
func (a *App) Notices() []string {
	r, err := a.live()
	if err != nil {
		return nil
	}
	c, is := r.carrier.(*shared)
	if !is {
		return nil
	}
	if p, is := c.near.peers.(transport.Certified); is {
		if _, words := p.Certificate(); words != "" {
			return []string{words}
		}
	}
	return nil
}

func (r *running) reaches() error {
	if err := r.store.fault(); err != nil {
		return err
	}
	c, is := r.carrier.(*shared)
	if !is {
		return nil
	}
	if err := c.reach.fault(); err != nil {
		return err
	}
	return c.agrees()
}

// rareLog warns of what is tried again, once a minute for each kind.
func rareLog(log *slog.Logger, once *rarely, message, what string, err error) {
	if unsaid, now := once.due(what); now {
		attrs := []any{"what", what}
		if unsaid > 0 {
			attrs = append(attrs, "unsaid", unsaid)
		}
		log.Log(context.Background(), slog.LevelWarn, message, withError(attrs, err)...)
	}
}
