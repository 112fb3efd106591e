package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// In a Cluster the set of busy keys is on another server than the unit, so no script reaches both. The key is taken out first, and what there is to do is looked for after
// that: whoever publishes in between either is found by the look, or finds the key gone, puts it back and wakes the unit. A look that finds something, or fails, puts the key back: one too many
// costs a look, one too few an event.

// releaseApart releases an idle unit of a Cluster.
func (p *port) releaseApart(ctx context.Context, h partitions.Held, t *tenure) error {
	if len(t.lanes) == 0 {
		busy, err := p.busyCommand(ctx, t, "sismember")
		switch {
		case err != nil:
			return fmt.Errorf("release %s: %w", h.Unit, err)
		case busy:
			return p.release(ctx, h, t, releaseBusy)
		}
		return p.release(ctx, h, t, releaseIfIdle)
	}
	removed, err := p.unmark(ctx, t)
	if err == nil {
		err = p.release(ctx, h, t, releaseIfIdle)
	}
	if err != nil && removed {
		return errors.Join(err, p.remark(ctx, t))
	}
	return err
}

// readApart looks again at a unit of a Cluster that has nothing to read, after its key was taken out of the set of busy ones.
func (p *port) readApart(ctx context.Context, h partitions.Held, t *tenure, above []event.Position, max int) (partitions.Fetched, error) {
	removed, err := p.unmark(ctx, t)
	if err != nil {
		return partitions.Fetched{}, errors.Join(err, p.remark(ctx, t))
	}
	got, err := p.read(ctx, h, t, reading{unit: h.Unit, generation: h.Generation, above: above, most: max})
	if removed && (err != nil || got.Gap || got.Diverged || len(got.Entries) > 0) {
		err = errors.Join(err, p.remark(ctx, t))
	}
	if err != nil {
		return partitions.Fetched{}, err
	}
	return got, nil
}

// unmark takes the key out of the set. After an error it may be in it or not, so it counts as removed.
func (p *port) unmark(ctx context.Context, t *tenure) (removed bool, err error) {
	removed, err = p.busyCommand(ctx, t, "srem")
	return removed || err != nil, err
}

// remark puts the key back, also when the caller does not wait any longer.
func (p *port) remark(ctx context.Context, t *tenure) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.t.cfg.Timeout)
	defer cancel()
	if _, err := p.c.servers.run(ctx, onWork, put(t.busy, true, t.unit.Key)); err != nil {
		return fmt.Errorf("put %s back into %s: %w", t.unit.Key, t.busy, outcome(err))
	}
	return nil
}

func (p *port) busyCommand(ctx context.Context, t *tenure, command string) (bool, error) {
	reply, err := p.c.servers.run(ctx, onWork, &call{keys: []string{t.busy}, args: []any{command, t.busy, t.unit.Key}})
	if err != nil {
		return false, fmt.Errorf("%s %s of %s: %w", command, t.unit.Key, t.busy, outcome(err))
	}
	n, _ := integer(reply)
	return n > 0, nil
}
