package storelane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// Port is a [partitions.Port] over the records of a store that the process owns. It may be used concurrently, and there is nothing to
// close. All that it remembers are the units that an unclean start found with something to do, until each was acquired. After
// the store was stopped everything that reads gives [eventstore.ErrClosed].
type Port struct {
	records    eventstore.Records
	generation event.Generation
	keys       event.KeyRules
	left       atomic.Pointer[left] // nil when nothing was left unclean, or all of it was acquired
}

var _ partitions.Port = (*Port)(nil)

// New makes a port for one start of a store, of which id tells. When the process before left the store unclean, call [Port.TakeOver] before
// any unit is acquired.
func New(records eventstore.Records, id eventstore.Identity, keys event.KeyRules) *Port {
	p := &Port{records: records, generation: id.StartGeneration, keys: keys}
	if id.Unclean {
		p.left.Store(new(left))
	}
	return p
}

// Traits say that nothing is leased: the process owns all units.
func (p *Port) Traits() partitions.Traits { return partitions.Traits{} }

// Acquire grants the start generation. There is no other owner that a floor could come from. Once, a unit that the process before may have
// had in a behavior when it ended is unclean.
func (p *Port) Acquire(ctx context.Context, u event.Unit, _ event.Generation) (partitions.Acquired, error) {
	if err := ctx.Err(); err != nil {
		return partitions.Acquired{}, err
	}
	return partitions.Acquired{Granted: true, Generation: p.generation, Unclean: p.unclean(u)}, nil
}

// Renew has nothing to extend; a generation of another start is fenced.
func (p *Port) Renew(_ context.Context, held []partitions.Held) []error {
	errs := make([]error, len(held))
	for i, h := range held {
		errs[i] = p.fence(h)
	}
	return errs
}

// Release has nothing to give back, and nothing to look for: see the package comment.
func (p *Port) Release(ctx context.Context, h partitions.Held, _ bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.fence(h)
}

// Fetch reads the primary lanes of the unit, and its backfill lanes only when no primary lane has anything: a new primary
// event waits behind max backfill events at most. Between lanes of one kind the entry with the earliest Time comes first,
// and the first lane in lane order where two are equal. What is committed meanwhile may put entries of another
// lane in front of those already fetched; the order within a lane never changes.
//
// A gap in one lane is the answer for the whole unit as soon as it is the lane's next: what is missing might have come first.
// The store is the last place to look, and what it purges of a lane lies below all that a subscriber has not passed: a gap is
// a loss, whatever its cause.
//
// A record whose key breaks the rules got into the store past Keyhold. It is abandoned here, and given as the void that the
// store holds from then on.
func (p *Port) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	if err := p.fence(h); err != nil {
		return partitions.Fetched{}, err
	}
	if err := eventstore.CheckLimit(max); err != nil {
		return partitions.Fetched{}, fmt.Errorf("fetch for %s: %w", h.Unit, err)
	}
	got, err := p.fetch(ctx, event.Primary, above, max)
	switch {
	case err != nil || got.Gap:
	case len(got.Entries) == 0:
		got, err = p.fetch(ctx, event.Backfill, above, max)
	case got.Drained:
		got.Drained, err = p.drained(ctx, event.Backfill, above)
	}
	if err != nil {
		return partitions.Fetched{}, fmt.Errorf("fetch for %s: %w", h.Unit, asPortError(err))
	}
	return got, nil
}

// Advance has nothing to acknowledge, the checkpoints are the store's own: it fetches above done.
func (p *Port) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.Fetch(ctx, h, done, max)
}

func (p *Port) fence(h partitions.Held) error {
	if h.Generation != p.generation {
		return fmt.Errorf("%s at generation %d, the store is at %d: %w", h.Unit, h.Generation, p.generation, partitions.ErrFenced)
	}
	return nil
}

