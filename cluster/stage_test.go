package cluster_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// What a stage goes by: the defaults.
const (
	ttl       = 15 * second
	heartbeat = ttl / 5
	margin    = ttl / 5
	moves     = 50 // in a second
)

// stage is where several nodes play, without I/O and without goroutines: Placement, Contest, and what members say of one another are the real ones, as are the rules of leases and of the
// fence; the broker, the store and the behaviors are no more than tables. What happens is a function of what it was told, and of its seed.
type stage struct {
	now     time.Time
	todo    agenda
	n       int
	rng     *rand.Rand // nil: nothing is late, and behaviors take no time
	without string     // a rule that is left out
	calmed  bool       // nothing goes wrong any more
	tell    func(at time.Duration, what string)
	wrong   string

	players []*player
	born    int
	list    map[string]listed      // on the broker, by id
	leases  map[event.Unit]*tenure // as the broker has them
	units   map[event.Unit]*row
	all     []event.Unit // in order
}

type listed struct {
	transport.Member
	until time.Time
}

// tenure is a lease.
type tenure struct {
	id    string
	gen   event.Generation
	until time.Time
}

// row is what the store has of a unit, and what the oracle knows.
type row struct {
	raised            event.Generation
	applied, released int // events
	counter           event.Generation
	recovered         event.Generation // that a node began to serve at, the highest
	servedAt          time.Time        // when a behavior began last
}

// player is a node.
type player struct {
	s        *stage
	name, id string
	weight   int
	index    int
	up       bool
	thaws    time.Time
	cut      map[string]bool // "list": it neither beats nor reads; "gossip": it hears nobody, and nobody hears it; "leases": it renews none
	draining bool
	apart    bool
	believes map[string]int // weights of nodes that are not what they say

	list      cluster.Listed
	placement *cluster.Placement
	known     string // the members, as they were told last
	contest   *cluster.Contest
	pace      *cluster.Pace
	unfit     map[event.Unit]time.Time
	wants     []event.Unit
	beats     int64
	scans     int
	live      map[event.Unit]*holding
	going     map[event.Unit]bool // an acquisition is under way
	deferred  []func()
	alarm     time.Time
}

// holding is a unit that runs here.
type holding struct {
	gen      event.Generation
	since    time.Time
	deadline time.Time
	inside   bool
	over     bool
}

func newStage(rng *rand.Rand, tell func(at time.Duration, what string)) *stage {
	return &stage{now: start, rng: rng, tell: tell, list: map[string]listed{}, leases: map[event.Unit]*tenure{}, units: map[event.Unit]*row{}}
}

type occurrence struct {
	at time.Time
	n  int
	do func()
}

// agenda is a container/heap by time, and then by when it was put down.
type agenda []occurrence

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(a[i].at.Compare(a[j].at), a[i].n-a[j].n) < 0
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(v any)   { *a = append(*a, v.(occurrence)) }
func (a *agenda) Pop() any {
	v := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return v
}

func (s *stage) after(d time.Duration, do func()) {
	s.n++
	heap.Push(&s.todo, occurrence{s.now.Add(d), s.n, do})
}

// pass lets everything happen that is due within d.
func (s *stage) pass(d time.Duration) {
	end := s.now.Add(d)
	for len(s.todo) > 0 && !s.todo[0].at.After(end) && s.wrong == "" {
		next := heap.Pop(&s.todo).(occurrence)
		s.now = next.at
		next.do()
	}
	s.now = end
}

func (s *stage) say(format string, args ...any) {
	if s.tell != nil {
		s.tell(s.now.Sub(start), fmt.Sprintf(format, args...))
	}
}

func (s *stage) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf("%v: ", s.now.Sub(start)) + fmt.Sprintf(format, args...)
		s.say("%s", s.wrong)
	}
}

// late is how long a message is on its way.
func (s *stage) late() time.Duration {
	switch {
	case s.rng == nil:
		return 0
	case !s.calmed && s.rng.IntN(40) == 0:
		return time.Duration(s.rng.Int64N(int64(2 * second)))
	}
	return time.Duration(1+s.rng.IntN(20)) * time.Millisecond
}

// unit gives a unit, which is there from now on.
func (s *stage) unit(u event.Unit) *row {
	if s.units[u] == nil {
		s.units[u] = &row{servedAt: s.now}
		s.all = append(s.all, u)
		sortByKey(s.all)
	}
	return s.units[u]
}

