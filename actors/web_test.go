package actors

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
)

// web is nodes whose units ask one another, without goroutines and without I/O: the waits of each node are the real ones, messages and behaviors are tables. What happens is a function of the
// seed.
type web struct {
	t     *testing.T
	rng   *rand.Rand
	lose  float64 // chance of a probe
	hasty float64 // chance that whoever asks gives up after a while
	slow  int     // milliseconds that a message is on its way at most
	now   int     // milliseconds
	n     int
	todo  []happening
	nodes []*waits
	units map[event.Unit]*webbed
	log   strings.Builder

	circles map[event.Unit]int // units that wait in a circle, and since when
	slowest int                // that a circle was there
	found   int                // circles that were closed
	refused int
	probed  int // circles that were found by probes
	begun   int // asks that were refused although they had begun
	gaveUp  int
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
	circled bool       // what it waits for was part of a circle
	turn    int        // number of that wait
}

// letter is an ask.
type letter struct {
	plan  []event.Unit // of the behavior that it makes
	ask   *ask
	reply func() (waited bool)
}

func newWeb(t *testing.T, seed uint64, nodes int) *web {
	w := &web{t: t, rng: rand.New(rand.NewPCG(seed, 0)), slow: 20, units: map[event.Unit]*webbed{}, circles: map[event.Unit]int{}}
	for i := range nodes {
		s := &waits{node: uint64(i + 1)}
		s.mu.look = func() {
			w.after(int(probeEvery/time.Millisecond), func() {
				w.chase(i, s.sweep(), nil)
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
func (w *web) late() int { return 1 + w.rng.IntN(w.slow) }

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
	l := &letter{ask: &ask{answer: make(chan answer, 1)}, reply: func() bool { return false }}
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
		done.reply()
		w.next(u)
		return
	}
	on := w.units[u.plan[0]]
	u.plan = u.plan[1:]
	s := w.nodes[u.node]
	w.waitFor(u, on.id)
	if on.node == u.node {
		k := &ask{answer: make(chan answer, 1)}
		out, ok := s.add(&wait{by: u.id, on: on.id, ask: k})
		if !ok {
			w.refuse(u, "at once")
			return
		}
		w.mayGiveUp(u, k.quit)
		w.arrive(on, &letter{ask: k, plan: w.few(), reply: w.whileItWaits(u, func() { w.goOnSoon(u) })})
		w.chase(u.node, out, nil)
		return
	}
	far := &wait{by: u.id, on: on.id, far: true}
	if _, ok := s.add(far); !ok {
		w.refuse(u, "at once")
		return
	}
	by := s.behind(u.id)
	far.AskedAt(strconv.Itoa(on.node))
	k := &ask{answer: make(chan answer, 1)}
	w.mayGiveUp(u, func() {
		s.remove(far)
		w.after(w.late(), k.quit)
	})
	back := w.whileItWaits(u, func() {
		turn := u.turn
		w.after(w.late(), func() {
			s.remove(far)
			if u.turn == turn {
				w.goOnSoon(u)
			}
		})
	})
	w.after(w.late(), func() {
		if k.state.Load() == askLeft {
			return
		}
		out, ok := w.nodes[on.node].add(chainOf(by, on.id, k, far.id))
		if !ok {
			w.t.Errorf("%d: %s is refused at %s on hearsay", w.now, u.id.Key, on.id.Key)
			return
		}
		w.arrive(on, &letter{ask: k, plan: w.few(), reply: back})
		w.chase(on.node, out, nil)
	})
}

// quit is what becomes of an ask that nobody waits for any more.
func (a *ask) quit() {
	if a.leave() || a.state.CompareAndSwap(askBegun, askLeft) {
		a.forgetWait()
	}
}

// mayGiveUp has a unit give up by chance what it waits for now.
func (w *web) mayGiveUp(u *webbed, quit func()) {
	if w.rng.Float64() >= w.hasty {
		return
	}
	turn := u.turn
	w.after(1+w.rng.IntN(400), func() {
		if u.turn != turn || u.waits.IsZero() {
			return
		}
		w.gaveUp++
		w.say("%s gives up", u.id.Key)
		w.opened(u)
		u.turn++
		quit()
		w.goOn(u)
	})
}

// whileItWaits has an answer noted unless the unit has given up what it waits for now.
func (w *web) whileItWaits(u *webbed, do func()) func() bool {
	turn := u.turn
	return func() bool {
		if u.turn != turn {
			return false
		}
		w.opened(u)
		do()
		return true
	}
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

func (w *web) goOnSoon(u *webbed) { w.after(0, func() { w.goOn(u) }) }

// refuse is for an ask that its own node refuses.
func (w *web) refuse(u *webbed, how string) {
	w.refused++
	w.refusal(u, how, w.circle(u) != nil)
	w.opened(u)
	w.goOnSoon(u)
}

// waitFor notes, for the oracle, that a unit waits for another, and whether that closes a circle.
func (w *web) waitFor(u *webbed, on event.Unit) {
	u.waits, u.circled = on, false
	u.turn++
	w.say("%s asks %s", u.id.Key, on.Key)
	if circle := w.circle(u); circle != nil {
		w.found++
		for _, in := range circle {
			w.circles[in] = w.now
			w.units[in].circled = true
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

// opened notes that a unit waits no more, and with it the circle that it was part of.
func (w *web) opened(u *webbed) {
	if w.circle(u) != nil {
		w.slowest = max(w.slowest, w.now-w.circles[u.id])
	}
	u.waits = event.Unit{}
}

// refusal checks that an ask of a unit that is refused is part of a circle, or was until somebody of it gave up.
func (w *web) refusal(u *webbed, how string, circled bool) {
	w.say("%s is refused %s", u.id.Key, how)
	if !circled {
		w.t.Errorf("%d: %s is refused %s, and is part of no circle", w.now, u.id.Key, how)
	}
}

// chase is what the shell of a node does.
func (w *web) chase(node int, out []dispatch, refused *ask) {
	if k := refused; k != nil {
		by := w.units[k.wait.directly().by]
		circled := by.circled && (w.hasty > 0 || w.circle(by) != nil)
		k.forgetWait()
		if w.letterOf(k).reply() {
			w.refused++
			w.probed++
			w.refusal(by, "by a probe", circled)
		}
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
