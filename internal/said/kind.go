package said

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	// Quiet is how long nothing more is said of a kind when there was enough.
	Quiet = time.Minute

	mostSaid = 3    // lines of a kind within Quiet, about one address each
	mostFrom = 1000 // addresses that are told apart
)

// Kind is a kind of thing that is said. Its zero value is one of which nothing was said yet; it may be used by several goroutines.
type Kind struct {
	mu     sync.Mutex
	since  time.Time
	about  [mostSaid]string
	unsaid int
	from   map[string]struct{} // addresses of these
}

// Note takes one more, about an address, and reports whether it is to be written; before it more, where that is not "".
func (k *Kind) Note(address string) (more string, write bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	more = k.overLocked(now)
	for i, known := range k.about {
		if known == "" {
			k.about[i] = address
			return more, true
		}
		if known == address {
			break
		}
	}
	k.unsaid++
	if k.from == nil {
		k.from = map[string]struct{}{}
	}
	if len(k.from) < mostFrom {
		k.from[address] = struct{}{}
	}
	return more, false
}

// Over gives what there is to be said of a time that is over, "and 3 more from 2 addresses in the last minute"; "" = nothing. Whoever calls it now and then tells of what nothing has followed.
func (k *Kind) Over() string {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overLocked(now)
}

func (k *Kind) overLocked(now time.Time) string {
	if now.Sub(k.since) < Quiet {
		return ""
	}
	unsaid, from := k.unsaid, len(k.from)
	k.since, k.about, k.unsaid, k.from = now, [mostSaid]string{}, 0, nil
	if unsaid == 0 {
		return ""
	}
	addresses := "1 address"
	switch {
	case from == mostFrom:
		addresses = fmt.Sprintf("%d addresses or more", from)
	case from > 1:
		addresses = fmt.Sprintf("%d addresses", from)
	}
	return fmt.Sprintf("and %d more from %s in the last minute", unsaid, addresses)
}

// Host leaves out the port, of which each connection has another one.
func Host(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return a.Addr().String()
	}
	return cmp.Or(address, "unknown")
}
