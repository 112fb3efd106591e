package grpc

import "sync"

// gate counts what is inside, until it is shut and all have left.
type gate struct {
	empty chan struct{} // closed when it is shut and nobody is inside
	mu    struct {
		sync.Mutex
		inside int
		shut   bool
	}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.shut {
		return false
	}
	g.mu.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.inside--
	if g.mu.shut && g.mu.inside == 0 {
		close(g.empty)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.shut {
		g.mu.shut = true
		if g.mu.inside == 0 {
			close(g.empty)
		}
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.shut
}

func (g *gate) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.inside
}
