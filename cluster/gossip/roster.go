package gossip

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// roster is what was heard of whom. It decides nothing by the clock but what to forget, and does no I/O.
type roster struct {
	self    transport.Member
	sum     string // of its names
	members map[string]*heard
	lists   map[string][]string // of names, by sum
	version int                 // grows with what heard gives
}

// heard is a member as it was last heard of. An id is of one incarnation: who has left does not come back under it.
type heard struct {
	member transport.Member
	sum    string
	state  transport.HeardState
	since  time.Time // that it is in this state
}

const (
	remembered = time.Hour // that a member that is gone is tried again, or told of
	mostGone   = 1000      // members that are gone
)

func newRoster(self transport.Member, sum string) *roster {
	return &roster{self: self, sum: sum, members: map[string]*heard{}, lists: map[string][]string{sum: self.Names}}
}

// alive: a member was heard of, or says something new of itself.
func (r *roster) alive(m transport.Member, sum string, now time.Time) {
	if m.ID == r.self.ID {
		return
	}
	h := r.members[m.ID]
	if h == nil {
		h = &heard{}
		r.members[m.ID] = h
	} else if h.state == transport.HeardLeft {
		return
	}
	if sumOf(m.Names) == sum {
		r.lists[sum] = m.Names
	}
	if h.member.ID == "" || h.state != transport.HeardAlive {
		h.state, h.since = transport.HeardAlive, now
		r.version++
	} else if h.sum != sum || !reflect.DeepEqual(h.member, m) {
		r.version++
	}
	h.member, h.sum = m, sum
}

// lost: a member does not answer.
func (r *roster) lost(id string, now time.Time) {
	if h := r.members[id]; h != nil && h.state == transport.HeardAlive {
		h.state, h.since = transport.HeardUnreachable, now
		r.version++
	}
}

// allLost: nobody is heard any more, because this node's own network was gone.
func (r *roster) allLost(now time.Time) {
	for id := range r.members {
		r.lost(id, now)
	}
}

// left: a member has said that it goes, to this node or to another one.
func (r *roster) left(id string, now time.Time) {
	if id == r.self.ID {
		return
	}
	h := r.members[id]
	if h == nil { // it may still be told of by somebody who does not know
		h = &heard{member: transport.Member{ID: id, StoreID: r.self.StoreID}}
		r.members[id] = h
	} else if h.state == transport.HeardLeft {
		return
	}
	h.state, h.since = transport.HeardLeft, now
	r.version++
}

// merge takes over what another node knows.
func (r *roster) merge(s state, now time.Time) {
	for sum, names := range s.Lists {
		if _, known := r.lists[sum]; !known {
			r.lists[sum] = names
			r.version++
		}
	}
	for _, id := range s.Left {
		if r.members[id] != nil { // who was forgotten would be told of for ever, each node hearing it from another
			r.left(id, now)
		}
	}
	r.forget(now)
}

// forget drops members that have long been gone, and lists that nobody has.
func (r *roster) forget(now time.Time) {
	var gone []*heard
	used := map[string]bool{r.sum: true}
	for id, h := range r.members {
		if h.state != transport.HeardAlive && now.Sub(h.since) > remembered {
			delete(r.members, id)
			continue
		}
		used[h.sum] = true
		if h.state != transport.HeardAlive {
			gone = append(gone, h)
		}
	}
	if more := len(gone) - mostGone; more > 0 {
		slices.SortFunc(gone, func(a, b *heard) int { return a.since.Compare(b.since) })
		for _, h := range gone[:more] {
			delete(r.members, h.member.ID)
		}
	}
	maps.DeleteFunc(r.lists, func(sum string, _ []string) bool { return !used[sum] })
}

// heard gives all members whose names are known: of a member without them nobody could say what it runs.
func (r *roster) heard() []transport.Heard {
	var all []transport.Heard
	for _, h := range r.members {
		m := h.member
		names, known := r.lists[h.sum]
		if !known && h.state != transport.HeardLeft {
			continue
		}
		m.Names = names
		all = append(all, transport.Heard{Member: m, State: h.state})
	}
	slices.SortFunc(all, func(a, b transport.Heard) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	return all
}

// leavers gives the ids of those that have left, in order.
func (r *roster) leavers() []string {
	var ids []string
	for id, h := range r.members {
		if h.state == transport.HeardLeft {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// due says whom to exchange states with: members that were lost or whose names are not known, and seeds that are nobody we hear.
func (r *roster) due(own string, seeds []string) (members, others []string) {
	hear := map[string]bool{"": true, own: true}
	for _, h := range r.members {
		if h.state == transport.HeardAlive {
			hear[h.member.Gossip] = true
		}
	}
	want := map[string]bool{}
	for _, h := range r.members {
		_, known := r.lists[h.sum]
		if h.state == transport.HeardUnreachable && !hear[h.member.Gossip] || h.state == transport.HeardAlive && !known {
			want[h.member.Gossip] = true
		}
	}
	delete(want, "")
	members = slices.Sorted(maps.Keys(want))
	for _, seed := range seeds {
		if !hear[seed] && !want[seed] {
			want[seed] = true
			others = append(others, seed)
		}
	}
	return members, others
}

// reached gives the addresses of members that are alive.
func (r *roster) reached() []string {
	var addresses []string
	for _, h := range r.members {
		if h.state == transport.HeardAlive {
			addresses = append(addresses, h.member.Gossip)
		}
	}
	slices.Sort(addresses)
	return addresses
}
