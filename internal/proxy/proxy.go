package proxy

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// Direction is one way of a connection, or both.
type Direction int

const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy stands between clients and one server. All methods may be called concurrently.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup
	mu       struct {
		sync.Mutex
		target  string
		stalled Direction
		swallow Direction
		delay   time.Duration
		refuse  bool
		closed  bool
		losses  []*loss
		links   map[*link]struct{}
		changed chan struct{} // closed, and replaced, by whatever changes the above
	}
}

// loss is a reply that will not arrive.
type loss struct {
	match    []byte
	skip     int
	silent   bool
	happened chan struct{}
}

// TB is what is needed of [testing.TB].
type TB interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
}

// Run has a proxy in front of the server at target until the test ends.
func Run(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := Start(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Stop)
	return p
}

// Start begins to listen on a port of its own. The server at target is called when a client first sends something.
func Start(target string) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l}
	p.mu.target, p.mu.links, p.mu.changed = target, map[*link]struct{}{}, make(chan struct{})
	p.work.Go(p.accept)
	return p, nil
}

// Addr is what clients are told.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stop cuts all connections and takes no more. It returns when nothing runs any more.
func (p *Proxy) Stop() {
	p.listener.Close()
	p.change(func() {
		p.mu.closed = true
		p.cut(func(*link) bool { return true })
	})
	p.work.Wait()
}

// Pass has everything pass from now on. What was held back goes on its way; connections that lost bytes are cut.
func (p *Proxy) Pass() {
	p.change(func() {
		p.mu.stalled, p.mu.swallow, p.mu.delay, p.mu.refuse, p.mu.losses = 0, 0, 0, false, nil
		p.cut(func(l *link) bool { return l.lost })
	})
}

// Cut closes all connections. New ones pass.
func (p *Proxy) Cut() { p.change(func() { p.cut(func(*link) bool { return true }) }) }

// Refuse closes all connections, and every new one at once.
func (p *Proxy) Refuse() {
	p.change(func() {
		p.mu.refuse = true
		p.cut(func(*link) bool { return true })
	})
}

// Delay has each piece that is read wait so long before it goes on, in both directions.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.mu.delay = d }) }

// Stall holds back what comes, until [Proxy.Pass]: then it arrives, late.
func (p *Proxy) Stall(d Direction) { p.change(func() { p.mu.stalled = d }) }

// Blackhole accepts and swallows: the sender learns nothing, and what it sent is lost.
func (p *Proxy) Blackhole(d Direction) { p.change(func() { p.mu.swallow = d }) }

// Point has new connections go to another server. Those that are open stay where they are.
func (p *Proxy) Point(target string) { p.change(func() { p.mu.target = target }) }

// LoseReply loses one reply: that to the first request that holds match, after so many that do are let through. The request reaches the
// server, and the loss happens when the server begins to answer on that connection, which is then cut; or, when silent, stays open and
// is answered nothing more. The channel is closed when it has happened. Requests are watched from now on, on all connections; an
// empty match is every piece that a client sends.
func (p *Proxy) LoseReply(match string, skip int, silent bool) (happened <-chan struct{}) {
	l := &loss{match: []byte(match), skip: skip, silent: silent, happened: make(chan struct{})}
	p.change(func() { p.mu.losses = append(p.mu.losses, l) })
	return l.happened
}

// Connections says how many are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.links)
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}

// cut is called with the lock held.
func (p *Proxy) cut(which func(*link) bool) {
	for l := range p.mu.links {
		if which(l) {
			l.close()
		}
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		l := &link{proxy: p, client: c, gone: make(chan struct{})}
		p.mu.Lock()
		if p.mu.refuse || p.mu.closed {
			reset(c)
		} else {
			p.mu.links[l] = struct{}{}
			p.work.Go(l.fromClient)
		}
		p.mu.Unlock()
	}
}

// request looks for a loss in what a client sends: tail is the end of what it sent before.
func (p *Proxy) request(tail, piece []byte) *loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.mu.losses {
		seen := piece
		if n := min(len(tail), max(0, len(l.match)-1)); n > 0 { // it may lie across two pieces
			seen = append(bytes.Clone(tail[len(tail)-n:]), piece...)
		}
		if !bytes.Contains(seen, l.match) {
			continue
		}
		if l.skip > 0 {
			l.skip--
			continue
		}
		p.mu.losses = append(p.mu.losses[:i:i], p.mu.losses[i+1:]...)
		return l
	}
	return nil
}
