package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

const routeTTL = 15 * time.Second

// inOrder gives a unit for which members named so rank in the order given.
func inOrder(t testing.TB, names ...string) event.Unit {
	var all []transport.Member
	for _, n := range names {
		all = append(all, transport.Member{ID: n, Node: n, Names: []string{"order"}})
	}
	p := NewPlacement(all)
search:
	for i := range 1_000_000 {
		u := event.Unit{Name: "order", Key: strconv.Itoa(i)}
		for rank, n := range names {
			if p.Rank(u, n, false) != rank {
				continue search
			}
		}
		return u
	}
	t.Fatalf("no unit ranks %v", names)
	return event.Unit{}
}

// said reads the members of a table: "a b", with what is special about one behind it, as in "a/draining b/at 127.0.0.1:1 c/mute d/apart e/other".
func said(text string) []transport.Member {
	var all []transport.Member
	for word := range strings.FieldsSeq(text) {
		name, special, _ := strings.Cut(word, "/")
		m := transport.Member{ID: name, Node: name, Names: []string{"order"}, Address: name + ":1"}
		switch special {
		case "draining":
			m.Draining = true
		case "apart":
			m.Apart = true
		case "mute":
			m.Address = ""
		case "loopback":
			m.Address = "127.0.0.1:1"
		case "other":
			m.Names = []string{"cart"}
		}
		all = append(all, m)
	}
	return all
}

func ownerOf(text string) transport.PeerOwner {
	if text == "" {
		return transport.PeerOwner{}
	}
	id, generation, _ := strings.Cut(text, "@")
	g, _ := strconv.ParseUint(generation, 10, 64)
	if id, ok := strings.CutSuffix(id, ":1"); ok { // an address alone
		return transport.PeerOwner{ID: id + "-new", Address: id + ":1", Generation: event.Generation(g)}
	}
	return transport.PeerOwner{ID: id, Generation: event.Generation(g)}
}

// fault reads an answer of a table: a code, "?" behind it where it may have been done, and with "not owner" who has it, and for how long at most.
func fault(text string) *transport.PeerError {
	code, rest, _ := strings.Cut(text, ": ")
	code, unknown := strings.CutSuffix(code, "?")
	e := &transport.PeerError{Code: transport.PeerCode(code), Text: "because", Unknown: unknown}
	owner, most, _ := strings.Cut(rest, " for ")
	e.Owner = ownerOf(owner)
	e.Most, _ = time.ParseDuration(most)
	return e
}

