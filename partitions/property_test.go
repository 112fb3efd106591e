package partitions_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/sim"
	"github.com/keyhold/keyhold/partitions"
)

// TestPromisesForAnyInputs: whatever a shell, a store and a broker say, in whatever order, the machine keeps what it promises.
func TestPromisesForAnyInputs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.anything(t, 150)
	})
}

// TestDrainEnds: from any state, a drain that waits for nothing ends when what is outstanding has been answered.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.anything(t, 80)
		w.step(t, partitions.Drain{Cancel: true})
		for range 10 {
			if w.seen["*partitions.Idle"] {
				return
			}
			w.answer(t, partitions.OK)
		}
		t.Fatalf("still %s", w.m.Machine)
	})
}

// TestWakeIsKept: from any state, a wake is answered by a read, unless something stops the stream, or by word that it was not read.
func TestWakeIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.anything(t, 80)
		w.step(t, partitions.Wake{})
		w.untilCalm(t, func() bool {
			phase := w.m.Machine.Phase()
			return w.seen["*partitions.Fetch"] || w.seen["idle, unread"] || w.seen["idle, unfit, unread"] ||
				phase == partitions.PhaseHalted || phase == partitions.PhasePaused || phase == partitions.PhaseWaiting
		})
	})
}

// TestAskIsServed: from any state but a drain, an ask is served, or the machine says that the unit is not to be had here.
func TestAskIsServed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.noDrains = true
		w.anything(t, 80)
		w.step(t, partitions.Demand{})
		w.untilCalm(t, func() bool {
			return w.seen["*partitions.Serve"] || w.seen["idle, unfit, unread"] || w.seen["idle, unfit"]
		})
	})
}

// TestSameInputsSameEffects: the machine depends on nothing but its inputs.
func TestSameInputsSameEffects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.anything(t, 80)
		again := partitions.New(w.cfg, w.m.Machine.Unit(), w.lanes)
		var said string
		for _, told := range w.told {
			for _, e := range again.Step(told.at, told.in) {
				said += e.String() + "\n"
			}
		}
		if said != w.said {
			t.Fatalf("first\n%s\nand then\n%s", w.said, said)
		}
	})
}

// anyWorld is a world without sense around one machine.
type anyWorld struct {
	cfg      *partitions.Config
	lanes    []event.LaneRef
	m        *sim.Monitor
	now      partitions.Tick
	noDrains bool
	types    map[event.Position]string
	seen     map[string]bool // kinds of effects since it was last emptied, and all Idles
	told     []told
	said     string
}

type told struct {
	at partitions.Tick
	in partitions.Input
}

func drawWorld(t *rapid.T) *anyWorld {
	cfg := partitions.Config{
		Asks:      rapid.Bool().Draw(t, "asks"),
		Policy:    partitions.Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		Attempts:  rapid.IntRange(1, 3).Draw(t, "attempts"),
		ReadAhead: rapid.IntRange(1, 4).Draw(t, "read-ahead"),
		PassedMax: rapid.IntRange(1, 4).Draw(t, "passed-max"),
		MaxParked: rapid.IntRange(1, 4).Draw(t, "max-parked"), MaxCrashes: rapid.IntRange(1, 2).Draw(t, "max-crashes"),
		Handling: func(e *event.Envelope) partitions.Handling {
			switch e.Type {
			case "ignored":
				return partitions.PassOver
			case "newer":
				return partitions.AwaitNewer
			}
			return partitions.Handle
		},
	}.WithDefaults()
	if rapid.Bool().Draw(t, "leased") {
		cfg.Traits = partitions.Traits{Leased: true, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second}
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w := &anyWorld{cfg: &cfg, lanes: []event.LaneRef{lane("order"), lane("order/backfill"), lane("payment")}, now: 1,
		types: make(map[event.Position]string), seen: make(map[string]bool)}
	w.m = sim.NewMonitor(w.cfg, event.Unit{Name: "shipping", Key: "a"}, w.lanes)
	return w
}

// step steps the machine, and fails if it breaks a promise.
func (w *anyWorld) step(t *rapid.T, in partitions.Input) {
	w.told = append(w.told, told{w.now, in})
	clear(w.seen)
	w.more(t, in)
}

func (w *anyWorld) more(t *rapid.T, in partitions.Input) {
	for _, e := range w.m.Step(w.now, in) {
		w.said += e.String() + "\n"
		w.seen[fmt.Sprintf("%T", e)] = true
		if _, ok := e.(*partitions.Idle); ok {
			w.seen[e.String()] = true
		}
	}
	if err := w.m.Err(); err != nil {
		t.Fatal(err)
	}
}

// anything happens, up to n times.
func (w *anyWorld) anything(t *rapid.T, n int) {
	for range rapid.IntRange(0, n).Draw(t, "inputs") {
		if rapid.IntRange(0, 5).Draw(t, "time passes") == 0 {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "time")))
		}
		if w.m.Asked() != "" && rapid.IntRange(0, 4).Draw(t, "answer") > 0 {
			o := partitions.OK // mostly, or nothing would ever get far
			if rapid.IntRange(0, 4).Draw(t, "well") == 0 {
				o = partitions.Outcome(rapid.IntRange(0, int(partitions.Busy)).Draw(t, "outcome"))
			}
			w.answer(t, o)
			continue
		}
		w.step(t, w.drawInput(t))
	}
}