// fetch reads the lanes of one kind. Drained speaks of these alone.
func (p *Port) fetch(ctx context.Context, kind event.Lane, above []event.Position, max int) (partitions.Fetched, error) {
	got := partitions.Fetched{Drained: true}
	var runs [][]event.Envelope
	total := 0
	for _, pos := range above {
		if pos.Lane.Lane != kind {
			continue
		}
		tail, err := p.records.LaneTail(ctx, pos.Lane)
		if err != nil {
			return partitions.Fetched{}, err
		}
		if tail <= pos.Sequence {
			continue
		}
		run, err := p.read(ctx, pos, max)
		if err != nil {
			return partitions.Fetched{}, err
		}
		if len(run) == 0 {
			return partitions.Fetched{Gap: true, Lane: pos.Lane}, nil
		}
		if run[len(run)-1].Sequence < tail {
			got.Drained = false
		}
		runs = append(runs, run)
		total += len(run)
	}
	got.Entries = merge(runs, max)
	if len(got.Entries) < total {
		got.Drained = false
	}
	return got, nil
}

// drained reports whether the lanes of one kind hold nothing above.
func (p *Port) drained(ctx context.Context, kind event.Lane, above []event.Position) (bool, error) {
	for _, pos := range above {
		if pos.Lane.Lane != kind {
			continue
		}
		if tail, err := p.records.LaneTail(ctx, pos.Lane); err != nil || tail > pos.Sequence {
			return false, err
		}
	}
	return true, nil
}

// read gives the run of records right above pos. None, in a lane whose tail is above pos, is a gap: also when the lane ends
// with it.
func (p *Port) read(ctx context.Context, pos event.Position, max int) ([]event.Envelope, error) {
	run, err := p.records.ReadLane(ctx, pos.Lane, pos.Sequence, max)
	if err != nil {
		return nil, err
	}
	run = unbroken(run, pos.Sequence)
	if bad := p.keys.Check(pos.Lane.Key); bad != nil {
		return p.abandon(ctx, pos, run, bad)
	}
	return run, nil
}

// abandon makes voids of a run whose lane's key, and so that of each record, is bad, and reads them again.
func (p *Port) abandon(ctx context.Context, pos event.Position, run []event.Envelope, reason error) ([]event.Envelope, error) {
	fresh := false
	for i := range run {
		if run[i].Void() {
			continue
		}
		fresh = true
		if err := p.records.Abandon(ctx, pos.Lane, run[i].Sequence, reason.Error()); err != nil {
			return nil, fmt.Errorf("abandon %s #%d: %w", pos.Lane, run[i].Sequence, err)
		}
	}
	if !fresh {
		return run, nil
	}
	return p.records.ReadLane(ctx, pos.Lane, pos.Sequence, len(run))
}

// unbroken is the part of run that follows after without a gap.
func unbroken(run []event.Envelope, after event.Sequence) []event.Envelope {
	for i := range run {
		after++
		if run[i].Sequence != after {
			return run[:i]
		}
	}
	return run
}

// merge takes from the run with the earliest next entry, again and again, up to max.
func merge(runs [][]event.Envelope, max int) []event.Envelope {
	if len(runs) == 1 {
		return runs[0]
	}
	var merged []event.Envelope
	for len(runs) > 0 && len(merged) < max {
		next := 0
		for i := range runs {
			if before(&runs[i][0], &runs[next][0]) {
				next = i
			}
		}
		merged = append(merged, runs[next][0])
		if runs[next] = runs[next][1:]; len(runs[next]) == 0 {
			runs = append(runs[:next], runs[next+1:]...)
		}
	}
	return merged
}

func before(a, b *event.Envelope) bool {
	if c := a.Time.Compare(b.Time); c != 0 {
		return c < 0
	}
	return a.Ref().Compare(b.Ref()) < 0
}

// asPortError gives a store's error the class it has at the port. All others, a stopped store among them, stay what they are.
func asPortError(err error) error {
	if errors.Is(err, eventstore.ErrStale) {
		return fmt.Errorf("%w: %w", partitions.ErrFenced, err)
	}
	return err
}