func TestWhereAnAskGoes(t *testing.T) {
	t.Parallel()
	u := inOrder(t, "a", "b", "c", "d", "e")
	// want has each ask ("b"; "b!" = it is to decide), each rest, and the end ("yes", or the error: ? = it may have been done)
	for _, c := range []struct {
		name    string
		members string
		self    string
		known   string
		hint    string
		repeat  bool // it has a command id
		answers []string
		want    string
	}{
		{name: "the first answers", members: "a b c", answers: []string{"yes"}, want: "a, yes"},
		{name: "the first of those that take something", members: "a/draining b/apart c/other d", answers: []string{"yes"}, want: "d, yes"},
		{name: "the first that has an address", members: "a/mute b", answers: []string{"yes"}, want: "b, yes"},
		{name: "this process itself needs none", members: "a/mute b", self: "a", answers: []string{"yes"}, want: "a, yes"},
		{name: "the one that is remembered", members: "a b c", known: "c@4", answers: []string{"yes"}, want: "c, yes"},
		{name: "the one that the caller found", members: "a b c", known: "c@4", hint: "b@5", answers: []string{"yes"}, want: "b, yes"},
		{name: "a holder that drains is asked all the same", members: "a b/draining", hint: "b@5", answers: []string{"yes"}, want: "b, yes"},
		{name: "one that is not known, by its address", members: "a b", hint: "z:1@5", answers: []string{"yes"}, want: "z:1, yes"},
		{name: "one that is not known at all", members: "a b", hint: "z@5", answers: []string{"yes"}, want: "a!, yes"},

		{name: "a redirect", members: "a b c", answers: []string{"not owner: c@5", "yes"}, want: "a, c, yes"},
		{name: "three redirects, and no more", members: "a b c d e", answers: []string{"not owner: b@5", "not owner: c@6", "not owner: d@7", "not owner: e@8", "yes"}, want: "a, b, c, d, a!, yes"},
		{name: "redirects are counted anew by who decides", members: "a b c d e", answers: []string{"not owner: b@5", "not owner: c@6", "not owner: d@7", "not owner: e@8", "not owner: e@8", "yes"}, want: "a, b, c, d, a!, e, yes"},
		{name: "not back and forth", members: "a b", answers: []string{"not owner: b@5", "not owner: a@0", "yes"}, want: "a, b, a!, yes"},
		{name: "not back and forth at one generation", members: "a b c", hint: "b@5", answers: []string{"not owner: c@5", "not owner: b@5", "yes"}, want: "b, c, a!, yes"},
		{name: "back at a higher one", members: "a b c", hint: "b@5", answers: []string{"not owner: c@6", "not owner: b@7", "yes"}, want: "b, c, b, yes"},
		{name: "no owner is told", members: "a b", answers: []string{"not owner", "yes"}, want: "a, a!, yes"},
		{name: "the one that is remembered has it no more", members: "a b", known: "b@4", answers: []string{"not owner", "yes"}, want: "b, a!, yes"},
		{name: "who decides finds a holder", members: "a b", answers: []string{"not owner", "not owner: b@4", "yes"}, want: "a, a!, b, yes"},
		{name: "who decides finds a holder that is gone", members: "a b", answers: []string{"not owner", "not owner: z@4 for 1s", "yes"}, want: "a, a!, rest 5ms, a!, yes"},
		{name: "no longer than its lease lasts", members: "a b", answers: []string{"not owner", "not owner: z@4 for 2ms", "yes"}, want: "a, a!, rest 2ms, a!, yes"},
		{name: "it names itself", members: "a b", answers: []string{"not owner: a@4", "not owner: a@4", "yes"}, want: "a, a!, rest 5ms, a!, yes"},
		{name: "the holder cannot be asked", members: "a/mute b", answers: []string{"not owner: a@4"}, want: "b, unavailable"},
		{name: "the way leads back", members: "a b", self: "a", hint: "b@5", answers: []string{"not owner", "yes"}, want: "b, a!, yes"},

		{name: "the first is not reached", members: "a b", answers: []string{"unavailable", "yes"}, want: "a, b!, yes"},
		{name: "it is not reached, and has it", members: "a b", answers: []string{"unavailable", "not owner: a@4 for 9s", "yes"}, want: "a, b!, rest 5ms, a!, yes"},
		{name: "it stops", members: "a b", answers: []string{"stopping", "yes"}, want: "a, b!, yes"},
		{name: "the one that is remembered is not reached", members: "a b c", known: "c@4", answers: []string{"unavailable", "yes"}, want: "c, a!, yes"},
		{name: "three are not reached", members: "a b c d", answers: []string{"unavailable", "stopping", "unavailable", "yes"}, want: "a, b!, c!, rest 5ms, a!, yes"},
		{name: "nobody is left", members: "a", answers: []string{"unavailable", "unavailable", "yes"}, want: "a, rest 5ms, a!, rest 10ms, a!, yes"},
		{name: "the link is full", members: "a b", answers: []string{"busy", "busy", "yes"}, want: "a, rest 5ms, a!, rest 10ms, a!, yes"},
		{name: "it does not run the kind any more", members: "a b", answers: []string{"unknown kind", "yes"}, want: "a, b!, yes"},
		{name: "nobody runs it, they say", members: "a b", answers: []string{"unknown kind", "unknown kind"}, want: "a, b!, unknown kind"},
		{name: "denied by one", members: "a b", answers: []string{"denied", "yes"}, want: "a, b!, yes"},
		{name: "denied by all", members: "a b", answers: []string{"denied", "denied"}, want: "a, b!, denied"},
		{name: "denied by some", members: "a b", answers: []string{"denied", "unavailable", "yes"}, want: "a, b!, rest 5ms, a!, yes"},
		{name: "its clock is faster", members: "a b", answers: []string{"ended", "yes"}, want: "a, rest 5ms, a!, yes"},

		{name: "it may have been done", members: "a b", answers: []string{"unavailable?"}, want: "a, unavailable?"},
		{name: "it may have been done, and has an id", members: "a b", repeat: true, answers: []string{"unavailable?", "yes"}, want: "a, b!, yes"},
		{name: "and fails in the end", members: "a b", repeat: true, answers: []string{"unavailable?", "mailbox full"}, want: "a, b!, mailbox full?"},
		{name: "and is rejected in the end", members: "a b", repeat: true, answers: []string{"unavailable?", "rejected"}, want: "a, b!, rejected"},
		{name: "an error of the behavior with an id", members: "a b", repeat: true, answers: []string{"failed?"}, want: "a, failed?"},
		{name: "an answer too large with an id", members: "a b", repeat: true, answers: []string{"too large?"}, want: "a, too large?"},

		{name: "the mailbox of the entity is full", members: "a b", answers: []string{"mailbox full"}, want: "a, mailbox full"},
		{name: "rejected", members: "a b", answers: []string{"rejected"}, want: "a, rejected"},
		{name: "retry, says the behavior", members: "a b", answers: []string{"retry"}, want: "a, retry"},
		{name: "unknown type", members: "a b", answers: []string{"unknown type"}, want: "a, unknown type"},

		{name: "none has an address", members: "a/mute b/mute", want: "unavailable"},
		{name: "the caller found one without an address", members: "a/mute b", hint: "a@4", want: "unavailable"},
		{name: "it drains and nobody else is there", members: "a/draining b/other", self: "a", want: "unavailable"},
	} {
		var trace []string
		r := route{unit: u, repeat: c.repeat, ttl: routeTTL}
		s := sight{field: field{Placement: NewPlacement(said(c.members)), self: c.self}, now: time.Unix(100, 0), known: ownerOf(c.known)}
		st := r.start(&s, ownerOf(c.hint))
		answers := c.answers
		for range 20 {
			if st.err != nil {
				end := string(st.err.Code)
				if st.err.Unknown {
					end += "?"
				}
				trace = append(trace, end)
				break
			}
			if !st.ask {
				trace = append(trace, "rest "+st.rest.String())
				s.now, s.known = s.now.Add(st.rest), transport.PeerOwner{}
				st = r.again(&s)
				continue
			}
			to := r.at.name()
			if r.at.id != "" && r.at.node == "" {
				to = r.at.address
			}
			if r.at.decide {
				to += "!"
			}
			trace = append(trace, to)
			if len(answers) == 0 {
				break
			}
			if answers[0] == "yes" {
				trace = append(trace, "yes")
				break
			}
			st = r.answered(&s, fault(answers[0]))
			answers = answers[1:]
		}
		if got := strings.Join(trace, ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// through goes a route to its end, giving the same answer each time, and tells how long that took.
func through(r *route, s *sight, answer string) (took time.Duration, asks int, err *transport.PeerError) {
	begun := s.now
	for st := r.start(s, transport.PeerOwner{}); ; {
		switch {
		case st.err != nil:
			return s.now.Sub(begun), asks, st.err
		case st.ask:
			asks++
			e := fault(answer)
			if strings.HasPrefix(answer, "unavailable") {
				e.Err = errors.New("not reached")
			}
			st = r.answered(s, e)
		default:
			s.now = s.now.Add(st.rest)
			st = r.again(s)
		}
	}
}

func TestRestsGrowAndTheAskEndsAfterTwoLeases(t *testing.T) {
	t.Parallel()
	before := 0
	for _, jitter := range []float64{0, 0.5, 0.999} {
		r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
		s := &sight{field: field{Placement: NewPlacement(said("a"))}, now: time.Unix(100, 0), jitter: jitter}
		took, asks, err := through(&r, s, "unavailable")
		if took > 2*routeTTL || took < 2*routeTTL-mostRest {
			t.Errorf("jitter %v: it took %v", jitter, took)
		}
		if least, most := int(2*routeTTL/mostRest), int(4*routeTTL/mostRest)+20; asks < least || asks > most {
			t.Errorf("jitter %v: %d asks, expected from %d to %d", jitter, asks, least, most)
		}
		if asks <= before {
			t.Errorf("jitter %v: %d asks, not more than with less", jitter, asks)
		}
		before = asks
		if err.Code != transport.PeerUnavailable || err.Unknown || !strings.Contains(err.Text, "because; asked in 29.") && !strings.Contains(err.Text, "because; asked in 30") ||
			!strings.Contains(err.Text, fmt.Sprintf("a (a:1) %d times", asks)) {
			t.Errorf("jitter %v, %d asks: %v", jitter, asks, err)
		}
	}
}

// An attempt may take as long as it likes; after it nobody else is asked, if it took too long.
func TestNobodyElseIsAskedAfterTwoLeases(t *testing.T) {
	t.Parallel()
	r := route{unit: inOrder(t, "a", "b"), ttl: routeTTL}
	s := &sight{field: field{Placement: NewPlacement(said("a b"))}, now: time.Unix(100, 0)}
	r.start(s, transport.PeerOwner{})
	s.now = s.now.Add(2*routeTTL + 1)
	if st := r.answered(s, fault("unavailable")); st.err == nil || st.err.Code != transport.PeerUnavailable {
		t.Errorf("%+v to %+v", st, r.at)
	}
}

func TestAFullLinkIsUnavailableInTheEnd(t *testing.T) {
	t.Parallel()
	r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
	_, _, err := through(&r, &sight{field: field{Placement: NewPlacement(said("a"))}, now: time.Unix(100, 0)}, "busy")
	if err.Code != transport.PeerUnavailable {
		t.Error(err)
	}
}

func TestWhatNobodyRunsIsUnknownSoon(t *testing.T) {
	t.Parallel()
	r := route{unit: event.Unit{Name: "ordr", Key: "1"}, ttl: routeTTL}
	took, asks, err := through(&r, &sight{field: field{Placement: NewPlacement(said("a b/other"))}, now: time.Unix(100, 0)}, "")
	if err.Code != transport.PeerUnknownKind || took < routeTTL/5 || took > routeTTL/5+mostRest || asks != 0 {
		t.Errorf("%v after %v and %d asks", err, took, asks)
	}
	for _, word := range []string{"ordr", "a runs order", "b runs cart"} {
		if !strings.Contains(err.Text, word) {
			t.Errorf("%q does not say %q", err.Text, word)
		}
	}
}

func TestWhatNobodyTakesNowIsWaitedFor(t *testing.T) {
	t.Parallel()
	for members, says := range map[string]string{"": "no member is known", "a/draining b/apart c/mute": "none of the 3 members that run order"} {
		r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
		s := &sight{field: field{Placement: NewPlacement(said(members))}, now: time.Unix(100, 0)}
		took, _, err := through(&r, s, "")
		if err.Code != transport.PeerUnavailable || !strings.Contains(err.Text, says) || took < 2*routeTTL-mostRest {
			t.Errorf("%s: %v after %v", members, err, took)
		}
		r, s.now = route{unit: r.unit, ttl: routeTTL}, time.Unix(100, 0)
		if st := r.start(s, transport.PeerOwner{}); st.rest == 0 {
			t.Fatalf("%s: %+v", members, st)
		}
		s.Placement = NewPlacement(said("d"))
		if st := r.again(s); !st.ask || r.at.id != "d" {
			t.Errorf("%s: when d has come: %+v to %+v", members, st, r.at)
		}
	}
}

// Who is on loopback is reached from its own host alone; whoever is not, is on another one, or could be asked by nobody else.
func TestWhoIsOnLoopbackElsewhereIsNotAsked(t *testing.T) {
	t.Parallel()
	u := inOrder(t, "a", "b")
	for _, far := range []bool{true, false} {
		for _, c := range []struct{ members, hint, want string }{{"a/loopback b", "", "b"}, {"a/loopback", "", "configure the node service there"}, {"a/loopback b", "a@4", "configure the node service there"}} {
			r := route{unit: u, ttl: routeTTL}
			st := r.start(&sight{field: field{Placement: NewPlacement(said(c.members)), far: far}, now: time.Unix(100, 0)}, ownerOf(c.hint))
			switch {
			case !far:
				if !st.ask || r.at.id != "a" {
					t.Errorf("%s: from the same host: %+v to %+v", c.members, st, r.at)
				}
			case st.ask:
				if r.at.id != c.want {
					t.Errorf("%s: asked %s, want %s", c.members, r.at.id, c.want)
				}
			case st.err == nil || !strings.Contains(st.err.Text, c.want) || !strings.Contains(st.err.Text, "a listens on 127.0.0.1:1"):
				t.Errorf("%s: %+v, want %s", c.members, st, c.want)
			}
		}
	}
}

// Where nobody knows on which host a member is, the error says what may be wrong.
func TestWhoDoesNotAnswerOnLoopbackMayBeOnAnotherHost(t *testing.T) {
	t.Parallel()
	r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
	_, _, err := through(&r, &sight{field: field{Placement: NewPlacement(said("a/loopback"))}, now: time.Unix(100, 0)}, "unavailable")
	if !strings.Contains(err.Text, "configure its node service") {
		t.Error(err)
	}
}

func TestAnAskWhoseTimeIsOverSaysSo(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, c := range []struct {
		answer  string
		code    transport.PeerCode
		unknown bool
	}{{"unavailable", transport.PeerEnded, false}, {"ended", transport.PeerEnded, false}, {"ended?", transport.PeerEnded, true}, {"unavailable?", transport.PeerEnded, true},
		{"rejected", transport.PeerRejected, false}} {
		for _, repeat := range []bool{false, true} {
			r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL, repeat: repeat}
			s := &sight{field: field{Placement: NewPlacement(said("a b"))}, now: time.Unix(100, 0)}
			r.start(s, transport.PeerOwner{})
			s.over = enough
			e := fault(c.answer)
			if e.Code == transport.PeerEnded {
				e.Err = context.Canceled
			}
			st := r.answered(s, e)
			if repeat || !c.unknown {
				if st.err == nil || st.err.Code != c.code || st.err.Unknown != c.unknown {
					t.Errorf("%s, repeat %v: %+v", c.answer, repeat, st)
				}
			}
			if st.err.Code == transport.PeerEnded && st.err.Err == nil {
				t.Errorf("%s: it does not say why", c.answer)
			}
		}
	}
	r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL, repeat: true}
	s := &sight{field: field{Placement: NewPlacement(said("a"))}, now: time.Unix(100, 0)}
	r.start(s, transport.PeerOwner{})
	r.answered(s, fault("unavailable?"))
	s.over = enough
	if e := r.ended(s).err; e.Code != transport.PeerEnded || !e.Unknown || !errors.Is(e, enough) || !strings.Contains(e.Text, "because") {
		t.Errorf("%+v", e)
	}
}

// This side's own node service says "stopping", too: then nobody can be asked.
func TestAProcessThatStopsAsksNobodyElse(t *testing.T) {
	t.Parallel()
	r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
	s := &sight{field: field{Placement: NewPlacement(said("a b"))}, now: time.Unix(100, 0), shut: true}
	r.start(s, transport.PeerOwner{})
	if st := r.answered(s, fault("stopping")); st.err == nil || st.err.Code != transport.PeerStopping {
		t.Errorf("%+v", st)
	}
}

// Nobody could be asked in the time of the caller: that passes, and nothing was done. What may have been done, what takes an entity its time, and a caller who has had enough are told as before.
func TestAnAskThatNobodyCouldBeAskedInItsTimeIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		here   bool // the end is this side's
		over   error
		shut   bool
		code   transport.PeerCode
	}{
		{answer: "unavailable", over: context.DeadlineExceeded, code: transport.PeerUnavailable},
		{answer: "unavailable", over: fmt.Errorf("%w: the page is not waited for", context.DeadlineExceeded), code: transport.PeerUnavailable},
		{answer: "busy", over: context.DeadlineExceeded, code: transport.PeerUnavailable},
		{answer: "stopping", over: context.DeadlineExceeded, code: transport.PeerUnavailable},
		{answer: "stopping", over: context.DeadlineExceeded, shut: true, code: transport.PeerEnded},
		{answer: "not owner: b@3 for 9s", over: context.DeadlineExceeded, code: transport.PeerUnavailable},
		{answer: "ended", here: true, over: context.DeadlineExceeded, code: transport.PeerUnavailable}, // it was not reached
		{answer: "ended", over: context.DeadlineExceeded, code: transport.PeerEnded},                   // it was, and the entity had other work
		{answer: "unavailable?", over: context.DeadlineExceeded, code: transport.PeerEnded},
		{answer: "ended?", here: true, over: context.DeadlineExceeded, code: transport.PeerEnded},
		{answer: "denied", over: context.DeadlineExceeded, code: transport.PeerEnded},
		{answer: "unknown kind", over: context.DeadlineExceeded, code: transport.PeerEnded},
		{answer: "unavailable", over: context.Canceled, code: transport.PeerEnded},
		{answer: "ended", here: true, over: context.Canceled, code: transport.PeerEnded},
		{answer: "unavailable", over: fmt.Errorf("%w: %w", context.Canceled, context.DeadlineExceeded), code: transport.PeerEnded},
	} {
		r := route{unit: inOrder(t, "a", "b"), ttl: routeTTL, repeat: true}
		s := &sight{field: field{Placement: NewPlacement(said("a b"))}, now: time.Unix(100, 0), over: c.over, shut: c.shut}
		r.start(s, transport.PeerOwner{})
		e := fault(c.answer)
		if c.here {
			e.Err = c.over
		}
		st := r.answered(s, e)
		if st.err == nil || st.err.Code != c.code || st.err.Unknown != e.Unknown || !strings.Contains(st.err.Text, "because") && !strings.Contains(st.err.Text, "b has it; its lease ends in 9s") || st.err.Err == nil && c.answer != "ended" {
			t.Errorf("%+v: %+v", c, st)
		}
		if st.err != nil && c.code == transport.PeerUnavailable && !errors.Is(st.err, context.DeadlineExceeded) {
			t.Errorf("%+v: %v is no end of a context", c, st.err.Err)
		}
	}
	r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
	s := &sight{field: field{Placement: NewPlacement(said("a/draining"))}, now: time.Unix(100, 0)}
	r.start(s, transport.PeerOwner{})
	s.over = context.DeadlineExceeded
	if e := r.ended(s).err; e.Code != transport.PeerUnavailable || !errors.Is(e, context.DeadlineExceeded) || !strings.Contains(e.Text, "none of the 1 members") {
		t.Errorf("nobody takes it: %+v", e)
	}
}