func sortByKey(units []event.Unit) { slices.SortFunc(units, cmpKeys) }

func (r *row) busy() bool { return r.applied < r.released }

// publish gives a unit events, and wakes.
func (s *stage) publish(u event.Unit, n int) {
	s.unit(u).released += n
	s.wake(u)
}

func (s *stage) wake(u event.Unit) {
	for _, p := range s.players {
		if s.rng == nil || s.calmed || s.rng.IntN(10) > 0 { // else the wake is lost
			p.later(s.late(), func() { p.look([]event.Unit{u}, cluster.Seen{}) })
		}
	}
}

// join starts a node, or another one of that name.
func (s *stage) join(name string, weight int) *player {
	p := s.player(name)
	if p == nil {
		p = &player{s: s, name: name, index: len(s.players), weight: weight, cut: map[string]bool{}, believes: map[string]int{}}
		s.players = append(s.players, p)
	}
	s.born++
	p.id, p.up, p.draining, p.apart, p.thaws = fmt.Sprintf("%s%d", name, s.born), true, false, false, time.Time{}
	p.list, p.placement, p.known, p.beats, p.scans, p.wants = cluster.Listed{}, new(cluster.Placement), "", 0, 0, nil
	p.contest, p.deferred = cluster.NewContest(grace, debounce), nil
	p.pace = cluster.NewPace(moves, heartbeat, s.now)
	p.unfit, p.live, p.alarm = map[event.Unit]time.Time{}, map[event.Unit]*holding{}, time.Time{}
	p.going = map[event.Unit]bool{}
	p.later(time.Duration(p.index)*100*time.Millisecond, func() {
		p.beat()
		p.hear()
		p.scan()
	})
	return p
}

func (s *stage) player(name string) *player {
	for _, p := range s.players {
		if p.name == name {
			return p
		}
	}
	return nil
}

// later does something on this incarnation of a node, when it runs.
func (p *player) later(d time.Duration, do func()) {
	id := p.id
	p.s.after(d, func() {
		switch {
		case p.id != id || !p.up:
		case p.s.now.Before(p.thaws):
			p.deferred = append(p.deferred, do)
		default:
			do()
		}
	})
}

func (p *player) freeze(d time.Duration) {
	p.thaws = p.s.now.Add(d)
	id := p.id
	p.s.after(d, func() {
		if p.id != id {
			return
		}
		all := p.deferred
		p.deferred = nil
		for _, do := range all {
			p.later(0, do)
		}
	})
}

// kill ends a node; leave has it drain before.
func (p *player) kill() {
	p.up = false
	p.s.say("%s is dead", p.name)
}

func (p *player) leave() {
	p.draining = true
	p.beat()
	p.later(heartbeat, func() {
		for _, u := range p.held() {
			p.letGo(u)
		}
		p.later(second, func() {
			delete(p.s.list, p.id)
			p.up = false
			p.s.say("%s has left", p.name)
		})
	})
}

func (p *player) held() []event.Unit {
	all := slices.Collect(maps.Keys(p.live))
	sortByKey(all)
	return all
}

func (p *player) self() transport.Member {
	return transport.Member{
		ID: p.id, Node: p.name, Weight: p.weight, Names: []string{"shipping"}, Draining: p.draining, Apart: p.apart, Beats: p.beats, Wants: slices.Clone(p.wants),
	}
}

// beat is what a node does each heartbeat: it makes itself known, reads the list, renews what it holds, and hands over what it is asked for.
func (p *player) beat() {
	s := p.s
	p.renew()
	if p.cut["list"] {
		return
	}
	p.beats++
	s.list[p.id] = listed{p.self(), s.now.Add(ttl)}
	var members []transport.Member
	for _, id := range slices.Sorted(maps.Keys(s.list)) {
		if l := s.list[id]; s.now.Before(l.until) {
			members = append(members, l.Member)
		}
	}
	p.later(s.late(), func() {
		cluster.Read(&p.list, members, s.now)
		p.settle()
		p.placement.Asked(p.id, members, p.pace.Left(s.now), func(u event.Unit, by string) bool {
			h := p.live[u]
			if h == nil || h.over {
				return false
			}
			p.pace.Take()
			s.say("%s hands %s over to %s", p.name, u.Key, nameOf(members, by))
			p.letGo(u)
			return true
		})
	})
}

func nameOf(members []transport.Member, id string) string {
	return members[slices.IndexFunc(members, func(m transport.Member) bool { return m.ID == id })].Node
}

