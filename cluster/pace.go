package cluster

import (
	"sync"
	"time"
)

// mostWanted is how many units a node asks for at once at most, however many nodes there are: all of them are read by everybody.
const mostWanted = 1000

// perHeartbeat is how many units a node may let go of in a heartbeat at so many in a second, at least 1.
func perHeartbeat(moves int, heartbeat time.Duration) int {
	return max(1, int(float64(moves)*heartbeat.Seconds()))
}

// mostWants is how many units one of so many members asks for at once: as many as the others may let go of until each has read the list again, from 1 up to 1,000.
func mostWants(moves int, heartbeat time.Duration, members int) int {
	return min(perHeartbeat(moves, heartbeat)*max(members-1, 1), mostWanted)
}

// pace says how many units a node may let go of. It fills up with time to what a heartbeat may move, and no further, so that it does not matter how often the node reads
// what others want. The methods may be called concurrently.
type pace struct {
	rate float64 // in a second
	most float64

	mu struct {
		sync.Mutex
		left float64
		at   time.Time // when that was so
	}
}

// newPace is full at first.
func newPace(moves int, heartbeat time.Duration, now time.Time) *pace {
	p := &pace{rate: float64(moves), most: float64(perHeartbeat(moves, heartbeat))}
	p.mu.left, p.mu.at = p.most, now
	return p
}

// Left gives how many there may be now.
func (p *pace) Left(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.mu.at).Seconds(); since > 0 {
		p.mu.left, p.mu.at = min(p.mu.left+since*p.rate, p.most), now
	}
	return int(p.mu.left)
}

// Take notes one.
func (p *pace) Take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.left--
}
