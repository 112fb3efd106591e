package grpc

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// refusals tells of links that did not come about because one side does not want the other: of those that came to this node, and of those that it went for, a line each in a minute.
// Whoever reaches the port can cause them; what was left unsaid is counted.
type refusals struct {
	logger *slog.Logger
	came   rarely
	went   rarely
}

// rarely lets one through in each minute.
type rarely struct {
	mu     sync.Mutex
	next   time.Time
	unsaid int
}

func (r *rarely) due(now time.Time) (unsaid int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.unsaid++
		return 0, false
	}
	unsaid, r.unsaid, r.next = r.unsaid, 0, now.Add(time.Minute)
	return unsaid, true
}

// from tells of a link that came to this node.
func (r *refusals) from(address net.Addr, why error) {
	if unsaid, due := r.came.due(time.Now()); due {
		r.logger.Warn("node service: a link to this node did not come about: asks of that node or client do not reach this one", "from", address.String(), "error", why, "unsaid", unsaid)
	}
}

// to tells of a link that this node went for.
func (r *refusals) to(address string, why error) {
	if unsaid, due := r.went.due(time.Now()); due {
		r.logger.Warn("node service: a link to another node did not come about: asks do not reach that one", "to", address, "error", why, "unsaid", unsaid)
	}
}

// guarded is TLS of the side that is called, which tells why it refuses: the caller hears of that little more than that it was.
type guarded struct {
	credentials.TransportCredentials
	refusals *refusals
}

func (g guarded) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		why := refusal(err)
		if why == nil && strings.Contains(err.Error(), "didn't provide a certificate") {
			why = errors.New("the other side has shown no certificate: give it the same TLS settings")
		}
		if why != nil {
			g.refusals.from(raw.RemoteAddr(), why)
		}
	}
	return conn, info, err
}

func (g guarded) Clone() credentials.TransportCredentials {
	return guarded{g.TransportCredentials.Clone(), g.refusals}
}
