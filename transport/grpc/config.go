package grpc

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Defaults of [Config].
const (
	DefaultBind           = "127.0.0.1:0"
	DefaultMaxMessage     = 4 << 20
	DefaultMaxInside      = 1024
	defaultMessages       = 64 // of the longest, in MaxBytes
	DefaultMaxLinks       = 1024
	DefaultConnectTimeout = 3 * time.Second
	DefaultIdleAfter      = time.Minute

	// A node sends something on each link at least once per ping. Whoever hears nothing for silence takes the link for broken. Both are the same on all nodes, for each side counts on
	// the other.
	ping    = 2 * time.Second
	silence = 3 * ping

	firstBackoff, longestBackoff = 100 * time.Millisecond, 3 * time.Second
	// linkAge is after how long a link is replaced, so that no certificate counts for longer than that after its end. What is inside is answered first.
	linkAge = time.Hour
)

// Config says where a node listens, and what it takes. Its zero value listens on a port of this machine that others cannot reach.
type Config struct {
	// Bind is where to listen, host:port; default 127.0.0.1 and a free port.
	Bind string
	// Advertise is where others reach it, host:port, or host alone for the port of Bind; default what Bind says, which then must name one address.
	Advertise string
	// TLS, see [MutualTLS]. Without it nothing goes beyond this machine unless Insecure.
	TLS *TLS
	// Insecure: without TLS, whoever reaches the port may read and send everything. For networks that are encrypted by other means.
	Insecure bool

	MaxMessage int // bytes of a question or answer; default 4 MiB
	// MaxInside is how many asks a node has inside at once, of which one link has three quarters at most, and less while others have many; and how many of this side wait on one link;
	// default 1,024.
	MaxInside int
	// MaxBytes is how many bytes a node holds of what comes and goes on the links that others have to it; default 64 times MaxMessage, at least 4 times that. Half of it is for questions
	// on their way in, each of which counts as MaxMessage until it is there; the other half for questions inside and for answers that are not taken. One link has half of either at
	// most, and less while others have much, so that there is room for those that have little. What is more is refused with [transport.PeerBusy], and nothing was done; an answer that
	// its link does not take is thrown away, and the caller told that it may have been done.
	// Beside it, and not counted: for each call of a link that waits to come, 64 KiB at most, of which 128 do; answers of up to 4 KiB; and what a message takes when it is decoded.
	MaxBytes       int
	MaxLinks       int           // that others have open to this node; default 1,024
	ConnectTimeout time.Duration // to open a link, handshake included; default 3 s
	IdleAfter      time.Duration // an unused link is closed; default 1 min

	Logger *slog.Logger // default: that of the application or client, see [Peers.LogTo]; else slog.Default()
}

// withDefaults gives the settings in full, or everything that is wrong with them.
func (c Config) withDefaults(listens bool) (Config, error) {
	c.Bind = or(c.Bind, DefaultBind)
	c.MaxMessage = or(c.MaxMessage, DefaultMaxMessage)
	c.MaxInside = or(c.MaxInside, DefaultMaxInside)
	c.MaxBytes = or(c.MaxBytes, defaultMessages*c.MaxMessage)
	c.MaxLinks = or(c.MaxLinks, DefaultMaxLinks)
	c.ConnectTimeout = or(c.ConnectTimeout, DefaultConnectTimeout)
	c.IdleAfter = or(c.IdleAfter, DefaultIdleAfter)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.TLS != nil {
		faults = append(faults, c.TLS.faults()...)
		if c.Insecure {
			fault("both TLS and Insecure are set: leave one out")
		}
	}
	if c.MaxMessage < 1024 || c.MaxMessage > 1<<30 {
		fault("MaxMessage is %d, it must be from 1 KiB to 1 GiB", c.MaxMessage)
	}
	if c.MaxBytes < 4*c.MaxMessage {
		fault("MaxBytes is %d, it must be at least 4 times MaxMessage (%d)", c.MaxBytes, c.MaxMessage)
	}
	if c.MaxInside < 1 || c.MaxInside > 1<<20 || c.MaxLinks < 1 {
		fault("MaxInside is %d and MaxLinks %d, each must be at least 1, and MaxInside at most %d", c.MaxInside, c.MaxLinks, 1<<20)
	}
	if c.ConnectTimeout < time.Millisecond || c.IdleAfter < time.Millisecond {
		fault("ConnectTimeout is %v and IdleAfter %v, each must be at least 1ms", c.ConnectTimeout, c.IdleAfter)
	}
	if listens {
		faults = append(faults, c.addressFaults()...)
	}
	return c, errors.Join(faults...)
}

func (c *Config) addressFaults() []error {
	host, _, err := net.SplitHostPort(c.Bind)
	if err != nil {
		return []error{fmt.Errorf("the address to listen on, %q, is not host:port: %w", c.Bind, err)}
	}
	var faults []error
	if c.TLS == nil && !c.Insecure && !isLoopback(host) {
		faults = append(faults, fmt.Errorf("the node service is to listen on %s, where others than this machine reach it, without TLS: give it certificates with TLS: grpc.MutualTLS(certFile, keyFile, caFile), or listen on 127.0.0.1; Insecure: true says that the network is safe", c.Bind))
	}
	if c.Advertise == "" && isWildcard(host) {
		faults = append(faults, fmt.Errorf("the node service listens on all addresses of this machine (%s): say in Advertise at which one other nodes reach it", c.Bind))
	}
	return faults
}

// advertised gives the address for others, where the one bound to is known.
func (c *Config) advertised(bound net.Addr) string {
	if c.Advertise == "" {
		return bound.String()
	}
	_, port, _ := net.SplitHostPort(bound.String())
	host, said, err := net.SplitHostPort(c.Advertise)
	switch {
	case err != nil: // a host alone
		return net.JoinHostPort(c.Advertise, port)
	case said == "0" || said == "":
		return net.JoinHostPort(host, port)
	}
	return c.Advertise
}

// isLoopback: a name other than localhost may be any machine.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.Unmap().IsUnspecified()
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
