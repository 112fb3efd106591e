package simnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Net is a network. All methods may be called concurrently.
type Net struct {
	mu struct {
		sync.Mutex
		rng    *rand.Rand
		nodes  map[string]*Wire
		faults Faults
		cut    func(from, to string) bool
		frozen map[string]bool
		sent   int
	}
}

// Faults are what happens to packets. Streams only lose their connection attempts, as often as packets are lost.
type Faults struct {
	Loss, Twice float64 // chances
	Delay       time.Duration
	Jitter      time.Duration
	NoPackets   bool // none arrives: UDP is blocked
}

// New makes a network whose chances come from seed.
func New(seed uint64) *Net {
	n := &Net{}
	n.mu.rng = rand.New(rand.NewPCG(seed, 0))
	n.mu.nodes, n.mu.frozen = map[string]*Wire{}, map[string]bool{}
	n.mu.faults = Faults{Delay: time.Millisecond, Jitter: 3 * time.Millisecond}
	return n
}

// Set sets what happens to packets from now on.
func (n *Net) Set(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.faults = f
}

// Cut has nothing pass between two addresses for which cut holds; nil = everything passes.
func (n *Net) Cut(cut func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.cut = cut
}

// Freeze has an address neither send nor get anything, as a process that is stopped.
func (n *Net) Freeze(address string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.frozen[address] = on
}

// Sent counts packets.
func (n *Net) Sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.sent
}

// Kill takes the sockets of an address away, without a word to whoever has them.
func (n *Net) Kill(address string) {
	n.mu.Lock()
	w := n.mu.nodes[address]
	delete(n.mu.nodes, address)
	n.mu.Unlock()
	if w != nil {
		w.once.Do(func() { close(w.closed) })
	}
}

// Listen opens an address.
func (n *Net) Listen(at netip.AddrPort) (*Wire, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.nodes[at.String()] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	w := &Wire{net: n, at: at, packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.nodes[at.String()] = w
	return w, nil
}

// way says what becomes of what goes from one address to another: nil = nothing arrives.
func (n *Net) way(from, to string) *Wire {
	if from == to { // it does not leave the machine
		return n.mu.nodes[to]
	}
	if n.mu.frozen[from] || n.mu.frozen[to] || n.mu.cut != nil && n.mu.cut(from, to) {
		return nil
	}
	return n.mu.nodes[to]
}

// Wire implements [memberlist.NodeAwareTransport] for one address.
type Wire struct {
	net     *Net
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

var _ memberlist.NodeAwareTransport = (*Wire)(nil)

// FinalAdvertiseAddr implements [memberlist.Transport].
func (w *Wire) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return w.at.Addr().AsSlice(), int(w.at.Port()), nil
	}
	return net.ParseIP(ip), port, nil
}

// WriteTo implements [memberlist.Transport].
func (w *Wire) WriteTo(b []byte, to string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: to})
}

// WriteToAddress implements [memberlist.NodeAwareTransport].
func (w *Wire) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	select {
	case <-w.closed:
		return time.Time{}, &net.OpError{Op: "write", Net: "udp", Err: net.ErrClosed}
	default:
	}
	n := w.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sent++
	f := n.mu.faults
	copies := 1
	if n.mu.rng.Float64() < f.Twice {
		copies = 2
	}
	for range copies {
		if f.NoPackets || n.mu.rng.Float64() < f.Loss {
			continue
		}
		delay := f.Delay
		if f.Jitter > 0 {
			delay += time.Duration(n.mu.rng.Int64N(int64(f.Jitter)))
		}
		body := append([]byte(nil), b...)
		time.AfterFunc(delay, func() { n.deliver(w.at, to.Addr, body) })
	}
	return time.Now(), nil
}

func (n *Net) deliver(from netip.AddrPort, to string, body []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dst := n.way(from.String(), to)
	if dst == nil {
		return
	}
	select {
	case dst.packets <- &memberlist.Packet{Buf: body, From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}:
	default: // its buffer is full
	}
}

// PacketCh implements [memberlist.Transport].
func (w *Wire) PacketCh() <-chan *memberlist.Packet { return w.packets }

// DialTimeout implements [memberlist.Transport].
func (w *Wire) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: to}, timeout)
}

// DialAddressTimeout implements [memberlist.NodeAwareTransport].
func (w *Wire) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	n := w.net
	n.mu.Lock()
	refused := n.mu.nodes[to.Addr] == nil
	dst := n.way(w.at.String(), to.Addr)
	if n.mu.rng.Float64() < n.mu.faults.Loss {
		dst = nil
	}
	n.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	if dst == nil {
		select {
		case <-late.C:
		case <-w.closed:
		}
		return nil, fmt.Errorf("dial %s: %w", to.Addr, errLate)
	}
	here, there := net.Pipe()
	select {
	case dst.streams <- conn{there, w.at}:
		return conn{here, netip.MustParseAddrPort(to.Addr)}, nil
	case <-dst.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-late.C:
		return nil, fmt.Errorf("dial %s: %w", to.Addr, errLate)
	}
}

var errLate = errors.New("i/o timeout")

// StreamCh implements [memberlist.Transport].
func (w *Wire) StreamCh() <-chan net.Conn { return w.streams }

// Shutdown implements [memberlist.Transport].
func (w *Wire) Shutdown() error {
	w.once.Do(func() { close(w.closed) })
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if w.net.mu.nodes[w.at.String()] == w {
		delete(w.net.mu.nodes, w.at.String())
	}
	return nil
}

// conn is a pipe that knows the other end's address.
type conn struct {
	net.Conn
	peer netip.AddrPort
}

// RemoteAddr implements [net.Conn].
func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.peer) }
