package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// Preset says what network lies between the nodes.
type Preset uint8

const (
	LAN     Preset = iota // one data centre
	WAN                   // several: slower to notice, fewer false alarms
	Local                 // one machine, or tests
	TCPOnly               // as LAN, where UDP does not come through: whole states go over TCP, every two seconds
)

func (p Preset) String() string {
	if int(p) < len(presets) {
		return presets[p]
	}
	return "Preset(" + strconv.Itoa(int(p)) + ")"
}

var presets = []string{"LAN", "WAN", "Local", "TCPOnly"}

// Config is what a [Gossip] is made of. The zero value talks to nodes of this machine.
type Config struct {
	Bind      string // address and port to listen on, TCP and UDP; default "127.0.0.1:0", any port of this machine alone
	Advertise string // address, or address and port, where others reach it; default Bind, which then must be an address that others reach
	Preset    Preset
	Seeds     []string // nodes to find the others by, host:port, beside those that the cluster knows; names are looked up each time
	// Keys seal what is said: the first seals, all of them open. 16, 24 or 32 bytes each (AES-128, -192, -256). See [Gossip.SetKeys] for how to change them.
	Keys [][]byte
	// KeyFile has the keys, one in each line, instead: see [ReadKeys]. It is looked at each time that the node looks for whom to join (every 15 s; WAN: 30 s, Local: 3 s), and read again
	// when it has changed: no restart is needed. While it makes no sense, the keys of before count.
	KeyFile  string
	Insecure bool         // allows a Bind beyond this machine without Keys or KeyFile
	Logger   *slog.Logger // default: that of the application, see [Gossip.LogTo]; else discards

	// listen opens the network; tests have their own.
	listen func(bind netip.AddrPort, logs *logs) (memberlist.NodeAwareTransport, error)
}

// check reports all faults at once.
func (c *Config) check() error {
	var faults []error
	wrong := func(when bool, format string, args ...any) {
		if when {
			faults = append(faults, fmt.Errorf("gossip: "+format, args...))
		}
	}
	wrong(int(c.Preset) >= len(presets), "Preset %d is none of LAN, WAN, Local, TCPOnly", c.Preset)
	bind, _, err := splitAddress(c.Bind)
	wrong(err != nil, "Bind %q: %v; write address:port, such as 127.0.0.1:7946", c.Bind, err)
	unspecified, loopback := kindOf(bind)
	wrong(err == nil && !loopback && len(c.Keys) == 0 && c.KeyFile == "" && !c.Insecure,
		"Bind %q is reached from other machines, and there are no Keys: anybody there could pass for a node; set Keys (32 random bytes, the same for all nodes) or KeyFile, or Insecure if the network is closed to others", c.Bind)
	if c.Advertise == "" {
		wrong(err == nil && unspecified, "Bind %q names no address that others could connect to; set Advertise to the one under which this machine is reached (in Kubernetes the pod's own address)", c.Bind)
	} else {
		host, _, err := splitAddress(c.Advertise)
		wrong(err != nil, "Advertise %q: %v; write an address, or address:port", c.Advertise, err)
		nowhere, here := kindOf(host)
		wrong(err == nil && nowhere, "Advertise %q is no address that others could connect to; set the one under which this machine is reached", c.Advertise)
		wrong(err == nil && here && !loopback, "Advertise %q leads other machines to themselves, while Bind is %q; set the address under which this machine is reached", c.Advertise, c.Bind)
	}
	for i, seed := range c.Seeds {
		_, port, err := splitAddress(seed)
		wrong(err != nil || port == 0, "Seeds[%d] %q: write host:port, such as orders.internal:7946", i, seed)
	}
	wrong(len(c.Keys) > 0 && c.KeyFile != "", "both Keys and KeyFile are set: leave one out")
	if err := checkKeys(c.Keys); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func checkKeys(keys [][]byte) error {
	var faults []error
	for i, key := range keys {
		if memberlist.ValidateKey(key) != nil {
			faults = append(faults, fmt.Errorf("gossip: Keys[%d] has %d bytes: a key has 16, 24 or 32 random bytes", i, len(key)))
		}
	}
	return errors.Join(faults...)
}

// splitAddress takes host:port, or a host alone: then the port is 0.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		if _, ipErr := netip.ParseAddr(address); ipErr != nil && !isName(address) {
			return "", 0, errors.New("is not an address")
		}
		return address, 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number up to 65535", text)
	}
	return host, int(n), nil
}

func isName(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == ':' || r == '/' {
			return false
		}
	}
	return s != ""
}

// kindOf says whether a host names no address in particular, and whether it is reached from this machine alone. Of a name other than localhost neither is known before it is looked up.
func kindOf(host string) (unspecified, loopback bool) {
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return ip.IsUnspecified(), ip.Unmap().IsLoopback()
	default:
		return host == "", host == "localhost"
	}
}

// timing is what a preset comes to, beyond what memberlist makes of it.
type timing struct {
	rejoin   time.Duration // between two looks for whom to join
	debounce time.Duration // in which several changes are told as one
	leave    time.Duration // that a leave may take
}

// settings gives the library's settings for a preset.
func (p Preset) settings() (*memberlist.Config, timing) {
	t := timing{rejoin: 15 * time.Second, debounce: 50 * time.Millisecond, leave: 2 * time.Second}
	var c *memberlist.Config
	switch p {
	case WAN:
		c = memberlist.DefaultWANConfig()
		c.TCPTimeout = 10 * time.Second
		t.rejoin, t.leave = 30*time.Second, 4*time.Second
	case Local:
		c = memberlist.DefaultLocalConfig()
		t.rejoin, t.leave = 3*time.Second, time.Second
	case TCPOnly:
		c = memberlist.DefaultLANConfig()
		c.TCPTimeout = 3 * time.Second
		c.PushPullInterval = 2 * time.Second
		c.ProbeTimeout = 100 * time.Millisecond // before TCP is tried
	default:
		c = memberlist.DefaultLANConfig()
		c.TCPTimeout = 3 * time.Second
	}
	return c, t
}

func (c Config) withDefaults() Config {
	c.Bind = cmp.Or(c.Bind, "127.0.0.1:0")
	if c.listen == nil {
		c.listen = listen
	}
	return c
}
