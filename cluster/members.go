package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// listed is the broker's list as it was last read. A broker that does not answer makes it no older: what is not known to have changed stays.
type listed struct {
	members []transport.Member
	at      time.Time // of the last read
	grown   map[string]grown
}

// grown is since when a member has not beaten anew.
type grown struct {
	beats int64
	since time.Time
}

// read takes a new list.
func (l *listed) read(members []transport.Member, now time.Time) {
	was := l.grown
	l.members, l.at, l.grown = members, now, make(map[string]grown, len(members))
	for i := range members {
		m := &members[i]
		g, known := was[m.ID]
		if !known || g.beats != m.Beats {
			g = grown{m.Beats, now}
		}
		l.grown[m.ID] = g
	}
}

// joined gives the members of the application, from the list and from what was heard. Gossip is the quicker of the two, the list the more certain; where they disagree, the one that
// makes nothing move wins, so that neither alone, cut off, takes a unit from anybody:
//
//   - who has said that it leaves is out;
//   - who drains, or is apart, by either of the two, is so;
//   - who is on the list stays, although it does not answer, unless it has not beaten for longer than patience while others could be read;
//   - who is heard is in, although it is not on the list: that may be gone.
//
// self, as it is now, is always among them.
func (l *listed) joined(self transport.Member, heard []transport.Heard, patience time.Duration) []transport.Member {
	all := make(map[string]transport.Member, len(l.members)+len(heard))
	for i := range l.members {
		all[l.members[i].ID] = l.members[i]
	}
	for i := range heard {
		h := &heard[i]
		m, isListed := all[h.Member.ID]
		switch {
		case h.State == transport.HeardLeft, h.State == transport.HeardUnreachable && isListed && l.at.Sub(l.grown[m.ID].since) > patience:
			delete(all, h.Member.ID)
		case h.State == transport.HeardUnreachable: // what it said before is no news
		case isListed:
			m.Draining, m.Apart = m.Draining || h.Member.Draining, m.Apart || h.Member.Apart
			m.Address = cmp.Or(m.Address, h.Member.Address)
			all[m.ID] = m
		default:
			all[h.Member.ID] = h.Member
		}
	}
	self.Beats, self.Wants = 0, nil
	all[self.ID] = self
	return slices.SortedFunc(maps.Values(all), func(a, b transport.Member) int { return cmp.Compare(a.ID, b.ID) })
}