func (p *player) renew() {
	s := p.s
	if p.cut["leases"] {
		return
	}
	for _, u := range p.held() {
		h, sent := p.live[u], s.now
		s.after(s.late(), func() {
			if t := s.leases[u]; t != nil && t.id == p.id && t.gen == h.gen && s.now.Before(t.until) {
				t.until = s.now.Add(ttl)
				p.later(s.late(), func() {
					if s.now.Before(h.deadline) || s.without == "deadline" { // a renewal that comes late revives nothing
						h.deadline = sent.Add(ttl - margin)
					}
				})
			}
		})
	}
}

// hear is what gossip has a node do: put its members together, as they are heard of now.
func (p *player) hear() {
	p.settle()
	p.later(second, p.hear)
}

func (p *player) heard() (all []transport.Heard) {
	for _, o := range p.s.players {
		switch state := transport.HeardUnreachable; {
		case o == p || o.id == "":
		case !o.up && o.draining:
			if !p.cut["gossip"] {
				all = append(all, transport.Heard{Member: o.self(), State: transport.HeardLeft})
			}
		default:
			if o.up && !p.s.now.Before(o.thaws) && !p.cut["gossip"] && !o.cut["gossip"] {
				state = transport.HeardAlive
			}
			all = append(all, transport.Heard{Member: o.self(), State: state})
		}
	}
	return all
}

func (p *player) settle() {
	members := p.believed(cluster.Joined(&p.list, p.self(), p.heard(), 2*heartbeat))
	words := ""
	for i := range members {
		m := &members[i]
		if words += fmt.Sprint(m.ID, "=", m.Weight); m.Draining || m.Apart {
			words += "-"
		}
		words += " "
	}
	if words == p.known {
		return
	}
	p.known = words
	p.placement = cluster.NewPlacement(members)
	p.s.say("%s sees %v", p.name, cluster.Names(members))
	p.later(0, func() { p.look(p.s.busy(), cluster.Seen{}) })
}

func (s *stage) busy() (all []event.Unit) {
	for _, u := range s.all {
		if s.units[u].busy() {
			all = append(all, u)
		}
	}
	return all
}

// scan is the other thing that a node does each heartbeat.
func (p *player) scan() {
	p.later(heartbeat, func() {
		p.beat()
		p.scan()
	})
	p.scans++
	seen := map[event.Unit]bool{}
	for _, u := range p.s.busy() {
		seen[u] = true
	}
	p.look(p.s.busy(), cluster.Seen{Wide: p.scans%cluster.WideEvery == 0})
	p.contest.Keep("shipping", seen)
}

// look is what the shell of a node does with units that have work: it asks who holds them, and goes for those that are its to go for.
func (p *player) look(units []event.Unit, how cluster.Seen) {
	s := p.s
	if p.draining {
		return
	}
	for _, u := range units {
		if p.going[u] {
			continue
		}
		if p.live[u] != nil {
			p.contest.Forget(u)
			p.serve(u)
			continue
		}
		unfit := s.now.Before(p.unfit[u])
		rank := p.placement.Rank(u, p.id, unfit)
		if rank >= cluster.Contenders && (!how.Wide || unfit) {
			p.contest.Forget(u)
			continue
		}
		seen := how
		seen.Unit, seen.Rank, seen.Unfit, seen.Left = u, rank, unfit, s.left(u)
		if p.contest.See(s.now, seen) {
			p.goFor(u)
		}
	}
	p.attend()
}

func (s *stage) left(u event.Unit) time.Duration {
	if t := s.leases[u]; t != nil {
		return max(0, t.until.Sub(s.now))
	}
	return 0
}

// attend sets what a node wants, and when it is to look again.
func (p *player) attend() {
	s := p.s
	had := len(p.wants)
	wants, more := p.contest.Wants(s.now, cluster.MostWants(moves, heartbeat, len(p.placement.Members())))
	if len(wants) > 0 && !slices.Equal(wants, p.wants) {
		s.say("%s asks for %s", p.name, keysOf(wants))
	}
	if p.wants = wants; len(wants) > 0 && had == 0 {
		p.later(0, p.beat)
	}
	at, is := p.contest.Next()
	if !more.IsZero() && (!is || more.Before(at)) {
		at, is = more, true
	}
	if !is || p.alarm.Equal(at) && at.After(s.now) {
		return
	}
	p.alarm = at
	p.later(max(0, at.Sub(s.now)), func() { p.look(p.contest.Due(s.now), cluster.Seen{Due: true}) })
}

