package projection

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// checkEvery is how often a build that is being made counts what is left.
const checkEvery = 2 * time.Second

// fallsBack reports whether events come about as fast as the build applies them: then it would never see the end unless it held up those
// who write.
func (b *build) fallsBack(ctx context.Context) bool {
	now := b.rt.cfg.Now()
	if b.singles > 0 || now.Sub(b.checked) < checkEvery {
		return false
	}
	first := b.checked.IsZero()
	f, err := b.figuresNow(ctx)
	if err != nil {
		return false // reading on will say it too
	}
	before := b.behind
	b.checked, b.behind = now, f.Behind
	return !first && f.Behind*10 > before*9
}

// lastStretch takes the writer, applies what is left while nobody can add to it, and has the build become current in the same transaction.
// What is too much for the time that it may hold others up is committed as usual; the next stretch has twice the time.
func (b *build) lastStretch(ctx context.Context) next {
	b.page = nil
	a, began := b.attempt(ctx), time.Now()
	var all []eventstore.Placed
	var d done
	if b.rt.cfg.SQL {
		db, err := a.begin()
		if err != nil {
			b.end(a)
			return b.trouble(ctx, "take the writer", err)
		}
		b.rt.signals.opened.Send(b.name())
		for at := b.own.Position; a.held() < b.patience && !b.leaves(ctx); at = all[len(all)-1].Position {
			page, err := b.rt.cfg.Store.ReadPlaced(a.ctx, db, at, b.projection.Categories, b.prog.desc.Batch)
			if err != nil {
				b.end(a)
				return b.trouble(ctx, "read the last stretch", err)
			}
			if len(page) == 0 {
				break
			}
			all = append(all, page...)
			now := b.apply(ctx, a, page, limits{most: len(page) + 1, hold: b.patience, last: b.patience - a.held()})
			d.count, d.applied = d.count+now.count, d.applied+now.applied
			d.failed, d.newer, d.err = now.failed, now.newer, now.err
			if now.count < len(page) {
				break
			}
		}
		if d.newer && d.count == 0 {
			b.end(a)
			return b.awaitNewer(ctx, &all[0])
		}
	}
	b.patience = min(2*b.patience, longestHold)
	n := b.finish(ctx, a, d, all, began, true)
	if d.err == nil {
		b.seeWhetherCurrent(ctx)
	}
	return n
}

// seeWhetherCurrent reads what became of a last stretch.
func (b *build) seeWhetherCurrent(ctx context.Context) {
	p, err := b.rt.cfg.Store.ReadProjection(ctx, b.id.name)
	if err != nil {
		b.refresh()
		return
	}
	now, old := p.Build(b.id.number), p.In(eventstore.BuildOld)
	if now == nil || now.State != eventstore.BuildCurrent || b.own.State == eventstore.BuildCurrent {
		return
	}
	b.own.State, b.own.Tried, b.switches = eventstore.BuildCurrent, nil, 0
	before := 0
	if old != nil {
		before = old.Number
	}
	b.rt.cfg.Observer.Switched(b.name(), before)
	b.rt.refresh(b.id.name)
}
