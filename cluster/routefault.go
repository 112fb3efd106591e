package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// mostNamed is how many members an error names.
const mostNamed = 8

// inVain tells who was asked, for an error that nobody who was asked could have said better.
func (r *route) inVain(s *sight) string {
	times := 0
	for _, t := range r.tried {
		times += t.times
	}
	if times < 2 {
		return ""
	}
	var said []string
	loopback := false
	for i, t := range r.tried {
		loopback = loopback || t.missed && isLoopback(t.address)
		if i >= mostNamed {
			said = append(said, fmt.Sprintf("and %d others", len(r.tried)-i))
			break
		}
		name := t.address
		if t.node != "" {
			name = fmt.Sprintf("%s (%s)", t.node, t.address)
		}
		said = append(said, fmt.Sprintf("%s %s", name, often(t.times)))
	}
	text := fmt.Sprintf("; asked in %v: %s", s.now.Sub(r.began).Round(time.Millisecond), strings.Join(said, ", "))
	if loopback {
		text += "; an address on loopback is reached from its own host alone: if that node is on another one, configure its node service with an address that others reach"
	}
	return text
}

// missed reports whether an error is of the way to a member: it said nothing itself.
func missed(e *transport.PeerError) bool {
	return e.Err != nil && (e.Code == transport.PeerUnavailable || e.Code == transport.PeerEnded)
}

// reason is the text of an error. Of an entity that somebody else has, the text is for those who ask that node alone; here it says who has it, as far as that is known, and for how long.
func (r *route) reason(s *sight, e *transport.PeerError) string {
	if e.Code != transport.PeerNotOwner || e.Owner.ID == "" {
		return e.Text
	}
	name := "a node that is no member any more"
	text := " has it"
	if m := s.member(e.Owner.ID); m != nil {
		name = m.Node
		if i := r.triedAt(m.Node, m.Address); i >= 0 && r.tried[i].missed {
			text += " and does not answer"
		}
	}
	if left := e.Most - s.now.Sub(r.since); e.Most > 0 {
		text += fmt.Sprintf("; its lease ends in %v at the latest, unless it is renewed", max(left, 0).Round(100*time.Millisecond))
	}
	return name + text
}

// oneLine gives a text without the line breaks and tabs that wrapped errors bring.
func oneLine(text string) string {
	var parts []string
	for part := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' || c == '\t' }) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

func often(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// muteError is that those who have, or run, an entity cannot be asked from here, whatever is waited for.
func muteError(u event.Unit, far, has bool, members ...transport.Member) *transport.PeerError {
	var said []string
	for i := range members[:min(len(members), mostNamed)] {
		m := &members[i]
		if far && m.Address != "" {
			said = append(said, fmt.Sprintf("%s listens on %s, where its own host alone reaches it", m.Node, m.Address))
		} else {
			said = append(said, m.Node+" has no node service")
		}
	}
	what := "the nodes that run it"
	if has {
		what = "the node that has it"
	}
	return &transport.PeerError{Code: transport.PeerUnavailable, Text: fmt.Sprintf("%s cannot be asked: %s: %s; configure the node service there, with an address that other nodes reach",
		u, what, strings.Join(said, ", "))}
}

func unknownKind(u event.Unit, members []transport.Member) *transport.PeerError {
	var said []string
	for i := range members[:min(len(members), mostNamed)] {
		said = append(said, fmt.Sprintf("%s runs %s", members[i].Node, strings.Join(members[i].Names, ", ")))
	}
	return &transport.PeerError{Code: transport.PeerUnknownKind, Text: fmt.Sprintf("no member runs %s: is it spelled as it is registered, and does a program that has it run? %s", u.Name, strings.Join(said, "; "))}
}

func away(u event.Unit, o outlook) *transport.PeerError {
	return &transport.PeerError{Code: transport.PeerUnavailable, Text: fmt.Sprintf("none of the %d members that run %s takes anything now: they drain, or do not reach their store or broker", o.run, u.Name)}
}
