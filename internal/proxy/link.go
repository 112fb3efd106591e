package proxy

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection of a client, and the one to the server that belongs to it.
type link struct {
	proxy  *Proxy
	client net.Conn
	once   sync.Once
	gone   chan struct{}

	// guarded by the proxy's lock
	server net.Conn // nil until the client has sent something
	lost   bool     // bytes are missing

	loses atomic.Pointer[loss] // the reply to come is lost
	mute  bool                 // of the goroutine that reads the server: it was, silently
}

const remembered = 256 // bytes of a request's end, for a match across two pieces

func (l *link) fromClient() {
	defer l.forget()
	buffer, tail := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		piece := buffer[:n]
		if !l.through(ToServer) {
			continue
		}
		if loss := l.proxy.request(tail, piece); loss != nil {
			l.loses.Store(loss)
		}
		tail = append(tail, piece...)
		tail = bytes.Clone(tail[max(0, len(tail)-remembered):])
		server := l.connect()
		if server == nil {
			return
		}
		if _, err := server.Write(piece); err != nil {
			return
		}
	}
}

func (l *link) fromServer(server net.Conn) {
	defer l.forget()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if loss := l.loses.Swap(nil); loss != nil {
			if !loss.silent {
				l.forget()
				close(loss.happened)
				return
			}
			l.mute = true
			l.proxy.change(func() { l.lost = true })
			close(loss.happened)
		}
		if l.mute || !l.through(ToClient) {
			continue
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// connect gives the connection to the server, nil when there is none to be had.
func (l *link) connect() net.Conn {
	p := l.proxy
	p.mu.Lock()
	server, target := l.server, p.mu.target
	p.mu.Unlock()
	if server != nil {
		return server
	}
	server, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial("tcp", target)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-l.gone:
		reset(server)
		return nil
	default:
	}
	l.server = server
	p.work.Go(func() { l.fromServer(server) })
	return server
}

// through waits as long as a piece has to, and says whether it may go on.
func (l *link) through(d Direction) bool {
	p := l.proxy
	p.mu.Lock()
	delay := p.mu.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-l.gone:
			timer.Stop()
			return false
		}
	}
	for {
		p.mu.Lock()
		stalled, swallow, changed := p.mu.stalled&d != 0, p.mu.swallow&d != 0, p.mu.changed
		l.lost = l.lost || swallow
		lost := l.lost
		p.mu.Unlock()
		if !stalled || lost {
			return !lost
		}
		select {
		case <-changed:
		case <-l.gone:
			return false
		}
	}
}

// forget ends the link.
func (l *link) forget() { l.proxy.change(l.close) }

// close is called with the proxy's lock held. Bytes not yet sent are thrown away, as by a machine that is gone.
func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		reset(l.client)
		if l.server != nil {
			reset(l.server)
		}
		delete(l.proxy.mu.links, l)
	})
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}
