package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

const (
	mostHops   = 3 // redirects in a row
	mostInTurn = 3 // members that are asked one after another without a rest, because those before cannot be

	firstRest = 5 * time.Millisecond
	mostRest  = 250 * time.Millisecond
)

// route decides where one ask goes next. It is pure: what is known comes in with each call, what is to be done goes out as a [step]. It asks in rounds, with a rest between two: whoever is
// remembered to have the entity, else the member that ranks first; then on, as they say.
type route struct {
	unit   event.Unit
	repeat bool          // it has a command id, or reads: what may have been done may be asked again
	ttl    time.Duration // of leases

	began time.Time
	rests int
	doubt bool                 // an earlier attempt may have been done
	last  *transport.PeerError // why the last attempt has no answer
	since time.Time            // when it was known
	tried []tries              // in the order of the first time
	at    target               // whom the answer is awaited of
	hops  int                  // redirects in a row
	asked []target             // in this round
	down  []string             // members that could not be asked in this round, by id
	codes []transport.PeerCode // of the answers of this round
}

// target is whom to ask.
type target struct {
	id         string // "" = only the address is known
	node       string // its name; may be ""
	address    string
	generation event.Generation // at which it is said to have the entity; 0 = not said
	decide     bool             // see transport.PeerAsk
}

// tries is how often somebody was asked.
type tries struct {
	node, address string
	times         int
	missed        bool // the last time, it was not reached
}

// sight is what a route goes by at one moment.
type sight struct {
	field
	now    time.Time
	known  transport.PeerOwner  // who is remembered to have the entity; zero = nobody
	over   error                // why the time of the ask is over; nil = it is not
	shut   bool                 // this process asks nobody any more
	lost   *transport.PeerError // why no member is known, where none is; nil = that is not known
	jitter float64              // from 0 to 1, drawn anew each time
}

// step is what to do next: ask, rest, or, with neither, give up with err.
type step struct {
	ask  bool // the target in route.at
	why  why
	rest time.Duration
	err  *transport.PeerError

	// What was learned, to be remembered first.
	forget  transport.PeerOwner
	learned transport.PeerOwner
	most    time.Duration // that it counts
}

// why an ask is made.
type why uint8

const (
	whyFirst      why = iota // it is the first of the round
	whyRemembered            // the same, by what is remembered
	whyRedirected            // somebody said so
	whyRepeated              // it could not be answered where it was asked before
)

// start begins. hint is who has the entity as far as the caller found out, or zero.
func (r *route) start(s *sight, hint transport.PeerOwner) step {
	r.began = s.now
	if hint == (transport.PeerOwner{}) {
		return r.round(s, false)
	}
	st := r.follow(s, hint, 0)
	st.learned, st.most = hint, r.ttl
	return st
}

// again begins another round, after a rest.
func (r *route) again(s *sight) step {
	r.hops, r.asked, r.down, r.codes = 0, r.asked[:0], r.down[:0], r.codes[:0]
	return r.round(s, true)
}

func (r *route) round(s *sight, decide bool) step {
	if s.known.ID != "" {
		if m := s.member(s.known.ID); m != nil && s.canAsk(m) {
			w := whyRemembered
			if r.rests > 0 {
				w = whyRepeated
			}
			return r.to(s, target{id: m.ID, node: m.Node, address: m.Address, generation: s.known.Generation}, w)
		}
	}
	first := s.first(r.unit)
	if first == nil {
		return r.nobody(s)
	}
	w := whyFirst
	if r.rests > 0 {
		w = whyRepeated
	}
	return r.to(s, target{id: first.ID, node: first.Node, address: first.Address, decide: decide}, w)
}

func (r *route) to(s *sight, t target, w why) step {
	if s.now.Sub(r.began) > 2*r.ttl {
		return r.fail(s, r.last)
	}
	r.at = t
	r.asked = append(r.asked, t)
	i := r.triedAt(t.node, t.address)
	if i < 0 {
		i = len(r.tried)
		r.tried = append(r.tried, tries{node: t.node, address: t.address})
	}
	r.tried[i].times++
	return step{ask: true, why: w}
}

