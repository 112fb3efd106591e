package actors

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// web is nodes whose units ask one another, without goroutines and without I/O: the waits of each node are the real ones, messages and behaviors are tables. What happens is a function of the
// seed.
type web struct {
	t     *testing.T
	rng   *rand.Rand
	lose  float64 // chance of a probe
	now   int     // milliseconds
	n     int
	todo  []happening
	nodes []*waits
	units map[event.Unit]*webbed
	log   strings.Builder

	circles map[event.Unit]int // units that wait in a circle, and since when
	slowest int                // from when a circle was closed until one of it was refused
	found   int                // circles that were closed
	refused int
	probed  int // circles that were found by probes
	begun   int // asks that were refused although they had begun
}

type happening struct {
	at, n int
	do    func()
}

// webbed is a unit. While it is busy it asks the units of its plan, one after the other.
type webbed struct {
	id      event.Unit
	node    int
	mailbox []*letter
	current *letter
	plan    []event.Unit
	waits   event.Unit // for whose answer it waits; zero = nobody's
}

// letter is an ask.
type letter struct {
	plan  []event.Unit // of the behavior that it makes
	ask   *ask
	reply func(refused bool)
}

func newWeb(t *testing.T, seed uint64, nodes int) *web {
	w := &web{t: t, rng: rand.New(rand.NewPCG(seed, 0)), units: map[event.Unit]*webbed{}, circles: map[event.Unit]int{}}
	for i := range nodes {
		s := &waits{node: uint64(i + 1)}
		s.mu.look = func() {
			w.after(int(probeEvery/time.Millisecond), func() {
				out, refused := s.sweep()
				w.chase(i, out, refused)
			})
		}
		w.nodes = append(w.nodes, s)
	}
	return w
}

func (w *web) unit(key string, node int) *webbed {
	u := &webbed{id: event.Unit{Name: "thing", Key: key}, node: node}
	w.units[u.id] = u
	return u
}

func (w *web) after(d int, do func()) {
	w.n++
	w.todo = append(w.todo, happening{w.now + d, w.n, do})
}

// late is how long a message is on its way.
func (w *web) late() int { return 1 + w.rng.IntN(20) }

func (w *web) pass(d int) {
	for end := w.now + d; ; {
		i := -1
		for j, h := range w.todo {
			if h.at <= end && (i < 0 || cmp.Or(cmp.Compare(h.at, w.todo[i].at), cmp.Compare(h.n, w.todo[i].n)) < 0) {
				i = j
			}
		}
		if i < 0 {
			w.now = end
			return
		}
		h := w.todo[i]
		w.todo = slices.Delete(w.todo, i, i+1)
		w.now = h.at
		h.do()
	}
}

func (w *web) say(format string, args ...any) {
	fmt.Fprintf(&w.log, "%4d "+format+"\n", append([]any{w.now}, args...)...)
}

// order has a unit told from outside whom to ask.
func (w *web) order(key string, plan ...string) {
	u := w.units[event.Unit{Name: "thing", Key: key}]
	l := &letter{ask: &ask{answer: make(chan answer, 1)}, reply: func(bool) {}}
	for _, next := range plan {
		l.plan = append(l.plan, event.Unit{Name: "thing", Key: next})
	}
	w.arrive(u, l)
}

func (w *web) arrive(u *webbed, l *letter) {
	u.mailbox = append(u.mailbox, l)
	w.next(u)
}

// next has a unit that is not busy begin what waits.
func (w *web) next(u *webbed) {
	for u.current == nil && len(u.mailbox) > 0 {
		l := u.mailbox[0]
		if u.mailbox = u.mailbox[1:]; l.ask.begin() { // else it was refused
			u.current, u.plan = l, l.plan
			w.say("%s begins", u.id.Key)
			w.goOn(u)
		}
	}
}

