package keyhold

import (
	"context"
	"sync"

	"github.com/keyhold/keyhold/eventstore"
)

// pending are the transactions of the application's own that have events and are not over, as far as is known: nobody tells when they are.
type pending struct {
	mu struct {
		sync.Mutex
		all []*eventstore.Pending
	}
}

func (p *pending) add(some ...*eventstore.Pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.all = append(p.mu.all, some...)
}

// take gives all; what is not over yet is to be added again.
func (p *pending) take() []*eventstore.Pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.mu.all
	p.mu.all = nil
	return all
}

// lookPending has units look at the lanes to which such a transaction has added. It costs nothing while there is none, and one query for each else.
func (r *running) lookPending(ctx context.Context) {
	for _, p := range r.pending.take() {
		switch over, committed, err := p.Over(ctx); {
		case err != nil || !over: // a store that does not answer is reported by who looks for acts
			r.pending.add(p)
		case committed:
			r.app.mayHaveGrown(ctx, p.Lanes)
		}
	}
}