// triedAt gives where somebody is in tried; -1 = not asked.
func (r *route) triedAt(node, address string) int {
	return slices.IndexFunc(r.tried, func(was tries) bool { return was.node == node && was.address == address })
}

// answered goes on after an attempt without an answer.
func (r *route) answered(s *sight, e *transport.PeerError) step {
	r.last, r.since = e, s.now
	if i := r.triedAt(r.at.node, r.at.address); i >= 0 {
		r.tried[i].missed = missed(e)
	}
	r.codes = append(r.codes, e.Code)
	r.doubt = r.doubt || e.Unknown
	switch {
	case !passes(e.Code) || e.Unknown && !r.repeat:
		return r.fail(s, e)
	case s.over != nil && e.Code != transport.PeerEnded:
		return r.ended(s)
	case s.over != nil && r.late(s):
		return r.fail(s, &transport.PeerError{Code: transport.PeerUnavailable, Text: e.Text, Err: s.over})
	case s.over != nil:
		return r.fail(s, e)
	case e.Code == transport.PeerStopping && s.shut:
		return r.fail(s, e)
	case e.Code == transport.PeerBusy || e.Code == transport.PeerEnded: // what it has of the entity it keeps
		return r.rest(s, 0)
	}
	lost := transport.PeerOwner{ID: r.at.id, Generation: r.at.generation}
	var st step
	switch {
	case e.Code != transport.PeerNotOwner:
		st = r.next(s)
	case e.Owner == transport.PeerOwner{}:
		st = r.decide(s, e.Most)
	default:
		st = r.follow(s, e.Owner, e.Most)
		st.learned, st.most = e.Owner, e.Most
		if st.most <= 0 {
			st.most = r.ttl
		}
	}
	st.forget = lost
	return st
}

// passes reports whether the reason of an error passes, or is one of the member that was asked alone.
func passes(c transport.PeerCode) bool {
	switch c {
	case transport.PeerNotOwner, transport.PeerUnavailable, transport.PeerStopping, transport.PeerBusy, transport.PeerUnknownKind, transport.PeerDenied, transport.PeerEnded:
		return true
	}
	return false
}

// follow asks who is said to have the entity, unless that leads nowhere.
func (r *route) follow(s *sight, owner transport.PeerOwner, most time.Duration) step {
	t := target{id: owner.ID, address: owner.Address, generation: owner.Generation}
	m := s.member(owner.ID)
	switch {
	case m != nil && !s.canAsk(m):
		return r.fail(s, muteError(r.unit, s.far, true, *m))
	case m != nil:
		t.node, t.address = m.Node, m.Address
	case !s.reaches(t.address): // gone, or not known here yet
		return r.decide(s, most)
	}
	if t.name() == r.at.name() || r.hops >= mostHops || slices.Contains(r.down, t.name()) || slices.ContainsFunc(r.asked, func(was target) bool { return was.name() == t.name() && was.generation >= t.generation }) {
		return r.decide(s, most)
	}
	r.hops++
	return r.to(s, t, whyRedirected)
}

// name tells targets apart.
func (t *target) name() string { return cmp.Or(t.id, t.address) }

// decide has the member that ranks first try for the entity. Where it has tried in this round already, whoever has the entity cannot be asked: that takes the time that its lease
// still lasts.
func (r *route) decide(s *sight, most time.Duration) step {
	first := s.first(r.unit, r.down...)
	switch {
	case first == nil && len(r.down) == 0:
		return r.nobody(s)
	case first == nil || slices.ContainsFunc(r.asked, func(was target) bool { return was.id == first.ID && was.decide }):
		return r.rest(s, most)
	}
	r.hops = 0
	return r.to(s, target{id: first.ID, node: first.Node, address: first.Address, decide: true}, whyRepeated)
}

