package cluster

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// Placement ranks the members of an application for its units: by weighted rendezvous, so that every node that knows the same members
// comes to the same ranks without asking anybody, and a member that comes or goes moves only the units that it gains or had. It is immutable, and may be
// used concurrently. The zero value knows no member.
type Placement struct {
	members []placed
	byName  map[string][]int // of a subscriber: indexes into members that run it
	apart   map[string]bool  // subscribers that only members run which are apart, or drain
}

// placed is a member with the seed of its scores.
type placed struct {
	transport.Member
	seed uint64
}

// away: it takes nothing, as long as others do.
func (m *placed) away() bool { return m.Draining || m.Apart }

// away reports whether a member ranks nowhere for a unit. Where all are apart that run it, they rank as if none were: it is the store or the broker that is down, or slow, and whoever
// reaches it first is not to wait until all have said so.
func (p *Placement) away(u event.Unit, m *placed) bool {
	return m.Draining || m.Apart && !p.apart[u.Name]
}

// NewPlacement makes the placement of these members. Members are told apart by the name of their node, so that one that restarts gets the units back that it had;
// where several have one name, by the order in which they began.
func NewPlacement(members []transport.Member) *Placement {
	p := &Placement{byName: map[string][]int{}, apart: map[string]bool{}}
	ordered := slices.Clone(members)
	slices.SortFunc(ordered, func(a, b transport.Member) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	same := 0
	for i, m := range ordered {
		if same++; i == 0 || ordered[i-1].Node != m.Node {
			same = 0
		}
		p.members = append(p.members, placed{Member: m, seed: seedOf(m.Node, same)})
		for _, name := range m.Names {
			p.byName[name] = append(p.byName[name], i)
		}
	}
	p.apart[event.PartName] = true
	for i := range p.members {
		m := &p.members[i]
		p.apart[event.PartName] = p.apart[event.PartName] && m.away()
		for _, name := range m.Names {
			was, seen := p.apart[name]
			p.apart[name] = m.away() && (was || !seen)
		}
	}
	return p
}

// seedOf is the seed of the n-th member with a name.
func seedOf(node string, n int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node)) // never an error
	h.Write([]byte{0})
	h.Write([]byte(strconv.Itoa(n)))
	return h.Sum64()
}

// Members gives the members, in order of name.
func (p *Placement) Members() []transport.Member {
	all := make([]transport.Member, len(p.members))
	for i := range p.members {
		all[i] = p.members[i].Member
	}
	return all
}

// Rank gives the place of a member for a unit, 0 = first, among the members that run it and are neither draining nor, unless all are, apart. It is the number of members, or
// more, for one that is not among these, or that ranks itself last: unfit.
func (p *Placement) Rank(u event.Unit, id string, unfit bool) int {
	var own score
	among := false
	rivals := p.rivals(u)
	key := hashOf(u)
	for _, i := range rivals {
		if m := &p.members[i]; m.ID == id {
			own, among = m.score(key), !p.away(u, m)
		}
	}
	if !among {
		return len(p.members)
	}
	rank := 0
	for _, i := range rivals {
		m := &p.members[i]
		if m.ID == id || p.away(u, m) {
			continue
		}
		if unfit || m.score(key).above(own) {
			rank++
		}
	}
	return rank
}

// First gives the id of the member that ranks first for a unit; "" when nobody runs it.
func (p *Placement) First(u event.Unit) string {
	var best score
	first, key := "", hashOf(u)
	for _, i := range p.rivals(u) {
		m := &p.members[i]
		if p.away(u, m) {
			continue
		}
		if s := m.score(key); first == "" || s.above(best) {
			first, best = m.ID, s
		}
	}
	return first
}

// Asked offers the units that others want, as members say, to let, which tells whether this member, self, lets go of one: those for which the one who asks ranks first, as it is seen here,
// until it has let go of the most.
func (p *Placement) Asked(self string, members []transport.Member, most int, let func(u event.Unit, by string) bool) {
	for i := range members {
		m := &members[i]
		if m.ID == self || m.Draining || m.Apart {
			continue
		}
		for _, u := range m.Wants {
			if most <= 0 {
				return
			}
			if p.First(u) == m.ID && let(u, m.ID) {
				most--
			}
		}
	}
}

// rivals gives the members that run a unit: every member, for one that stands for a part.
func (p *Placement) rivals(u event.Unit) []int {
	if u.Name != event.PartName {
		return p.byName[u.Name]
	}
	all := make([]int, len(p.members))
	for i := range all {
		all[i] = i
	}
	return all
}

// score is how much a member is for a unit.
type score struct {
	value float64
	seed  uint64 // decides between equal ones
}

func (s score) above(o score) bool {
	return s.value > o.value || s.value == o.value && s.seed > o.seed
}

// score is -weight/ln(x) for an x in (0, 1) that depends on unit and member alone: the share of the units for which it is the highest is the member's share of
// all weights.
func (m *placed) score(key uint64) score {
	x := (float64(mix(key^m.seed)>>11) + 0.5) / (1 << 53)
	return score{value: -float64(max(m.Weight, 1)) / math.Log(x), seed: m.seed}
}

func hashOf(u event.Unit) uint64 {
	h := fnv.New64a()
	h.Write([]byte(u.Name)) // never an error
	h.Write([]byte{0})
	h.Write([]byte(u.Key))
	return mix(h.Sum64())
}

// mix spreads what differs in few bits over all of them: FNV alone does not, and rendezvous needs scores that are independent.
func mix(x uint64) uint64 {
	const a, b = 0xbf58476d1ce4e5b9, 0x94d049bb133111eb // of splitmix64
	x ^= bits.RotateLeft64(x, 25) ^ bits.RotateLeft64(x, 50)
	x = (x ^ x>>30) * a
	x = (x ^ x>>27) * b
	return x ^ x>>31
}
