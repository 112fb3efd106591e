// Package partitions decides who may run a unit and what the unit does next. It is the heart of Keyhold: order per key, one
// behavior at a time, nothing lost and nothing twice hang on it.
//
// It has two halves. [Machine] is a pure state machine for one unit: inputs in, effects out, time as [Tick]s. It does no I/O,
// reads no clock, starts no goroutine, and prints everything it does. [Port] is what a shell talks to on its behalf: leases and
// the streams of entries.
//
// # States
//
//	                                       .-> applying -> (settling | backoff) -.
//	idle -> acquiring -> recovering -> ready -> serving --------------------------+-> ready -> draining -> idle
//	             ^                         '-> fetching, advancing, passing -----'        |
//	             '------- lost, stale, checkpoint moved, outcome unknown -----------------'
//
// A unit may also be halted (an event cannot be applied, a person decides), paused (a person decided), or waiting for a
// newer binary (an event whose type this one does not know). It then reads no stream and applies nothing that was set aside. A unit that
// serves asks serves them all the same.
//
// # What cannot be applied
//
// An entry whose attempts are used up halts the unit, becomes a dead letter, or is parked ([Policy]). Behind a parked entry everything
// later of its category is parked as well, without being run; other categories go on. What was set aside is applied when a person
// wants it so: the store says that it is due ([RecoverDone]), and it comes before the stream, which is not read meanwhile, so that nothing of
// a parked category can overtake it. A parked entry that fails again stays, with all that is behind it, until the next act; a dead letter has one attempt
// for each replay.
//
// Attempts that failed are written down before the next one ([WriteTried]), so that a restart does not begin anew. An entry that
// goes through at the first attempt writes nothing of the kind.
//
// # Suspects
//
// The first entry that is run of a unit that was left unclean is a suspect: the last owner may have died of it. That is counted durably before it runs. From the
// second suspicion on it runs alone, which is counted as well, and only that can condemn it: whoever was alone in [Config].MaxCrashes
// crashes is not run again, but dealt with as one whose attempts are used up, with the reason "crashed the process" and, as attempts, those that
// failed and all suspicions. When a suspect returns, however, its counts go back to 0 before anything else of the unit runs; when
// it did not run after all, to what they were. A unit that was given back in good order suspects nobody.
//
// An entry that was set aside and is due has its place below the checkpoint, where that row does not look. So it is counted in its own ([SuspectAside]),
// before it runs and always alone: nobody waits for it. Condemned, it stays set aside, with the same reason, and is not due any more; tried again by a
// person, it is suspected of nothing. What was counted goes back when it returned, or does not run now after all, before anything else of the unit runs
// and before others that are to be alone may begin.
//
// # Duties of the shell
//
// The shell is whatever drives a Machine: the actor of a unit, or a test.
//
//  1. One goroutine at a time. Step, and the methods that look at a machine, are for the goroutine that owns it.
//  2. Carry out the effects of a Step in order. An effect is valid until the input that answers it has been stepped; one that
//     has no answer, and the slice itself, until the next Step. Copy what must live longer.
//  3. Answer. Effects X that have an input XDone ([Acquire], [Recover], [Fetch], [Apply], [Serve], [WriteHalt], [WriteDead], [SuspectAside],
//     [WriteParked], [WriteTried], [FetchAside], [SettleAside], [CommitPassed], [Passivate], [Release]) are answered by exactly one XDone, however late. There is never more than one
//     of them unanswered. A call that may hang is given a deadline by the shell, which then answers [Unknown].
//  4. [Apply], [Serve] and [Passivate] are answered when user code has returned, and not before: the answer is the machine's only way
//     to know that nothing of the unit runs any more. [Cancel] asks the code to hurry, it is no leave to answer. Code that should
//     have returned and has not is reported with [Hung].
//  5. An Apply or Serve that is Fresh gets a new behavior instance: New, OnActivate, an entity's state read from the store, all
//     within the same attempt, which fails when they do. [Discard] throws the instance away without any hook.
//  6. An Apply commits its effects together with its Moves, in one transaction: fenced by its Generation where units are
//     leased, each Move by compare-and-set from exactly From. OK means durable. The same holds for WriteHalt, WriteDead, WriteParked, WriteTried
//     and CommitPassed. With Aside it is the row of the entry that goes in that transaction, and is refused ([Moved]) unless it is there and due;
//     likewise SettleAside. A WriteParked that parks behind what is not parked any more is refused with Moved.
//  7. Report what happens: [Wake] when there may be something to read, [Demand] when an ask waits, [Acted] when a person changed
//     the unit's halt or pause in the store, or what it has set aside, or has that applied, [TimerFired] at the tick of the last [SetTimer], [Renewed] or [Fenced] for each renewal
//     of [Machine.Held], [Lost] when the shell knows better than the lease (a suspended host, a store that is not ours any more), [Drain]
//     to stop or hand over. All of them may come at any time.
//  8. Ask [Machine.Serving] right before a reply is sent. An answer of an entity that is not ours any more is no answer.
//  9. After [Idle] the machine holds nothing: drop it, and make a new one for the next Wake or Demand. One that is kept
//     instead goes on from what it knows: when it rested halted, paused or waiting, it ignores wakes until Acted. Where there
//     are other nodes, be slow to take a unit again that rested waiting for a newer binary, or Unfit: one of them may know it, or reach the store. After an Idle
//     that is Held or Unfit nothing that was wanted is remembered: tell those who ask, and send another Wake when it is worth a try.
//
// # Promises
//
// For any inputs: at most one behavior of the unit is inside. Apply is only asked for at a valid lease, of exactly the entry after
// the last one applied or passed over in its lane, and never again once it was committed. An attempt that did not commit
// costs the instance. What was set aside is applied only while it is due, in the order given, and nothing of a parked category is applied from the
// stream. While an entry counts as a suspect, no other code of the unit runs. Nothing above a durable checkpoint is acknowledged. The lease is given back only when no user code of the
// unit is inside; else it is left to lapse. A wake is never forgotten: the machine reads again, or says so in [Idle].
//
// It does not promise that user code runs only once: an attempt whose commit is refused, or whose outcome is unknown, runs
// again unless the store shows that it was committed.
//
// Reading order: port.go, config.go, input.go, effect.go, machine.go, step.go, decide.go, failure.go, parked.go, aside.go, tried.go; testdata/ has the races as scripts.
package partitions
