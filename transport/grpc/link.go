package grpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/keyhold/keyhold/internal/said"
	"github.com/keyhold/keyhold/transport"
)

// link is the way to one node: one connection, which gRPC opens with the first call, and again when it broke, at growing distances.
type link struct {
	address  string
	conn     *rpc.ClientConn
	refused  atomic.Pointer[error] // why the other side, or this one, does not want it
	closed   atomic.Bool
	refusals *refusals

	// guarded by run.links
	inside int
	used   time.Time
}

func (l *link) note(err error) {
	if why := refusal(err); why != nil {
		l.refusals.to(l.address, why) // before anybody is told that asks
		l.refused.Store(&why)
	}
}

func (l *link) close() {
	l.closed.Store(true)
	l.conn.Close()
}

// open makes a link; nothing is dialed yet.
func (r *run) open(address string) (*link, error) {
	l := &link{address: address, refusals: &r.refusals}
	credentials := insecure.NewCredentials()
	if r.tls != nil {
		credentials = noting{r.credentials(), l}
	}
	dialer := net.Dialer{Timeout: r.config.ConnectTimeout}
	conn, err := rpc.NewClient("passthrough:///"+address,
		rpc.WithTransportCredentials(credentials),
		rpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, "tcp", to)
			if err != nil {
				return nil, err
			}
			return &watched{c, silence}, nil
		}),
		rpc.WithConnectParams(rpc.ConnectParams{MinConnectTimeout: r.config.ConnectTimeout,
			Backoff: backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff}}),
		rpc.WithDefaultCallOptions(rpc.MaxCallRecvMsgSize(r.config.MaxMessage), rpc.MaxCallSendMsgSize(r.config.MaxMessage)),
		rpc.WithStatsHandler(sends{}),
		rpc.WithDisableServiceConfig(), rpc.WithDisableRetry(), rpc.WithNoProxy(), rpc.WithIdleTimeout(0))
	if err != nil {
		return nil, &transport.PeerError{Code: transport.PeerBad, Text: "the address " + address + " is none: " + err.Error(), Err: err}
	}
	l.conn = conn
	return l, nil
}

// enter gives the link to a node, for one call.
func (r *run) enter(address string) (*link, error) {
	if host, _, err := net.SplitHostPort(address); err != nil {
		return nil, &transport.PeerError{Code: transport.PeerBad, Text: "the address " + address + " is not host:port", Err: err}
	} else if r.tls == nil && !r.config.Insecure && !isLoopback(host) {
		return nil, &transport.PeerError{Code: transport.PeerDenied, Text: "node " + address + " is on another machine, and the call would go there without TLS: give both certificates with TLS: grpc.MutualTLS(certFile, keyFile, caFile); Insecure: true says that the network is safe"}
	}
	r.links.Lock()
	defer r.links.Unlock()
	l := r.links.by[address]
	if r.links.shut {
		return nil, stopped()
	}
	if l == nil {
		var err error
		if l, err = r.open(address); err != nil {
			return nil, err
		}
		r.links.by[address] = l
	}
	if l.inside >= r.config.MaxInside {
		return nil, &transport.PeerError{Code: transport.PeerBusy, Text: "as many calls as MaxInside allows wait for node " + address}
	}
	l.inside++
	return l, nil
}

func (r *run) leave(l *link) {
	now := time.Now()
	r.links.Lock()
	defer r.links.Unlock()
	l.inside--
	l.used = now
}

// sweep closes the links that nobody used for a while, for members come and go, each at an address of its own; and tells of refusals what is left to be said.
func (r *run) sweep(ctx context.Context) {
	tick := time.NewTicker(min(max(r.config.IdleAfter/2, time.Millisecond), said.Quiet))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.closeLinks(func(l *link) bool { return l.inside == 0 && now.Sub(l.used) >= r.config.IdleAfter })
			r.refusals.catchUp()
		}
	}
}

func (r *run) closeLinks(which func(*link) bool) {
	r.links.Lock()
	var out []*link
	for address, l := range r.links.by {
		if which(l) {
			delete(r.links.by, address)
			out = append(out, l)
		}
	}
	r.links.Unlock()
	for _, l := range out {
		l.close()
	}
}