// next asks another member than the one that could not be.
func (r *route) next(s *sight) step {
	r.down = append(r.down, r.at.name())
	if len(r.down) >= mostInTurn {
		return r.rest(s, 0)
	}
	return r.decide(s, 0)
}

// nobody is there to be asked.
func (r *route) nobody(s *sight) step {
	o := s.outlook(r.unit)
	switch {
	case s.shut:
		return r.fail(s, notRunning())
	case len(s.members) == 0 && s.lost != nil && s.lost.Code == transport.PeerDenied: // by all: it is not a matter of time
		return r.fail(s, s.lost)
	case len(s.members) == 0:
		r.last = cmp.Or(s.lost, &transport.PeerError{Code: transport.PeerUnavailable, Text: "no member is known yet"})
	case o.run == 0 && s.now.Sub(r.began) >= r.ttl/5:
		return r.fail(s, unknownKind(r.unit, s.Members()))
	case o.run == 0: // it may be about to start
		r.last = unknownKind(r.unit, s.Members())
	case o.self: // and could not do it, or it would have
		return r.fail(s, away(r.unit, o))
	case len(o.mute) > 0 && o.away == 0:
		return r.fail(s, muteError(r.unit, s.far, false, o.mute...))
	default:
		r.last = away(r.unit, o)
	}
	return r.rest(s, 0)
}

// rest waits a while, each time for longer, and at most for most if that is above 0.
func (r *route) rest(s *sight, most time.Duration) step {
	if n := len(r.codes); n > 0 && (r.last.Code == transport.PeerDenied || r.last.Code == transport.PeerUnknownKind) &&
		!slices.ContainsFunc(r.codes, func(c transport.PeerCode) bool { return c != r.last.Code }) {
		return r.fail(s, r.last) // all say so: it is not a matter of time
	}
	d := min(firstRest<<min(r.rests, 10), mostRest)
	d -= time.Duration(s.jitter * float64(d) / 2)
	if most > 0 {
		d = min(d, most)
	}
	if s.now.Add(d).Sub(r.began) > 2*r.ttl {
		return r.fail(s, r.last)
	}
	r.rests++
	return step{rest: d}
}

// ended gives up because the time of the ask is over, between two attempts. Where it was only too short for somebody to be found, the code is that of a reason that passes: asking
// again may succeed.
func (r *route) ended(s *sight) step {
	e := &transport.PeerError{Code: transport.PeerEnded, Text: "the time of the ask was over before it was answered; last: " + r.reason(s, r.last), Err: s.over}
	if r.late(s) {
		e.Code = transport.PeerUnavailable
	}
	return r.fail(s, e)
}

// late reports whether a deadline has passed while nobody could be asked: nothing was done, and whoever was asked last was not reached, or could not take it then. A caller who has had
// enough did not come late.
func (r *route) late(s *sight) bool {
	if r.doubt || !errors.Is(s.over, context.DeadlineExceeded) || errors.Is(s.over, context.Canceled) {
		return false
	}
	switch r.last.Code {
	case transport.PeerNotOwner, transport.PeerUnavailable, transport.PeerBusy:
		return true
	case transport.PeerStopping:
		return !s.shut
	case transport.PeerEnded: // on the way there, or at the entity, which had other work
		return r.last.Err != nil
	}
	return false
}

// fail gives up. What the entity itself said goes to the caller as it is.
func (r *route) fail(s *sight, e *transport.PeerError) step {
	out := *e
	if r.doubt && e.Code != transport.PeerRejected { // a rejection is kept under the command id, as a reply is: it is the answer to all attempts
		out.Unknown = true
	}
	if passes(e.Code) {
		out.Text = oneLine(r.reason(s, e)) + r.inVain(s)
	}
	if e.Code == transport.PeerBusy || e.Code == transport.PeerNotOwner { // all that could say more were asked
		out.Code = transport.PeerUnavailable
	}
	return step{err: &out}
}
