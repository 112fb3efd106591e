package cluster

import (
	"net"
	"net/netip"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// field is who there is to be asked, as a process sees it.
type field struct {
	*Placement        // never nil
	self       string // the member that this process is; "" = none
	far        bool   // this process is reached from other hosts, so that who says to be on loopback is on another one
}

// canAsk reports whether a member can be asked from here.
func (f *field) canAsk(m *transport.Member) bool {
	return f.self != "" && m.ID == f.self || f.reaches(m.Address)
}

func (f *field) reaches(address string) bool {
	return address != "" && !(f.far && isLoopback(address))
}

// member gives the member with that id, or nil.
func (f *field) member(id string) *transport.Member {
	if i := slices.IndexFunc(f.members, func(m placed) bool { return m.ID == id }); i >= 0 && id != "" {
		return &f.members[i].Member
	}
	return nil
}

// first gives the member that ranks first for a unit among those that can be asked and are not left out; nil = there is none.
func (f *field) first(u event.Unit, without ...string) *transport.Member {
	var best score
	var first *transport.Member
	key := hashOf(u)
	for _, i := range f.rivals(u) {
		m := &f.members[i]
		if m.away() || !f.canAsk(&m.Member) || slices.Contains(without, m.ID) {
			continue
		}
		if s := m.score(key); first == nil || s.above(best) {
			first, best = &m.Member, s
		}
	}
	return first
}

// outlook counts who runs a unit.
type outlook struct {
	run  int
	away int                // of these, draining or apart
	mute []transport.Member // of these, cannot be asked from here; neither draining nor apart
	self bool               // this process is one of them
}

func (f *field) outlook(u event.Unit) (o outlook) {
	for _, i := range f.rivals(u) {
		m := &f.members[i]
		o.run++
		o.self = o.self || m.ID == f.self
		switch {
		case m.away():
			o.away++
		case !f.canAsk(&m.Member):
			o.mute = append(o.mute, m.Member)
		}
	}
	return o
}

// isLoopback reports whether an address, host:port, is reached from its own host alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