// goOn has a busy unit make its next ask, or answer.
func (w *web) goOn(u *webbed) {
	if len(u.plan) == 0 {
		done := u.current
		u.current = nil
		w.say("%s answers", u.id.Key)
		done.ask.deliver(answer{})
		done.reply(false)
		w.next(u)
		return
	}
	on := w.units[u.plan[0]]
	u.plan = u.plan[1:]
	s := w.nodes[u.node]
	w.waitFor(u, on.id)
	if on.node == u.node {
		k := &ask{answer: make(chan answer, 1)}
		if !s.add(&wait{by: u.id, on: on.id, ask: k}) {
			w.refuse(u, "at once")
			return
		}
		w.arrive(on, &letter{ask: k, plan: w.few(), reply: func(bool) { w.answered(u, 0) }})
		return
	}
	far := &wait{by: u.id, on: on.id, far: true}
	if !s.add(far) {
		w.refuse(u, "at once")
		return
	}
	by := s.behind(u.id)
	far.AskedAt(strconv.Itoa(on.node))
	back := func(refused bool) {
		w.opened(u)
		w.after(w.late(), func() {
			s.remove(far)
			w.answered(u, 0)
		})
	}
	w.after(w.late(), func() {
		k := &ask{answer: make(chan answer, 1)}
		if !w.nodes[on.node].add(chainOf(by, on.id, k, far.id)) {
			w.refused++
			w.circleOf(u, "at once at "+on.id.Key)
			back(true)
			return
		}
		l := &letter{ask: k, plan: w.few(), reply: back}
		w.arrive(on, l)
	})
}

// few is what a unit asks that is asked itself: in a schedule by chance, nobody in a script.
func (w *web) few() (plan []event.Unit) {
	if w.lose < 0 || w.rng.IntN(3) > 0 {
		return nil
	}
	all := w.all()
	return []event.Unit{all[w.rng.IntN(len(all))]}
}