// drawInput draws what happens by itself, and answers to what was not asked.
func (w *anyWorld) drawInput(t *rapid.T) partitions.Input {
	gen := event.Generation(rapid.IntRange(0, 8).Draw(t, "generation"))
	inputs := []partitions.Input{
		partitions.Wake{}, partitions.Wake{}, partitions.Demand{}, partitions.TimerFired{}, partitions.TimerFired{},
		partitions.Renewed{Generation: gen, Sent: w.now}, partitions.Renewed{Generation: gen, Sent: w.now / 2},
		partitions.Acted{}, partitions.Fenced{Generation: gen}, partitions.Lost{}, partitions.Hung{},
		w.drawAnswer(t, "stray", partitions.OK),
		partitions.Drain{}, partitions.Drain{Cancel: true},
	}
	if w.noDrains {
		inputs = inputs[:len(inputs)-2]
	}
	return rapid.SampledFrom(inputs).Draw(t, "input")
}

// answer answers what is asked. One that is OK brings what the world feels like.
func (w *anyWorld) answer(t *rapid.T, o partitions.Outcome) {
	if w.m.Asked() != "" {
		w.step(t, w.drawAnswer(t, w.m.Asked(), o))
	}
}

func (w *anyWorld) drawAnswer(t *rapid.T, asked string, o partitions.Outcome) partitions.Input {
	err := errors.New("it went wrong")
	if asked == "stray" {
		names := []string{"acquire", "recover", "fetch", "apply", "serve", "write halt", "write dead", "write parked", "write tried", "fetch aside", "settle aside", "suspect aside", "commit passed", "passivate", "release"}
		asked = rapid.SampledFrom(names).Filter(func(s string) bool { return s != w.m.Asked() }).Draw(t, "stray")
	}
	switch asked {
	case "acquire":
		gen := event.Generation(rapid.IntRange(1, 8).Draw(t, "granted"))
		return rapid.SampledFrom([]partitions.Input{
			partitions.AcquireDone{Outcome: o, Err: err, Acquired: partitions.Acquired{Granted: true, Generation: gen}},
			partitions.AcquireDone{Outcome: o, Err: err, Acquired: partitions.Acquired{Granted: true, Generation: gen, Unclean: true}},
			partitions.AcquireDone{Outcome: o, Err: err, Acquired: partitions.Acquired{HeldFor: time.Second}},
			partitions.AcquireDone{Outcome: o, Err: err, Acquired: partitions.Acquired{Forgot: true}},
		}).Draw(t, "acquired")
	case "recover":
		return w.drawRecovery(t, o)
	case "fetch":
		in := partitions.FetchDone{Outcome: o, Err: err}
		if in.Gap = rapid.IntRange(0, 9).Draw(t, "gap") == 0; in.Gap {
			in.Lane = lane("order")
			return in
		}
		in.Drained = rapid.Bool().Draw(t, "drained")
		in.Entries = w.drawEntries(t)
		return in
	case "apply":
		return partitions.ApplyDone{Outcome: o, Err: err, Class: partitions.Class(rapid.IntRange(0, 1).Draw(t, "class"))}
	case "serve":
		return partitions.ServeDone{Outcome: o, Err: err, More: rapid.Bool().Draw(t, "more")}
	case "write halt":
		return partitions.WriteHaltDone{Outcome: o, Err: err}
	case "write dead":
		return partitions.WriteDeadDone{Outcome: o, Err: err}
	case "write parked":
		return partitions.WriteParkedDone{Outcome: o, Err: err}
	case "write tried":
		return partitions.WriteTriedDone{Outcome: o, Err: err}
	case "fetch aside":
		return partitions.FetchAsideDone{Outcome: o, Err: err, Entries: w.drawAsides(t)}
	case "settle aside":
		return partitions.SettleAsideDone{Outcome: o, Err: err}
	case "suspect aside":
		return partitions.SuspectAsideDone{Outcome: o, Err: err}
	case "commit passed":
		return partitions.CommitPassedDone{Outcome: o, Err: err}
	case "passivate":
		return partitions.PassivateDone{}
	case "release":
		return partitions.ReleaseDone{Outcome: o, Err: err}
	}
	t.Fatalf("nothing is known of %q", asked)
	return nil
}

