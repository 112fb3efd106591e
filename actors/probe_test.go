package actors

import (
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

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
	criscross(t, 600, 0, 20)
}

// What was given up is no part of a circle, although others do not know yet.
func TestNoAskIsRefusedForAnotherThatWasGivenUp(t *testing.T) {
	t.Parallel()
	criscross(t, 1500, 0.4, 200)
}

func criscross(t *testing.T, runs uint64, hasty float64, slow int) {
	seed := drawn(t)
	circles, probed, slowest, gaveUp := 0, 0, 0, 0
	for run := range runs {
		w := newWeb(t, seed+run, 1+int(run%5))
		w.hasty, w.slow = hasty, slow
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
		if w.refused > w.found || w.refused < w.found && hasty == 0 {
			t.Errorf("%d asks were refused for %d circles", w.refused, w.found)
		}
		if w.begun > 0 {
			t.Errorf("%d asks were refused that had begun", w.begun)
		}
		circles, probed, slowest, gaveUp = circles+w.found, probed+w.probed, max(slowest, w.slowest), gaveUp+w.gaveUp
		if t.Failed() {
			t.Fatalf("KEYHOLD_SEED=%d\n%s", seed+run, w.log.String())
		}
	}
	t.Logf("%d circles, %d of them found by probes; the slowest was there for %d ms; %d asks were given up", circles, probed, slowest, gaveUp)
	if probed == 0 {
		t.Error("no circle needed a probe")
	}
	if most := 1000 + 2*20*slow; slowest > most { // between two probes of one ask, and their way, twice
		t.Errorf("a circle was there for %d ms, want %d at most", slowest, most)
	}
}

// Lost probes are sent again.
func TestCirclesAreFoundThoughProbesAreLost(t *testing.T) {
	t.Parallel()
	seed := drawn(t)
	for run := range uint64(50) {
		w := newWeb(t, seed+run, 4)
		w.lose = 0.3
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
	first := &ask{answer: make(chan answer, 1)}
	w.mustAdd(t, chainOf([]event.Unit{a}, b, first, id))
	far := &wait{by: b, on: event.Unit{Name: "thing", Key: "c"}, far: true}
	w.mustAdd(t, far)
	p := transport.PeerProbe{Origin: id, Way: []transport.PeerStep{{Ask: far.id, Made: 1}, {Ask: id, Made: 7}}, At: 1}
	out, refused := w.probed(p)
	if len(out) != 1 || refused != nil || !out[0].probe.Again || out[0].probe.At != 0 {
		t.Fatalf("a probe that comes back goes round again as %v; refused: %v", out, refused)
	}
	again := out[0].probe
	w.remove(far)
	if out, refused := w.probed(p); out != nil || refused != nil {
		t.Errorf("b does not wait any more; its probe goes on as %v; refused: %v", out, refused)
	}
	other := &wait{by: b, on: event.Unit{Name: "thing", Key: "d"}, far: true}
	w.mustAdd(t, other)
	if out, refused := w.probed(p); out != nil || refused != nil {
		t.Errorf("b waits for another; its probe goes on as %v; refused: %v", out, refused)
	}
	again.At = 1
	if _, refused := w.probed(again); refused != first {
		t.Errorf("all the others have confirmed it; refused: %v", refused)
	}
	if _, refused := w.probed(again); refused != nil {
		t.Error("it is refused twice")
	}
}

// What a unit has come to wait for since the probe was there the first time is no part of the way, though it leads on to the same ask.
func TestTheSecondTimeAProbeGoesAlongWhatWasThereTheFirst(t *testing.T) {
	t.Parallel()
	var w waits
	unit := func(key string) event.Unit { return event.Unit{Name: "thing", Key: key} }
	id := transport.PeerAskID{Node: 1, Number: 1}
	w.mustAdd(t, chainOf([]event.Unit{unit("a")}, unit("b"), &ask{answer: make(chan answer, 1)}, id))
	begun := func() *ask {
		k := &ask{answer: make(chan answer, 1)}
		k.begin()
		return k
	}
	direct, far := &wait{by: unit("b"), on: unit("c"), ask: begun()}, &wait{by: unit("c"), on: unit("d"), far: true}
	w.mustAdd(t, direct)
	w.mustAdd(t, far)
	out, _ := w.probed(transport.PeerProbe{Origin: transport.PeerAskID{Node: 9, Number: 9}, Way: []transport.PeerStep{{Ask: id}}})
	if len(out) != 1 || !slices.Equal(out[0].probe.Way, []transport.PeerStep{{Ask: id}, {Ask: far.id, Made: 2}}) || out[0].probe.At != 1 {
		t.Fatalf("it goes on as %v", out)
	}
	p := out[0].probe
	p.Again, p.At = true, 0
	if out, _ := w.probed(p); len(out) != 1 || out[0].probe.At != 1 {
		t.Errorf("b waits for c, and c still: it goes on as %v", out)
	}
	w.remove(direct)
	w.mustAdd(t, &wait{by: unit("b"), on: unit("e"), ask: begun()})
	w.mustAdd(t, &wait{by: unit("e"), on: unit("c"), ask: begun()})
	if out, _ := w.probed(p); out != nil {
		t.Errorf("b waits for c through another now, and goes on as %v", out)
	}
}

func (w *waits) mustAdd(t *testing.T, first *wait) {
	t.Helper()
	if _, ok := w.add(first); !ok {
		t.Fatal("refused")
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
	w.mustAdd(t, chainOf([]event.Unit{{Name: "thing", Key: "a"}}, b, k, in))
	far := &wait{by: b, on: event.Unit{Name: "thing", Key: "c"}, far: true}
	w.mustAdd(t, far)
	far.AskedAt("node-3:7000")
	p := transport.PeerProbe{Origin: transport.PeerAskID{Node: 9, Number: 9}}
	for n := range mostProbeHops - 1 {
		p.Way = append(p.Way, transport.PeerStep{Ask: transport.PeerAskID{Node: 1, Number: uint64(mostProbeHops - n - 1)}})
	}
	p.At = len(p.Way) - 1
	out, _ := w.probed(p)
	if len(out) != 1 || out[0].to != "node-3:7000" || out[0].probe.At != mostProbeHops-1 || out[0].probe.Way[mostProbeHops-1].Ask != far.id || out[0].probe.Origin != p.Origin {
		t.Errorf("a probe goes on as %v", out)
	}
	if again, _ := w.probed(p); len(again) != 0 {
		t.Errorf("the same probe goes on twice: %v", again)
	}
	w.sweep()
	round := p
	round.Way = slices.Clone(p.Way)
	round.Way[3].Ask = far.id
	if out, _ := w.probed(round); len(out) != 0 {
		t.Errorf("a probe goes round a circle again: %v", out)
	}
	long := p
	long.Way = append([]transport.PeerStep{{Ask: transport.PeerAskID{Node: 7, Number: 7}}}, p.Way...)
	long.At++
	if out, _ := w.probed(long); len(out) != 0 {
		t.Errorf("a probe goes on after %d hops: %v", len(long.Way), out)
	}
	for _, at := range []int{-1, math.MinInt32, len(p.Way), 0} {
		wrong := p
		wrong.At = at
		if out, _ := w.probed(wrong); len(out) != 0 {
			t.Errorf("a probe at %d goes on: %v", at, out)
		}
	}
	unknown := p
	unknown.Way = []transport.PeerStep{{Ask: transport.PeerAskID{Node: 1, Number: 700}}}
	unknown.At = 0
	if out, _ := w.probed(unknown); len(out) != 0 {
		t.Errorf("a probe along an ask that is not there goes on: %v", out)
	}
}
