package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// world is everything that exists: the store and the broker as they are, nodes, and what is going to happen.
type world struct {
	scene Scene
	rng   *rand.Rand
	trace *strings.Builder // nil in most runs: telling costs more than doing
	now   partitions.Tick
	todo  schedule
	count int    // of what was ever scheduled
	wrong string // what went wrong first

	cfg      [2][2]partitions.Config // of handlers and of entity kinds, on the first node and on the other
	units    []*unit
	nodes    []*node
	calm     bool // no more faults
	amnesty  partitions.Tick
	storeGen event.Generation // of a store that one process owns
	stopped  bool             // in the orderly way, the process that owned the store last
	owners   int              // owner ids given out
	seen     map[string]int   // what happened, to tell whether a world is hard enough
}

// unit is one unit as the store, the broker and the oracle know it.
type unit struct {
	id     event.Unit
	number int
	entity bool
	lanes  []*lane
	refs   []event.LaneRef

	// In the store.
	row    event.Generation
	halt   *partitions.Failure
	paused bool
	parked []*aside // in order
	dead   []*aside // in order of their places
	tried  *partitions.Tried
	work   int // units of work committed: what an instance that missed none has counted

	// In the broker.
	owner   int // of the lease, 0 = none
	gen     event.Generation
	until   partitions.Tick
	clean   bool
	counter event.Generation
	busy    bool
	begun   int // the last process that owned it, of a store that one process owns

	// For the oracle.
	recovered event.Generation // highest generation that was told to serve
	most      int              // entries that were parked at once
	visits    []*visit         // of user code that is inside
	disturbed partitions.Tick  // by a fault or a person, or that it got on, last
	missed    int              // times since then that nobody was told that it was left unclean
}

// lane is one lane: its records in the store, and a stream in the broker.
type lane struct {
	ref        event.LaneRef
	foreign    bool // no records in the store: what the broker trimmed is gone
	records    []*record
	checkpoint event.Sequence

	lo, hi event.Sequence // entries in the stream, hi 0 = none
	acked  event.Sequence

	applied event.Sequence // by effects that were committed
}

// record is what will come of an entry.
type record struct {
	kind    string // "placed", "ignored", "void", "newer"; "poison" fails for good, "flaky" a few times, "crash" ends the process, "trap" fails, and does that once it was set aside
	fails   int    // attempts that are still going to fail, of a flaky one
	failed  int    // attempts that failed
	crashes int    // of the process, from inside, since it became due
	calmly  int    // of these, those since its unit was last disturbed, or got on
	alone   int    // times its owner ended, or lost it, while no other suspect was inside, or may have before it could take back what it counted, since it became due
	applied int    // by effects that were committed
	parked  bool   // it waits for a person
	dead    bool   // it is a dead letter
	skipped bool   // by a person
}

func newWorld(scene Scene, rng *rand.Rand, trace *strings.Builder) *world {
	w := &world{scene: scene, rng: rng, trace: trace, now: partitions.Tick(time.Second), storeGen: 1, stopped: true, seen: make(map[string]int)}
	for _, asks := range []bool{false, true} {
		cfg := partitions.Config{
			Asks:       asks,
			Handling:   handling,
			Attempts:   2 + rng.IntN(2),
			Policy:     partitions.Policy(rng.IntN(3)),
			MaxParked:  1 + rng.IntN(6),
			MaxCrashes: 1 + rng.IntN(2),
			IdleAfter:  []time.Duration{time.Second, 5 * time.Second, 40 * time.Second}[rng.IntN(3)],
			ReadAhead:  1 + rng.IntN(4),
			PassedMax:  1 + rng.IntN(4),
		}.WithDefaults()
		if scene.Leased {
			cfg.Traits = partitions.Traits{Leased: true, TTL: ttl, Heartbeat: heartbeat, Margin: margin}
		}
		newer := cfg
		newer.Handling = newerHandling
		w.cfg[0][index(asks)], w.cfg[1][index(asks)] = cfg, newer
	}
	for i := range 3 {
		w.units = append(w.units, newUnit(i))
	}
	for i := range 1 + index(w.scene.Leased) {
		w.nodes = append(w.nodes, &node{w: w, number: i, name: string(rune('A' + i)), actors: make([]*actor, len(w.units)), last: make([]partitions.Tick, len(w.units))})
	}
	return w
}

func index(second bool) int {
	if second {
		return 1
	}
	return 0
}

// newUnit makes a handler over two categories, an entity kind with its commands, or a handler of another producer's events.
func newUnit(i int) *unit {
	u := &unit{number: i, clean: true}
	switch i {
	case 0:
		u.id = event.Unit{Name: "billing", Key: "k"}
		u.lanes = []*lane{{ref: ref("order", event.Primary)}, {ref: ref("order", event.Backfill)}, {ref: ref("payment", event.Primary)}}
	case 1:
		u.id, u.entity = event.Unit{Name: "order", Key: "k"}, true
		u.lanes = []*lane{{ref: ref("order.commands", event.Primary)}}
	default:
		u.id = event.Unit{Name: "audit", Key: "k"}
		u.lanes = []*lane{{ref: ref("foreign", event.Primary), foreign: true}, {ref: ref("order", event.Primary)}}
	}
	for _, l := range u.lanes {
		u.refs = append(u.refs, l.ref)
	}
	return u
}

func ref(category string, l event.Lane) event.LaneRef {
	return event.LaneRef{Category: category, Key: "k", Lane: l}
}

