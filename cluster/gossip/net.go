package gossip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// network is the network of one list of members, which notices when it is gone: memberlist goes on for ever on a closed socket.
type network struct {
	memberlist.NodeAwareTransport
	own    string        // address on which it listens
	broken chan struct{} // holds a token when it is gone
	gone   atomic.Bool
	silent int // looks in a row to which it has not answered; by mend alone
}

// WriteToAddress implements [memberlist.NodeAwareTransport].
func (n *network) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	at, err := n.NodeAwareTransport.WriteToAddress(b, to)
	if errors.Is(err, net.ErrClosed) {
		n.gone.Store(true)
		token(n.broken)
	}
	return at, err
}

// answers reports whether it is still there. One look without an answer proves nothing.
func (n *network) answers() bool {
	if n.gone.Load() {
		return false
	}
	conn, err := n.DialAddressTimeout(memberlist.Address{Addr: n.own}, time.Second)
	if err != nil {
		n.silent++
		return n.silent < 2
	}
	n.silent = 0
	_ = conn.Close() // nothing was said
	return true
}

// listen opens both sockets on one port.
func listen(bind netip.AddrPort, logs *logs) (memberlist.NodeAwareTransport, error) {
	tries := 1
	if bind.Port() == 0 {
		tries = 10 // the port that is free for one of the two may not be for the other
	}
	var last error
	for range tries {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()), Logger: logs.standard()})
		if err == nil {
			return t, nil
		}
		last = err
	}
	return nil, last
}

// bindAdvice says what to do about an address that cannot be listened on.
func bindAdvice(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "address already in use"):
		return fmt.Errorf("another process has it: choose another port, or port 0 for any (%w)", err)
	case strings.Contains(text, "cannot assign requested address"):
		return fmt.Errorf("it is no address of this machine: set Bind to one that is, and Advertise to the one that others know (%w)", err)
	default:
		return err
	}
}
