package grpc

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/keyhold/keyhold/internal/said"
)

// refusals tells of links that did not come about because one side does not want the other: of each kind a few lines a minute, for whoever reaches the port can cause them.
type refusals struct {
	logger *slog.Logger
	kinds  [len(refusalKinds)]said.Kind
}

type refusalKind uint8

// Of what comes with TLS and a certificate something is told however many health checks and scans come without.
const (
	came refusalKind = iota
	cameBare
	went
)

var refusalKinds = [...]string{
	came:     "node service: a link to this node did not come about",
	cameBare: "node service: a link to this node did not come about for want of TLS or a certificate",
	went:     "node service: a link to another node did not come about",
}

// from tells of a link that came to this node.
func (r *refusals) from(address net.Addr, of refusalKind, why error) {
	r.warn(of, said.Host(address.String()), ": asks of that node or client do not reach this one", "from", address.String(), "error", why)
}

// to tells of a link that this node went for.
func (r *refusals) to(address string, why error) {
	r.warn(went, address, ": asks do not reach that one", "to", address, "error", why)
}

func (r *refusals) warn(of refusalKind, about, text string, args ...any) {
	more, write := r.kinds[of].Note(about)
	r.sum(of, more)
	if write {
		r.logger.Warn(refusalKinds[of]+text, args...)
	}
}

// catchUp tells of what was left unsaid where nothing of its kind has come since.
func (r *refusals) catchUp() {
	for of := range refusalKinds {
		r.sum(refusalKind(of), r.kinds[of].Over())
	}
}

func (r *refusals) sum(of refusalKind, more string) {
	if more != "" {
		r.logger.Warn(refusalKinds[of] + ": " + more)
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
		of, why := came, refusal(err)
		if why == nil && strings.Contains(err.Error(), "didn't provide a certificate") {
			of, why = cameBare, errors.New("the other side has shown no certificate: give it the same TLS settings")
		}
		if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			of = cameBare
		}
		if why != nil {
			g.refusals.from(raw.RemoteAddr(), of, why)
		}
	}
	return conn, info, err
}

func (g guarded) Clone() credentials.TransportCredentials {
	return guarded{g.TransportCredentials.Clone(), g.refusals}
}
