package grpc

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
)

// listener takes so many connections and closes what is more at once: a flood costs a handshake of TCP each, and no memory.
type listener struct {
	net.Listener
	most   int
	stock  *stock
	logger *slog.Logger
	mu     struct {
		sync.Mutex
		open    map[*accepted]struct{}
		refused bool // since there was room
	}
}

// accepted is a connection that knows whether a call ever came on it.
type accepted struct {
	net.Conn
	of     *listener
	called atomic.Bool
	once   sync.Once

	holding holding
}

// from is the address of a caller, from which a call finds its connection.
type from struct {
	net.Addr
	conn *accepted
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if a := l.take(conn); a != nil {
			return a, nil
		}
		conn.Close()
	}
}

func (l *listener) take(conn net.Conn) *accepted {
	a := &accepted{Conn: conn, of: l}
	l.mu.Lock()
	full, first := len(l.mu.open) >= l.most, !l.mu.refused
	l.mu.refused = full
	if !full {
		if l.mu.open == nil {
			l.mu.open = map[*accepted]struct{}{}
		}
		l.mu.open[a] = struct{}{}
	}
	l.mu.Unlock()
	if !full {
		return a
	}
	if first {
		l.logger.Warn("node service: too many connections, more are refused", "open", l.most, "newest_from", conn.RemoteAddr().String())
	}
	return nil
}

// hangUp closes the connections on which no call came yet: a stop waits for calls, not for handshakes.
func (l *listener) hangUp(all bool) {
	l.mu.Lock()
	var out []*accepted
	for a := range l.mu.open {
		if all || !a.called.Load() {
			out = append(out, a)
		}
	}
	l.mu.Unlock()
	for _, a := range out {
		a.Close()
	}
}

func (a *accepted) RemoteAddr() net.Addr { return from{a.Conn.RemoteAddr(), a} }

func (a *accepted) Close() error {
	a.once.Do(func() {
		a.of.mu.Lock()
		delete(a.of.mu.open, a)
		a.of.mu.Unlock()
		a.of.stock.forget(a)
	})
	return a.Conn.Close()
}