func (w *web) all() (all []event.Unit) {
	for u := range w.units {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b event.Unit) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// answered has a unit go on that waited.
func (w *web) answered(u *webbed, late int) {
	w.opened(u)
	w.after(late, func() { w.goOn(u) })
}

// refuse is for an ask that its own node refuses.
func (w *web) refuse(u *webbed, how string) {
	w.refused++
	w.circleOf(u, how)
	w.answered(u, 0)
}

// waitFor notes, for the oracle, that a unit waits for another, and whether that closes a circle.
func (w *web) waitFor(u *webbed, on event.Unit) {
	u.waits = on
	w.say("%s asks %s", u.id.Key, on.Key)
	if circle := w.circle(u); circle != nil {
		w.found++
		for _, in := range circle {
			w.circles[in] = w.now
		}
	}
}

// circle gives the units of the circle that a unit is part of; nil = it is of none.
func (w *web) circle(u *webbed) (all []event.Unit) {
	for at := u; !at.waits.IsZero(); at = w.units[at.waits] {
		all = append(all, at.id)
		if at.waits == u.id {
			return all
		}
		if len(all) > len(w.units) {
			return nil // it leads into one
		}
	}
	return nil
}

func (w *web) opened(u *webbed) { u.waits = event.Unit{} }

// circleOf checks that an ask of a unit that is refused is part of a circle, which it opens.
func (w *web) circleOf(u *webbed, how string) {
	w.say("%s is refused %s", u.id.Key, how)
	circle := w.circle(u)
	if circle == nil {
		w.t.Errorf("%d: %s is refused %s, and is part of no circle", w.now, u.id.Key, how)
	}
	w.slowest = max(w.slowest, w.now-w.circles[u.id])
	w.opened(u)
}

// chase is what the shell of a node does.
func (w *web) chase(node int, out []dispatch, refused []*ask) {
	for _, k := range refused {
		w.refused++
		w.probed++
		by := w.units[k.wait.directly().by]
		w.circleOf(by, "by a probe")
		l := w.letterOf(k)
		k.forgetWait()
		l.reply(true)
	}
	for _, d := range out {
		if w.rng.Float64() < w.lose {
			continue
		}
		w.after(w.late(), func() {
			to := node
			if d.to != "" {
				to, _ = strconv.Atoi(d.to)
			}
			out, refused := w.nodes[to].probed(d.probe)
			w.chase(to, out, refused)
		})
	}
}

// directly gives the wait of the one who asks.
func (w *wait) directly() *wait {
	for w.through {
		w = w.next
	}
	return w
}

func (w *web) letterOf(k *ask) *letter {
	for _, u := range w.units {
		for _, l := range u.mailbox {
			if l.ask == k {
				return l
			}
		}
		if u.current != nil && u.current.ask == k {
			w.begun++
			return u.current
		}
	}
	w.t.Fatal("what was refused is in no mailbox")
	return nil
}

func drawn(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("KEYHOLD_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	return seed
}

// Whatever units of several nodes ask one another, and when, nobody waits for ever, and each circle costs one ask.
func TestOfEachCircleOneAskIsRefused(t *testing.T) {
	t.Parallel()
	seed := drawn(t)
	circles, probed, slowest := 0, 0, 0
	for run := range uint64(600) {
		w := newWeb(t, seed+run, 1+int(run%5))
		var keys []string
		for i := range 3 + w.rng.IntN(8) {
			keys = append(keys, string(rune('a'+i)))
			w.unit(keys[i], w.rng.IntN(len(w.nodes)))
		}
		for range 5 + w.rng.IntN(30) {
			plan := make([]string, 1+w.rng.IntN(3))
			for i := range plan {
				plan[i] = keys[w.rng.IntN(len(keys))]
			}
			key, at := keys[w.rng.IntN(len(keys))], w.rng.IntN(100)
			w.after(at, func() { w.order(key, plan...) })
		}
		w.settles(60_000)
		if w.refused != w.found {
			t.Errorf("%d asks were refused for %d circles", w.refused, w.found)
		}
		if w.begun > 0 {
			t.Errorf("%d asks were refused that had begun", w.begun)
		}
		circles, probed, slowest = circles+w.found, probed+w.probed, max(slowest, w.slowest)
		if t.Failed() {
			t.Fatalf("KEYHOLD_SEED=%d\n%s", seed+run, w.log.String())
		}
	}
	t.Logf("%d circles, %d of them found by probes; the slowest took %d ms", circles, probed, slowest)
	if probed == 0 {
		t.Error("no circle needed a probe")
	}
	if most := 1000 + 20*20; slowest > most { // between two probes of one ask, and their way
		t.Errorf("a circle was there for %d ms, want %d at most", slowest, most)
	}
}

// Lost probes are sent again.
func TestCirclesAreFoundThoughProbesAreLost(t *testing.T) {
	t.Parallel()
	seed := drawn(t)
	for run := range uint64(50) {
		w := newWeb(t, seed+run, 4)
		w.lose = 0.5
		for i, key := range []string{"a", "b", "c", "d"} {
			w.unit(key, i)
		}
		for i, key := range []string{"a", "b", "c", "d"} {
			w.order(key, string(rune('a'+(i+1)%4)))
		}
		w.settles(600_000)
		if w.refused != w.found {
			t.Fatalf("%d asks were refused for %d circles; KEYHOLD_SEED=%d\n%s", w.refused, w.found, seed+run, w.log.String())
		}
	}
}

// settles has time go by until nobody is busy and nothing is noted.
func (w *web) settles(most int) {
	w.t.Helper()
	for !w.isStill() {
		if w.pass(100); w.now > most {
			w.t.Errorf("units are stuck")
			return
		}
	}
	for i, s := range w.nodes {
		if len(s.mu.by) > 0 || len(s.mu.served) > 0 || s.mu.far != 0 {
			w.t.Errorf("node %d still has %d waits, %d asks served, %d asked elsewhere", i, len(s.mu.by), len(s.mu.served), s.mu.far)
		}
		if s.mu.looking {
			w.t.Errorf("node %d still looks for circles", i)
		}
	}
}

func (w *web) isStill() bool {
	for _, u := range w.units {
		if u.current != nil || len(u.mailbox) > 0 {
			return false
		}
	}
	return len(w.todo) == 0
}

// An ask that a probe found before it came into a mailbox is not used for another one: the answer of the first is in its channel.
func TestAnAskThatWasRefusedOnItsWayIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	var r Runtime
	for _, state := range []uint32{askWaiting, askAnswered} {
		k := r.asks.get()
		k.ctx = t.Context()
		k.state.Store(state)
		if got := r.askHere(Ref{Kind: "thing", ID: "a"}, k); !errors.Is(got.err, ErrStopping) {
			t.Errorf("a runtime that is not started says %v", got.err)
		}
		if again := k.ctx == nil; again != (state == askWaiting) {
			t.Errorf("state %d: it may be used again: %v", state, again)
		}
	}
}

// Whoever was waited for may have given up while the probe was on its way round.
func TestAProbeThatComesBackLateRefusesNothing(t *testing.T) {
	t.Parallel()
	var w waits
	a, b := event.Unit{Name: "thing", Key: "a"}, event.Unit{Name: "thing", Key: "b"}
	id := transport.PeerAskID{Node: 1, Number: 1}
	if !w.add(chainOf([]event.Unit{a}, b, &ask{answer: make(chan answer, 1)}, id)) {
		t.Fatal("refused")
	}
	for _, waits := range []bool{false, true, false} {
		far := &wait{by: b, on: event.Unit{Name: "thing", Key: "c"}, far: true}
		if waits && !w.add(far) {
			t.Fatal("refused")
		}
		_, refused := w.probed(transport.PeerProbe{Origin: id, Along: id, Hops: 2})
		if got := len(refused) == 1; got != waits {
			t.Errorf("b waits: %v; its ask is refused: %v", waits, got)
		}
		w.remove(far)
	}
}

// What three nodes do about a circle that they close at one moment.
func TestTheWayOfAProbe(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 1, 3)
	w.lose = -1
	w.unit("a", 0)
	w.unit("b", 1)
	w.unit("c", 2)
	w.order("a", "b")
	w.order("b", "c")
	w.order("c", "a")
	w.pass(150)
	same := func(what string, want, got any) {
		t.Helper()
		if want != got {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	same("begun", 0, w.refused)
	w.settles(10_000)
	same("circles", 1, w.found)
	same("refused", 1, w.refused)
	want := strings.TrimLeft(`
   0 a begins
   0 a asks b
   0 b begins
   0 b asks c
   0 c begins
   0 c asks a
`, "\n")
	got := w.log.String()
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "c is refused by a probe\n") {
		t.Error(got)
	}
}

// An ask that waits behind a circle, and has the greatest id of all, neither hides it nor keeps its probes going round.
func TestAProbeThatIsCaughtInACircleEnds(t *testing.T) {
	t.Parallel()
	var w waits
	w.node = 2
	b := event.Unit{Name: "thing", Key: "b"}
	k := &ask{answer: make(chan answer, 1)}
	k.begin()
	in := transport.PeerAskID{Node: 1, Number: 1}
	if !w.add(chainOf([]event.Unit{{Name: "thing", Key: "a"}}, b, k, in)) {
		t.Fatal("refused")
	}
	far := &wait{by: b, on: event.Unit{Name: "thing", Key: "c"}, far: true}
	if !w.add(far) {
		t.Fatal("refused")
	}
	far.AskedAt("node-3:7000")
	p := transport.PeerProbe{Origin: transport.PeerAskID{Node: 9, Number: 9}, Along: in, Hops: mostProbeHops - 1}
	out, _ := w.probed(p)
	if len(out) != 1 || out[0].to != "node-3:7000" || out[0].probe.Hops != mostProbeHops || out[0].probe.Along != far.id || out[0].probe.Origin != p.Origin {
		t.Errorf("a probe goes on as %v", out)
	}
	if again, _ := w.probed(p); len(again) != 0 {
		t.Errorf("the same probe goes on twice: %v", again)
	}
	w.sweep()
	p.Hops++
	if out, _ := w.probed(p); len(out) != 0 {
		t.Errorf("a probe goes on after %d hops: %v", p.Hops, out)
	}
	for _, p.Hops = range []int{0, -1, math.MinInt32} {
		if out, _ := w.probed(p); len(out) != 0 {
			t.Errorf("a probe goes on after %d hops: %v", p.Hops, out)
		}
	}
	p.Hops, p.Along.Number = 1, 7
	if out, _ := w.probed(p); len(out) != 0 {
		t.Errorf("a probe along an ask that is not there goes on: %v", out)
	}
}
