package projection

import (
	"context"
	"math"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Figures tell how a build gets on.
type Figures struct {
	Behind uint64    // events that it is to be given, or to pass over, exactly
	First  time.Time // when the first of them was emitted; zero when there is none
	Rate   float64   // events per second that it was through with, over the last ten seconds or so
}

// Delay is how old the first event is that the build is not through with; 0 when there is none.
func (f Figures) Delay(now time.Time) time.Duration {
	if f.First.IsZero() {
		return 0
	}
	return max(now.Sub(f.First), 0)
}

// figures count what is left without counting anything twice: from where the last count ended.
type figures struct {
	at      eventstore.Position // of the build
	end     eventstore.Position // of the last event counted
	counted uint64              // events up to end, since begin
	done    uint64              // events that the build is through with, since begin

	rate  float64
	rated time.Time
}

// span is what the rate looks back on.
const span = 10 * time.Second

// begin is for a state that was read: counts begin anew.
func (f *figures) begin(at eventstore.Position) {
	f.at, f.end, f.counted, f.done = at, at, 0, 0
}

func (f *figures) move(to eventstore.Position, count int, now time.Time) {
	f.at = to
	f.done += uint64(count)
	if f.done >= f.counted {
		f.end, f.counted = to, f.done
	}
	f.rate = f.rateAt(now) + float64(count)/span.Seconds()
	f.rated = now
}

// atEnd is for when there is nothing left. A record that was abandoned after it was counted is counted no more.
func (f *figures) atEnd(at eventstore.Position) {
	f.begin(at)
}

func (f *figures) rateAt(now time.Time) float64 {
	if f.rated.IsZero() {
		return 0
	}
	return f.rate * math.Exp(-now.Sub(f.rated).Seconds()/span.Seconds())
}

// Figures tells how a build gets on that runs here; false for others.
func (r *Runtime) Figures(ctx context.Context, name string, number int) (Figures, bool, error) {
	r.mu.Lock()
	b := r.mu.builds[buildID{name, number}]
	r.mu.Unlock()
	if b == nil {
		return Figures{}, false, nil
	}
	f, err := b.figuresNow(ctx)
	return f, err == nil, err
}

func (b *build) figuresNow(ctx context.Context) (Figures, error) {
	for {
		b.mu.Lock()
		before := b.mu.figures
		b.mu.Unlock()
		lag, err := b.rt.cfg.Store.ProjectionLag(ctx, before.end, b.prog.desc.Categories)
		if err != nil {
			return Figures{}, err
		}
		f, at, ok := b.count(before, lag)
		if !ok {
			continue // the build overtook the count, or somebody else has counted
		}
		if f.Behind == 0 {
			return f, nil
		}
		first, err := b.rt.cfg.Store.ReadPlaced(ctx, nil, at, b.prog.desc.Categories, 1)
		if err == nil && len(first) == 1 {
			f.First = first[0].Time
		}
		return f, err
	}
}

// count adds what lies after the end of the last count, if that end is still where it was.
func (b *build) count(before figures, lag eventstore.ProjectionLag) (f Figures, at eventstore.Position, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.end != before.end || b.mu.counted != before.counted {
		return f, at, false
	}
	b.mu.end, b.mu.counted = lag.End, b.mu.counted+lag.Behind
	return Figures{Behind: b.mu.counted - b.mu.done, Rate: b.mu.rateAt(time.Now())}, b.mu.at, true
}
