package grpc

import "sync"

// room counts the calls that a node has inside. A link may have three times as many as there is room left for then, so that one has three quarters at most, and the more of them make many calls
// the less each has. The last sixteenth is for links that have none: whoever comes finds room, however many calls a few others make.
type room struct {
	most int
	mu   struct {
		sync.Mutex
		inside int
		by     map[any]int
	}
}

// enter says whether there is room for one more call of a link. It never waits: a caller that is told so at once may ask elsewhere.
func (r *room) enter(link any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !admits(r.most, r.mu.inside, r.mu.by[link]) {
		return false
	}
	if r.mu.by == nil {
		r.mu.by = map[any]int{}
	}
	r.mu.inside++
	r.mu.by[link]++
	return true
}

func (r *room) leave(link any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.inside--
	r.mu.by[link]--
	if r.mu.by[link] == 0 {
		delete(r.mu.by, link)
	}
}

// admits decides for a link that has own calls of those inside. Where the room is too small to be shared it is taken as it comes.
func admits(most, inside, own int) bool {
	left := most - inside - 1
	switch {
	case left < 0:
		return false
	case own == 0 || most < 4:
		return true
	}
	return own+1 <= 3*left && inside < most-most/16
}
