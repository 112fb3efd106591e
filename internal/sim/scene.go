package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// Scene is what a run is about.
type Scene struct {
	Leased  bool // several nodes and a broker that leases; else one node that owns the store
	Harsh   bool // more goes wrong: entries end the process, and people act, all the time
	Without Rule // taken out
}

// Rule is a rule of the design that a run can do without.
type Rule string

const (
	Raise      Rule = "raise"      // recovery raises the unit's row
	Fence      Rule = "fence"      // a commit must be at the generation of the unit's row
	Compare    Rule = "compare"    // a checkpoint moves from exactly what the activation believes
	Gap        Rule = "gap"        // nothing is applied past a gap
	Checkpoint Rule = "checkpoint" // nothing above a durable checkpoint is acknowledged
	Discard    Rule = "discard"    // an attempt that did not commit costs the instance
	Return     Rule = "return"     // nothing else of a unit before its behavior has returned
	Amnesty    Rule = "amnesty"    // a broker that forgot grants nothing for one lease
	Sent       Rule = "sent"       // a lease is counted from when it was asked for
	KeptWake   Rule = "kept wake"  // a wake while draining is kept
	Park       Rule = "park"       // what comes after a parked entry is parked behind it
	Behind     Rule = "behind"     // nothing is parked behind what is not there any more
	Due        Rule = "due"        // what is to be applied now says the store
	Settle     Rule = "settle"     // what was set aside is applied together with its row, and only while it is due
	Count      Rule = "count"      // a suspicion is durable before the suspect runs
	TakeBack   Rule = "take back"  // it goes back when the suspect has returned
	Alone      Rule = "alone"      // a suspect is alone before that is counted, not only before it runs

	CountAside    Rule = "count aside"     // a suspicion of what was set aside is durable before it runs
	TakeBackAside Rule = "take back aside" // it goes back when that has returned
)

const (
	ttl       = 15 * time.Second
	heartbeat = 3 * time.Second
	margin    = 3 * time.Second
	healAfter = 10 * time.Second

	troubled = 40 * time.Second // how long faults go on
	patience = 20 * time.Minute // how long it may take until all is applied after they ended
)

// Violation is what went wrong in a run.
type Violation struct {
	Scene Scene
	Seed  uint64
	At    partitions.Tick
	What  string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d, at %s: %s", v.Seed, v.At, v.What)
}

// Run runs a scene; nil means that nothing went wrong.
func Run(scene Scene, seed uint64) *Violation { return begin(scene, seed, nil) }

// Trace runs a scene and tells what happened.
func Trace(scene Scene, seed uint64) string {
	var trace strings.Builder
	if v := begin(scene, seed, &trace); v != nil {
		fmt.Fprintln(&trace, v)
	}
	return trace.String()
}

// played gives a world in which everything has happened.
func played(scene Scene, seed uint64, trace *strings.Builder) *world {
	w := newWorld(scene, rand.New(rand.NewPCG(seed, 0x6b657968)), trace)
	w.play()
	return w
}

func begin(scene Scene, seed uint64, trace *strings.Builder) *Violation {
	w := played(scene, seed, trace)
	if w.wrong == "" {
		return nil
	}
	return &Violation{Scene: scene, Seed: seed, At: w.now, What: w.wrong}
}
