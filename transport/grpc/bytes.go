package grpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// stock counts the bytes that a node holds of what comes and goes on its links. Half of it is for questions on their way in: nobody knows how long one is before it is there, so that
// each counts as the longest. The other half is for questions inside, and for answers that the other side has not taken yet. Of either half one link has a half at most,
// and with its questions no more than is left then; the last quarter is for links that have no more than one message there. So whoever comes finds room, however much a few others send, or do not take.
//
// What comes before a question is waited for is bounded by the window of its stream.
type stock struct {
	most    int // bytes
	message int // bytes of the longest message
	wait    time.Duration
	mu      struct {
		sync.Mutex
		coming, held int
		queue        []*comer
	}
}

// holding is what there is of one link, guarded by the stock.
type holding struct {
	coming, held int
	answers      int // of held
	queued       int
	gone         bool
}

// comer waits until its question may come.
type comer struct {
	link  *accepted
	ready chan struct{} // closed when it may
}

const (
	// window is how many bytes of a question may come before it is waited for.
	window     = 64 << 10
	linkWindow = 1 << 20 // of all streams of a link, on their way
	// mostQueued of a link wait for those before them, for longestQueued at most.
	mostQueued    = 128
	longestQueued = 3 * time.Second
	// smallAnswer is up to which an answer is not counted: of them a link has as many as it may have calls.
	smallAnswer = 4 << 10
)

func (s *stock) fits(link *accepted) bool {
	return s.admits(link.holding.coming, s.mu.coming, s.message) && link.holding.coming+s.message <= s.most/2-s.mu.coming
}

// admits decides, of one half, for a link that has own bytes of all that there are.
func (s *stock) admits(own, all, size int) bool {
	return all+size <= s.most/2 && (own+size <= s.message || own+size <= s.most/4 && all+size <= s.most/2-s.most/8)
}

func (s *stock) take(link *accepted) {
	link.holding.coming += s.message
	s.mu.coming += s.message
}

// comes makes room for a question that is on its way, or reports that there is none. It waits for those of its link that are nearly there.
func (s *stock) comes(ctx context.Context, link *accepted) bool {
	s.mu.Lock()
	if s.fits(link) && link.holding.queued == 0 {
		s.take(link)
		s.mu.Unlock()
		return true
	}
	if link.holding.queued >= mostQueued {
		s.mu.Unlock()
		return false
	}
	c := &comer{link, make(chan struct{})}
	s.mu.queue = append(s.mu.queue, c)
	link.holding.queued++
	s.mu.Unlock()
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case <-c.ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.mu.queue, c)
	if i < 0 { // it may, after all
		return true
	}
	s.mu.queue = slices.Delete(s.mu.queue, i, i+1)
	link.holding.queued--
	return false
}

// came ends what comes has begun: a question of so many bytes is there, or 0 where none came. It reports whether there is room to keep it, until it is done.
func (s *stock) came(link *accepted, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	link.holding.coming -= s.message
	s.mu.coming -= s.message
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(c *comer) bool {
		if !s.fits(c.link) {
			return false
		}
		s.take(c.link)
		c.link.holding.queued--
		close(c.ready)
		return true
	})
	if !s.admits(link.holding.held, s.mu.held, size) || link.holding.held+size > s.most/2-s.mu.held {
		return false
	}
	s.hold(link, size)
	return true
}

func (s *stock) hold(link *accepted, size int) {
	link.holding.held += size
	s.mu.held += size
}

func (s *stock) done(link *accepted, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(link, -size)
}

// answer gives the form of an answer in which it is counted until it is on its way; false = there is no room for it. Its question is done.
func (s *stock) answer(link *accepted, m proto.Message, size int) (any, bool) {
	if size <= smallAnswer {
		return m, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if link.holding.gone || !s.admits(link.holding.held, s.mu.held, size) {
		return nil, false
	}
	s.hold(link, size)
	link.holding.answers += size
	return &outgoing{message: m, size: size, link: link, stock: s}, true
}

func (s *stock) written(link *accepted, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if link.holding.gone {
		return
	}
	link.holding.answers -= size
	s.hold(link, -size)
}

// forget is told that a link is closed: gRPC drops what was to go there, without a word.
func (s *stock) forget(link *accepted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := &link.holding; !h.gone {
		h.gone = true
		s.mu.held -= h.answers
		h.held -= h.answers
		h.answers = 0
	}
}

// outgoing is an answer that is counted. It is the pool of its own bytes, and so hears when gRPC is through with them.
type outgoing struct {
	message proto.Message
	size    int
	link    *accepted
	stock   *stock
}

func (o *outgoing) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

func (o *outgoing) Put(b *[]byte) {
	mem.DefaultBufferPool().Put(b)
	o.stock.written(o.link, o.size)
}

// marshal makes its bytes. Where it cannot, nobody holds them.
func (o *outgoing) marshal() (mem.BufferSlice, error) {
	b := o.Get(o.size)
	text, err := proto.MarshalOptions{}.MarshalAppend((*b)[:0], o.message)
	if err != nil {
		o.Put(b)
		return nil, err
	}
	*b = text
	return mem.BufferSlice{mem.NewBuffer(b, o)}, nil
}
