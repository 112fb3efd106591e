package outbox

import "time"

const (
	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	firstRest, longestRest   = 100 * time.Millisecond, 5 * time.Second
	mostResting              = 2_000 // lanes; more are no fault of lanes
)

// rest is how long something is left alone that failed. The zero value does not rest.
type rest struct {
	until time.Time
	gap   time.Duration
}

func (r rest) resting(now time.Time) bool { return now.Before(r.until) }

// longer is the next one.
func (r rest) longer(now time.Time, first, longest time.Duration) rest {
	r.gap = min(max(first, 2*r.gap), longest)
	r.until = now.Add(r.gap)
	return r
}