func (w *anyWorld) drawRecovery(t *rapid.T, o partitions.Outcome) partitions.Input {
	in := partitions.RecoverDone{Outcome: o, Raised: rapid.IntRange(0, 4).Draw(t, "raised") > 0, Generation: 4}
	for _, ref := range w.lanes {
		in.Checkpoints = append(in.Checkpoints, event.Position{Lane: ref, Sequence: event.Sequence(rapid.IntRange(0, 3).Draw(t, "checkpoint"))})
	}
	switch rapid.IntRange(0, 9).Draw(t, "stopped") {
	case 0:
		in.Halt = &partitions.Failure{Lane: w.lanes[0], Sequence: in.Checkpoints[0].Sequence + 1, Reason: "poison"}
	case 1:
		in.Paused = true
	}
	if in.Due = rapid.IntRange(0, 2).Draw(t, "due") == 0; in.Due || rapid.IntRange(0, 3).Draw(t, "parking") == 0 {
		for _, c := range []string{"order", "payment"} {
			if n := rapid.IntRange(0, 3).Draw(t, "parked"); n > 0 {
				in.Parked = append(in.Parked, partitions.Parked{Category: c, Count: n})
			}
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "tried") == 0 {
		i := rapid.IntRange(0, len(w.lanes)-1).Draw(t, "tried lane")
		in.Tried = &partitions.Tried{Lane: w.lanes[i], Sequence: event.Sequence(rapid.IntRange(1, 6).Draw(t, "tried at")), Attempts: rapid.IntRange(0, 3).Draw(t, "tried times")}
		in.Tried.Suspicions = rapid.IntRange(0, 3).Draw(t, "suspicions")
		in.Tried.Alone = rapid.IntRange(0, in.Tried.Suspicions).Draw(t, "alone")
	}
	return in
}

// drawAsides draws what is due, of any category.
func (w *anyWorld) drawAsides(t *rapid.T) []partitions.Aside {
	var all []partitions.Aside
	for range rapid.IntRange(0, 3).Draw(t, "asides") {
		a := partitions.Aside{AsideRef: partitions.AsideRef{Dead: rapid.Bool().Draw(t, "dead"), Lane: rapid.SampledFrom(w.lanes).Draw(t, "aside of"), Sequence: event.Sequence(len(all) + 1)}}
		kind := rapid.SampledFrom([]string{"placed", "placed", "placed", "ignored", "", "newer"}).Draw(t, "type")
		a.Entry = event.Envelope{Type: kind, Category: a.Lane.Category, Key: a.Lane.Key, Lane: a.Lane.Lane, Sequence: a.Sequence}
		all = append(all, a)
	}
	if len(all) > 0 {
		all[0].Suspicions = rapid.IntRange(0, 3).Draw(t, "suspicions")
	}
	return all
}

// drawEntries draws entries that mostly go on from where the lanes are, and sometimes from anywhere.
func (w *anyWorld) drawEntries(t *rapid.T) []event.Envelope {
	var entries []event.Envelope
	for _, ref := range w.lanes {
		next := w.m.Machine.Applied(ref) + 1
		if rapid.IntRange(0, 5).Draw(t, "elsewhere") == 0 {
			next = event.Sequence(rapid.IntRange(1, 6).Draw(t, "from"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			place := event.Position{Lane: ref, Sequence: next}
			kind, known := w.types[place]
			if !known { // an entry is the same whenever it is read
				kind = rapid.SampledFrom([]string{"placed", "placed", "placed", "ignored", "", "newer"}).Draw(t, "type")
				w.types[place] = kind
			}
			entries = append(entries, event.Envelope{Type: kind, Category: ref.Category, Key: ref.Key, Lane: ref.Lane, Sequence: next})
			if next++; rapid.IntRange(0, 9).Draw(t, "hole") == 0 {
				next++
			}
		}
	}
	if rapid.IntRange(0, 19).Draw(t, "foreign lane") == 0 {
		entries = append(entries, event.Envelope{Type: "placed", Category: "another", Key: "a", Sequence: 1})
	}
	return entries
}

// untilCalm lets everything go well until done.
func (w *anyWorld) untilCalm(t *rapid.T, done func() bool) {
	for range 100 {
		if done() {
			return
		}
		switch asked := w.m.Asked(); asked {
		case "":
			if w.m.Timer() == 0 {
				t.Fatalf("%s: waits for nothing", w.m.Machine)
			}
			w.now = max(w.now, w.m.Timer())
			w.more(t, partitions.TimerFired{})
		case "acquire":
			w.more(t, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 9}})
		case "recover":
			w.more(t, partitions.RecoverDone{Raised: true, Checkpoints: make([]event.Position, len(w.lanes))})
		case "fetch":
			w.more(t, partitions.FetchDone{})
		case "fetch aside":
			w.more(t, partitions.FetchAsideDone{})
		default:
			w.more(t, w.drawAnswer(t, asked, partitions.OK))
		}
	}
	t.Fatalf("%s: goes round in circles", w.m.Machine)
}