func TestOnlyWhoWasNotReachedMayBeOnAnotherHost(t *testing.T) {
	t.Parallel()
	u := inOrder(t, "a", "b")
	for _, c := range []struct {
		members   string
		unreached string
		hint      bool
	}{{"a/loopback b", "a", true}, {"a/loopback b", "b", false}, {"a/loopback b", "a b", true}, {"a/loopback b/loopback", "", false}} {
		r := route{unit: u, ttl: routeTTL}
		s := &sight{field: field{Placement: NewPlacement(said(c.members))}, now: time.Unix(100, 0)}
		st := r.start(s, transport.PeerOwner{})
		for st.err == nil {
			if !st.ask {
				s.now = s.now.Add(st.rest)
				st = r.again(s)
				continue
			}
			e := fault("unavailable")
			if strings.Contains(c.unreached, r.at.id) {
				e.Err = errors.New("not reached")
			}
			st = r.answered(s, e)
		}
		if strings.Contains(st.err.Text, "on loopback") != c.hint {
			t.Errorf("%+v: %s", c, st.err.Text)
		}
	}
}

// What a node says to those who ask it alone is of no use to whoever had all asked.
func TestWhoHasTheEntityIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer    string
		unreached bool
		want      string
	}{
		{"not owner: a@3 for 9s", true, "a has it and does not answer; its lease ends in 7.7s at the latest"},
		{"not owner: a@3 for 9s", false, "a has it; its lease ends in 7.7s at the latest"},
		{"not owner: a@3 for 1s", false, "a has it; its lease ends in 0s at the latest"},
		{"not owner: a@3", true, "a has it and does not answer; asked in"},
		{"not owner: z@3 for 9s", true, "a node that is no member any more has it; its lease ends in 7.7s at the latest"},
		{"not owner", true, "because; asked in"},
	} {
		r := route{unit: inOrder(t, "a", "b"), ttl: routeTTL}
		s := &sight{field: field{Placement: NewPlacement(said("a b"))}, now: time.Unix(100, 0)}
		r.start(s, transport.PeerOwner{})
		e := fault("unavailable")
		if c.unreached {
			e.Err = errors.New("not reached")
		}
		if st := r.answered(s, e); !st.ask || r.at.id != "b" {
			t.Fatalf("%+v: %+v", c, st)
		}
		if st := r.answered(s, fault(c.answer)); st.rest == 0 {
			t.Fatalf("%+v: %+v", c, st)
		}
		s.now = s.now.Add(1300 * time.Millisecond)
		given := r.fail(s, r.last).err
		s.over = context.DeadlineExceeded
		for _, e := range []*transport.PeerError{given, r.ended(s).err} {
			if e.Code != transport.PeerUnavailable || !strings.Contains(e.Text, c.want) {
				t.Errorf("%+v: %s: %s", c, e.Code, e.Text)
			}
		}
	}
}

func TestTheLastErrorIsOneLine(t *testing.T) {
	t.Parallel()
	text := errors.Join(errors.New("one"), errors.New("two:\r\n\tthree\n")).Error()
	for code, want := range map[transport.PeerCode]string{transport.PeerDenied: "one; two:; three", transport.PeerRejected: text, transport.PeerFailed: text} {
		r := route{unit: event.Unit{Name: "order", Key: "1"}, ttl: routeTTL}
		s := &sight{field: field{Placement: NewPlacement(said("a"))}, now: time.Unix(100, 0)}
		r.start(s, transport.PeerOwner{})
		st := r.answered(s, &transport.PeerError{Code: transport.PeerUnavailable})
		for st.err == nil && !st.ask {
			st = r.again(s)
		}
		st = r.answered(s, &transport.PeerError{Code: code, Text: text})
		if code == transport.PeerDenied {
			if st.err == nil {
				t.Fatal(st)
			}
			if !strings.HasPrefix(st.err.Text, want+"; asked in") || strings.ContainsAny(st.err.Text, "\n\r\t") {
				t.Errorf("%s: %q", code, st.err.Text)
			}
		} else if st.err == nil || st.err.Text != want {
			t.Errorf("%s: %+v", code, st)
		}
	}
}
