package gossip

import (
	"errors"
	"log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// logs says what a person should know, once a minute at most each; the library's own lines, most of which are of a network as networks are, are for who debugs.
type logs struct {
	out atomic.Pointer[slog.Logger]
	mu  struct {
		sync.Mutex
		said map[string]time.Time
	}
}

const (
	quiet    = time.Minute
	mostSaid = 1000
)

func newLogs(out *slog.Logger) *logs {
	l := &logs{}
	if out == nil {
		out = slog.New(slog.DiscardHandler)
	}
	l.out.Store(out)
	l.mu.said = map[string]time.Time{}
	return l
}

// once warns, unless it has done so within a minute under the same key.
func (l *logs) once(key, text string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	last, said := l.mu.said[key]
	if fresh := said && now.Sub(last) < quiet; fresh {
		l.mu.Unlock()
		return
	}
	if len(l.mu.said) >= mostSaid {
		clear(l.mu.said)
	}
	l.mu.said[key] = now
	l.mu.Unlock()
	l.out.Load().Warn("gossip "+text, args...)
}

// notJoined tells of a join that did not come about. That a node which was there does not answer is nothing new.
func (l *logs) notJoined(address string, err error) {
	if what := advice(err); what != "" {
		l.once("key"+address, "cannot read what a node says: "+what, "address", address, "error", err)
		return
	}
	l.out.Load().Debug("gossip does not reach a node", "address", address, "error", err)
}

// standard gives the library a logger of its own, so that nothing of it goes to the process's.
func (l *logs) standard() *log.Logger { return log.New(l, "", 0) }

// Write implements [io.Writer] for one line of the library.
func (l *logs) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	_, bare, found := strings.Cut(text, "memberlist: ")
	if !found {
		bare = text
	}
	_, from, _ := strings.Cut(bare, "from=")
	switch {
	case strings.Contains(bare, "over TCP but UDP probes failed"):
		l.once("udp", "comes through over TCP, and not over UDP: let UDP through on the port of Bind, or use the preset TCPOnly", "library", bare)
	case advice(errors.New(bare)) != "":
		l.once("key"+from, "cannot read what a node says: "+advice(errors.New(bare)), "address", from, "error", bare)
	default:
		l.out.Load().Debug("gossip: " + bare)
	}
	return len(line), nil
}