func keysOf(units []event.Unit) (all []string) {
	for _, u := range units {
		all = append(all, u.Key)
	}
	return all
}

// goFor acquires a lease and raises the unit's row.
func (p *player) goFor(u event.Unit) {
	s, sent := p.s, p.s.now
	p.going[u] = true
	if !p.apart {
		s.say("%s goes for %s", p.name, u.Key)
	}
	s.after(s.late(), func() {
		r, t := s.unit(u), s.leases[u]
		if t != nil && t.id != p.id && s.now.Before(t.until) {
			left := t.until.Sub(s.now)
			p.later(s.late(), func() {
				delete(p.going, u)
				p.contest.See(s.now, cluster.Seen{Unit: u, Rank: p.placement.Rank(u, p.id, s.now.Before(p.unfit[u])), Left: max(left, time.Millisecond)})
				p.attend()
			})
			return
		}
		r.counter = max(r.counter, r.raised) + 1
		gen := r.counter
		s.leases[u] = &tenure{p.id, gen, s.now.Add(ttl)}
		p.later(s.late(), func() { p.raise(u, gen, sent) })
	})
}

func (p *player) raise(u event.Unit, gen event.Generation, sent time.Time) {
	s, r := p.s, p.s.unit(u)
	delete(p.going, u)
	if r.raised >= gen || p.apart || !s.now.Before(sent.Add(ttl-margin)) || p.live[u] != nil {
		if t := s.leases[u]; t != nil && t.id == p.id && t.gen == gen {
			delete(s.leases, u)
		}
		return
	}
	if s.without != "raise" {
		r.raised = gen
	}
	r.recovered = gen
	p.live[u] = &holding{gen: gen, since: s.now, deadline: sent.Add(ttl - margin)}
	p.contest.Forget(u)
	s.say("%s has %s, generation %d", p.name, u.Key, gen)
	p.serve(u)
}

// holds checks that this node alone believes that it holds a unit, and whether it does.
func (p *player) holds(u event.Unit) bool {
	h := p.live[u]
	if h == nil || !p.s.now.Before(h.deadline) && p.s.without != "deadline" {
		return false
	}
	for _, o := range p.s.players {
		if other := o.live[u]; o != p && o.up && other != nil && p.s.now.Before(other.deadline) {
			p.s.fail("%s and %s both believe to hold %s", p.name, o.name, u.Key)
		}
	}
	return true
}

// serve applies what comes next.
func (p *player) serve(u event.Unit) {
	s, h, r := p.s, p.live[u], p.s.unit(u)
	switch {
	case h == nil || h.inside:
		return
	case !p.holds(u):
		delete(p.live, u)
		s.say("%s has lost %s", p.name, u.Key)
		return
	case h.over:
		p.release(u, h)
		return
	case !r.busy():
		p.later(5*second, func() {
			if p.live[u] == h && !h.inside && !r.busy() && s.now.Sub(r.servedAt) >= 5*second {
				p.release(u, h)
			}
		})
		return
	}
	h.inside, r.servedAt = true, s.now
	took, before := 200*time.Millisecond, r.applied
	if s.rng != nil {
		took = time.Duration(1+s.rng.IntN(800)) * time.Millisecond
	}
	p.later(took, func() {
		h.inside = false
		if p.live[u] != h {
			return
		}
		p.commit(u, h, before)
		p.serve(u)
	})
}

// commit is fenced by the generation of the row, and by the checkpoint.
func (p *player) commit(u event.Unit, h *holding, before int) {
	s, r := p.s, p.s.unit(u)
	if r.raised != h.gen && s.without != "raise" || r.applied != before {
		delete(p.live, u)
		return
	}
	if h.gen < r.recovered {
		s.fail("%s commits event %d of %s at generation %d, and another one serves at %d", p.name, before+1, u.Key, h.gen, r.recovered)
	}
	r.applied = before + 1
}

// letGo has what is in hand finished, and then the lease given back.
func (p *player) letGo(u event.Unit) {
	p.live[u].over = true
	p.serve(u)
}

func (p *player) release(u event.Unit, h *holding) {
	s := p.s
	delete(p.live, u)
	if t := s.leases[u]; t != nil && t.id == p.id && t.gen == h.gen {
		delete(s.leases, u)
	}
	if s.unit(u).busy() {
		s.wake(u)
	}
}