func handling(e *event.Envelope) partitions.Handling {
	if e.Type == "newer" {
		return partitions.AwaitNewer
	}
	return newerHandling(e)
}

func newerHandling(e *event.Envelope) partitions.Handling {
	if e.Type == "ignored" {
		return partitions.PassOver
	}
	return partitions.Handle
}

// play lets everything happen, first with faults and then, calmly, until all is applied.
func (w *world) play() {
	for _, n := range w.nodes {
		n.start()
	}
	w.producers()
	if w.scene.Leased {
		w.every(healAfter, w.heal)
	}
	faults := 3 + w.rng.IntN(6)
	if w.scene.Harsh {
		faults *= 4
	}
	for range faults {
		w.at(w.within(troubled), w.fault)
	}
	w.at(partitions.Tick(troubled), w.calmDown)
	for w.wrong == "" {
		if w.calm && w.settled() || len(w.todo) == 0 {
			break
		}
		if w.now > partitions.Tick(troubled+patience) {
			break
		}
		ev := heap.Pop(&w.todo).(occurrence)
		w.now = max(w.now, ev.at)
		ev.do()
	}
	w.atTheEnd()
}

// producers have records committed and asks asked, all within the time of faults.
func (w *world) producers() {
	kinds := []string{"placed", "placed", "placed", "placed", "ignored", "void", "flaky", "poison"}
	switch {
	case w.scene.Harsh:
		kinds = []string{"placed", "placed", "placed", "ignored", "flaky", "flaky", "poison", "trap", "crash"}
	case w.rng.IntN(3) == 0:
		kinds = append(kinds, "crash", "trap")
	}
	if w.scene.Leased {
		kinds = append(kinds, "newer") // and there is a node that knows it
	}
	for _, u := range w.units {
		for _, l := range u.lanes {
			for range w.rng.IntN(6) {
				kind := kinds[w.rng.IntN(len(kinds))]
				fails := 1 + w.rng.IntN(4)
				w.at(w.within(troubled), func() { w.produce(u, l, &record{kind: kind, fails: fails}) })
			}
		}
		if u.entity {
			for range w.rng.IntN(5) {
				w.at(w.within(troubled), func() { w.ask(u) })
			}
		}
	}
}

// ask has some node asked.
func (w *world) ask(u *unit) {
	if n := w.nodes[w.rng.IntN(len(w.nodes))]; n.up {
		n.demand(u)
	}
}

// fault is one of the things that go wrong.
func (w *world) fault() {
	if w.calm {
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	u := w.units[w.rng.IntN(len(w.units))]
	pick := w.rng.IntN(16)
	switch {
	case pick < 2:
		n.freeze(w.between(time.Second, 2*ttl))
	case pick < 4:
		n.crash(w.between(time.Millisecond, 5*time.Second))
	case pick == 4:
		n.drain(w.between(time.Millisecond, 5*time.Second))
	case pick == 5 || pick == 10 || pick == 11:
		n.deaf = w.now.Add(w.between(heartbeat, 2*ttl)) // renewals alone are blocked
		w.tell("%s: renewals are blocked until %s", n.name, n.deaf)
	case pick == 6:
		n.lose(u)
	case pick == 7 && w.scene.Leased:
		w.flush()
	case pick == 8 && w.scene.Leased:
		w.loseTail(u)
	default:
		w.act(u)
	}
}

// calmDown ends all faults.
func (w *world) calmDown() {
	w.tell("calm")
	w.calm = true
	for _, n := range w.nodes {
		n.deaf = 0
		n.thaw()
		if !n.up && !n.starting {
			n.start()
		}
	}
	for _, u := range w.units {
		w.disturb(u)
	}
	w.every(healAfter, func() {
		for _, u := range w.units {
			if u.waits() {
				w.act(u)
			}
		}
	})
}

// settled reports whether nothing is left to do.
func (w *world) settled() bool {
	for _, u := range w.units {
		if u.halted() != nil || u.paused || len(u.parked) > 0 || u.isDue() || u.owner != 0 && w.now < u.until {
			return false
		}
		for _, l := range u.lanes {
			if l.checkpoint < event.Sequence(len(l.records)) {
				return false
			}
		}
	}
	for _, n := range w.nodes {
		for _, a := range n.actors {
			if a != nil {
				return false
			}
		}
	}
	return true
}

// occurrence is something that is going to happen.
type occurrence struct {
	at partitions.Tick
	n  int // what was scheduled first happens first
	do func()
}

type schedule []occurrence

func (s schedule) Len() int { return len(s) }
func (s schedule) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].n < s[j].n
}
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)   { *s = append(*s, x.(occurrence)) }
func (s *schedule) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func (w *world) at(t partitions.Tick, do func()) {
	w.count++
	heap.Push(&w.todo, occurrence{at: max(t, w.now), n: w.count, do: do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

func (w *world) every(d time.Duration, do func()) {
	w.after(d, func() {
		do()
		w.every(d, do)
	})
}

func (w *world) within(d time.Duration) partitions.Tick {
	return partitions.Tick(w.between(0, d))
}

func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)))
}

// chance is true one time in n, and never when all is calm.
func (w *world) chance(n int) bool { return !w.calm && w.rng.IntN(n) == 0 }

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

func (w *world) tell(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%-12s "+format+"\n", append([]any{w.now}, args...)...)
	}
}
