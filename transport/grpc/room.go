package grpc

import "sync"

// room counts the calls that a node has inside. The last quarter of it is kept for links that have less than their share, so that one caller, however many calls it makes, does not
// keep out the others.
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
	if !admits(r.most, r.mu.inside, r.mu.by[link], len(r.mu.by)) {
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

// admits decides for a caller that has own calls of those inside, where so many callers have any.
func admits(most, inside, own, callers int) bool {
	if inside >= most {
		return false
	}
	if own == 0 || inside < most-most/4 {
		return true
	}
	return own < most/max(callers, 2)
}
