package leases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keyhold/keyhold/partitions"
)

const (
	batch    = 256 // leases in one call
	inFlight = 8   // calls at once: one that hangs is not to hold up the others
)

// dueAt gives when a lease that was asked for at sent is renewed: a little before it is a heartbeat old, or two, so that those which were acquired together
// part in time.
func (k *Keeper) dueAt(sent time.Duration) time.Duration {
	return sent + k.every - rand.N(k.jitter+1)
}

func (k *Keeper) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		k.Look()
		now := k.clock.now()
		for _, e := range k.expire(now) {
			e.holder.Lost(e.held, Expired)
		}
		for {
			b := k.take(now)
			if len(b) == 0 || !k.calls.Go(func(ctx context.Context) { k.renew(ctx, b) }) { // false only when Stop has begun
				break
			}
		}
		timer.Reset(k.wait(now))
		select {
		case <-timer.C:
		case <-k.poke:
		case <-ctx.Done():
			return
		}
	}
}

// expire takes the leases whose deadline has passed.
func (k *Keeper) expire(now time.Duration) (gone []*entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		e, at := k.mu.deadlines.first()
		switch {
		case e == nil || at > now:
			return gone
		case e.sent+k.life > now: // it was renewed since it took its place
			k.mu.deadlines.put(e, e.sent+k.life)
		default:
			k.forgetLocked(e)
			gone = append(gone, e)
		}
	}
}

// take takes what is renewed in one call: what is due, and to fill it up what would be soon. What is younger than half that distance waits.
func (k *Keeper) take(now time.Duration) (b []*entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.inFlight == inFlight {
		return nil
	}
	for _, q := range [...]*queue{&k.mu.due, &k.mu.again} {
		if e, at := q.first(); e == nil || at > now {
			continue
		}
		for len(b) < batch {
			e, at := q.first()
			if e == nil || at > now && now-e.sent < k.every/2 {
				break
			}
			q.remove(e)
			b = append(b, e)
		}
		k.mu.inFlight++
		return b
	}
	return nil
}

// wait gives how long there is nothing to do.
func (k *Keeper) wait(now time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := time.Hour
	for _, q := range [...]*queue{&k.mu.due, &k.mu.again, &k.mu.deadlines} {
		if e, at := q.first(); e != nil && (q == &k.mu.deadlines || k.mu.inFlight < inFlight) {
			wait = min(wait, at-now)
		}
	}
	return max(wait, 0)
}

// renew makes one call. It gets a heartbeat of time: then another one is worth more than its answer.
func (k *Keeper) renew(ctx context.Context, b []*entry) {
	held := make([]partitions.Held, len(b))
	for i, e := range b {
		held[i] = e.held
	}
	ctx, done := context.WithTimeout(ctx, k.traits.Heartbeat)
	defer done()
	sent := k.clock.now()
	errs := k.cfg.Port.Renew(ctx, held)
	k.Look() // before anything is believed that was asked before the host stood still
	trouble := k.answered(b, sent, errs)
	k.wake()
	if trouble != nil && ctx.Err() != context.Canceled && k.cfg.Trouble != nil {
		k.cfg.Trouble(trouble)
	}
}

// answered tells what came of a call, and gives an error of those that did not work out.
func (k *Keeper) answered(b []*entry, sent time.Duration, errs []error) (trouble error) {
	failed := 0
	for i, e := range b {
		var err error
		if i < len(errs) {
			err = errs[i]
		} else {
			err = errors.New("the port left out answers")
		}
		if !k.answer(e, sent, err) {
			failed, trouble = failed+1, err
		}
	}
	k.mu.Lock()
	k.mu.inFlight--
	k.mu.Unlock()
	if trouble != nil {
		return fmt.Errorf("renew %d leases, of which %d failed: %w", len(b), failed, trouble)
	}
	return nil
}

// answer tells what came of the renewal of one lease; false when it is to be made again.
func (k *Keeper) answer(e *entry, sent time.Duration, err error) bool {
	k.mu.Lock()
	now := k.clock.now()
	late := now >= e.sent+k.life
	fenced := errors.Is(err, partitions.ErrFenced)
	kept := k.keptLocked(e)
	switch {
	case !kept:
	case fenced || late:
		k.forgetLocked(e)
	case err != nil:
		k.mu.again.put(e, now+k.traits.Heartbeat/8+rand.N(k.traits.Heartbeat/8+1))
	default:
		e.sent = max(e.sent, sent)
		k.mu.due.put(e, k.dueAt(e.sent))
	}
	k.mu.Unlock()
	switch {
	case !kept:
	case fenced:
		e.holder.Lost(e.held, Fenced)
	case late:
		e.holder.Lost(e.held, Expired)
	case err != nil:
		return false
	default:
		e.holder.Renewed(e.held, k.clock.time(sent))
	}
	return true
}
