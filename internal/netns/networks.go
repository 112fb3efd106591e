package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/keyhold/keyhold/internal/child"
)

var (
	// ErrMissing: programs are not there that could be.
	ErrMissing = errors.New("the programs ip and bridge are not in the path: install them (Debian: apt-get install iproute2)")
	// ErrRefused: this system makes no network namespaces for this process.
	ErrRefused = errors.New("no network namespaces here")
)

const (
	most    = 200 // networks, and hosts: each is one byte of an address
	longest = 15  // of an interface's name
	prefix  = 24
)

// Networks are bridges in one namespace. All methods may be called concurrently.
type Networks struct {
	names  []string
	centre *space
	mu     struct {
		sync.Mutex
		hosts  []*Host
		closed bool
	}
}

// Open makes networks with these names, which become names of interfaces: at most 15 letters. What is missing is [ErrMissing] or [ErrRefused].
func Open(names ...string) (_ *Networks, err error) {
	if err := check(names); err != nil {
		return nil, err
	}
	centre, err := newSpace()
	if err != nil {
		return nil, err
	}
	n := &Networks{names: slices.Clone(names), centre: centre}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	lines := []string{"link set lo up"}
	for i, name := range names {
		// A bridge without an address of its own takes the lowest of its ports', and another one when a host comes: who has the former one in mind
		// then talks to nobody.
		lines = append(lines, fmt.Sprintf("link add %s address 02:00:00:00:00:%02x type bridge", name, i), fmt.Sprintf("addr add %v/%d dev %s", address(i, 0), prefix, name), "link set "+name+" up")
	}
	if err := centre.have("ip", lines...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return n, nil
}

func check(names []string) error {
	if len(names) == 0 || len(names) > most {
		return fmt.Errorf("netns: %d networks: from 1 to %d", len(names), most)
	}
	for i, name := range names {
		plain := name != "" && name != "lo" && len(name) <= longest
		for _, r := range name {
			plain = plain && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
		}
		if !plain {
			return fmt.Errorf("netns: a network cannot be called %q: from 1 to %d small letters and digits", name, longest)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("netns: two networks are called %q", name)
		}
	}
	return nil
}

// address of a host, or of the centre, which is number 0.
func address(network, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(network + 1), 0, byte(host + 1)})
}

func (n *Networks) index(network string) (int, error) {
	if i := slices.Index(n.names, network); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("netns: there is no network %q: %v", network, n.names)
}

// Addr is where the centre is reached in a network. A name that is none panics.
func (n *Networks) Addr(network string) netip.Addr { return n.at(network, 0) }

func (n *Networks) at(network string, host int) netip.Addr {
	i, err := n.index(network)
	if err != nil {
		panic(err)
	}
	return address(i, host)
}

// Within runs f in the centre: what its goroutine itself opens is of the centre, and so is each process that it starts, for as long as that runs.
// Other goroutines are where they were. An error is f's, or says that the centre is gone: then f was not run.
func (n *Networks) Within(f func() error) error { return n.centre.within(f) }

// Close ends the networks. What still runs in them is cut off.
func (n *Networks) Close() error {
	n.mu.Lock()
	hosts := n.mu.hosts
	n.mu.hosts, n.mu.closed = nil, true
	n.mu.Unlock()
	var faults []error
	for _, h := range hosts {
		faults = append(faults, h.space.close())
	}
	return errors.Join(append(faults, n.centre.close())...)
}

// Host is a namespace with an interface into each network, called as that. All methods may be called concurrently.
type Host struct {
	networks *Networks
	number   int
	space    *space
}

// Host makes a host that all others reach in all networks.
func (n *Networks) Host() (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock() // one at a time: ip is quick
	if n.mu.closed {
		return nil, errors.New("netns: the networks are closed")
	}
	if len(n.mu.hosts) == most {
		return nil, fmt.Errorf("netns: there are %d hosts already", most)
	}
	s, err := newSpace()
	if err != nil {
		return nil, err
	}
	h := &Host{networks: n, number: len(n.mu.hosts) + 1, space: s}
	var centre, own []string
	for i, name := range n.names {
		port := h.port(i)
		// ip takes a path for a namespace without a name.
		centre = append(centre, "link add "+port+" type veth peer name "+name+" netns "+s.path(), "link set "+port+" master "+name, "link set "+port+" up")
		own = append(own, fmt.Sprintf("addr add %v/%d dev %s", address(i, h.number), prefix, name), "link set "+name+" up")
	}
	if err = n.centre.have("ip", centre...); err == nil {
		err = s.have("ip", append([]string{"link set lo up"}, own...)...)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	n.mu.hosts = append(n.mu.hosts, h)
	return h, nil
}

// port is the name of the end of an interface that is in the bridge.
func (h *Host) port(network int) string {
	return "h" + strconv.Itoa(h.number) + "." + strconv.Itoa(network) // no network has a point in its name
}

// Addr is where the host is reached in a network. A name that is none panics.
func (h *Host) Addr(network string) netip.Addr { return h.networks.at(network, h.number) }

// Within is as [Networks.Within], in the host.
func (h *Host) Within(f func() error) error { return h.space.within(f) }

// Cut has these networks lose all that comes from the host and goes to it, from when it returns. Neither the host nor anybody else is told.
func (h *Host) Cut(networks ...string) error { return h.carry(false, networks) }

// Heal has these networks carry again.
func (h *Host) Heal(networks ...string) error { return h.carry(true, networks) }

func (h *Host) carry(on bool, networks []string) error {
	const disabled, forwarding = "0", "3" // of a port of a bridge
	state := disabled
	if on {
		state = forwarding
	}
	var lines []string
	for _, name := range networks {
		i, err := h.networks.index(name)
		if err != nil {
			return err
		}
		lines = append(lines, "link set dev "+h.port(i)+" state "+state)
	}
	if len(lines) == 0 {
		return nil
	}
	return h.networks.centre.have("bridge", lines...) // ip takes this, too, and then does nothing
}

// TB is what is needed of [testing.TB].
type TB = child.TB

// Run opens networks that are closed when the test ends. Where there can be none the test is skipped; where they merely lack a program, it fails when CI
// is set.
func Run(tb TB, names ...string) *Networks {
	tb.Helper()
	n, err := Open(names...)
	if errors.Is(err, ErrRefused) {
		tb.Skip(err)
	}
	child.Check(tb, err, ErrMissing)
	tb.Cleanup(func() { n.Close() })
	return n
}
