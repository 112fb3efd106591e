// Package sim runs units in a small world where everything that can go wrong does, by seed: real machines of package
// partitions, on nodes that freeze, crash, drain and lose messages, over a model of the store and of a broker that lapses leases,
// forgets, and loses the tails of streams. An oracle watches what the world's store is told.
//
// Entries fail for good or for a while, or end the process from inside, some only once they were set aside; people try them again, skip them, make dead
// letters of them, pause units and replay.
//
// It checks, per unit: effects land once and in the order of their lane, nothing is skipped but by a person, nothing of a parked category
// overtakes what is parked, nobody is condemned for a crash in which others were suspects, nothing ends the process for ever, no stale owner commits, no two
// behaviors are inside under valid leases, no two nodes serve, no instance remembers what was never committed, halts are only
// where something failed, and once the faults end everything is applied and everything given up.
//
// A run is a function of its [Scene] and seed alone. [Run] gives the first thing that went wrong; [Trace] runs the same again and writes down
// what happened. [Scene.Without] takes one rule of the design out, to show that the world is hard enough to need it.
//
// [Monitor] checks the promises of one machine against any shell, this one or another.
//
// Reading order: scene.go, world.go, broker.go, store.go, aside.go, person.go, node.go, suspects.go, behavior.go, oracle.go; monitor.go and watched.go by themselves.
package sim
