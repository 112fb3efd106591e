// Package actors runs behaviors: event handlers, one actor per (handler, key), and entities, one actor per id.
//
// A behavior is declared as a value, [Handler] or [Entity], whose typed cases say what it handles; nothing is constructed
// to find that out ([Definition.Describe]). A [Runtime] runs them. It promises, for each unit (a handler's key, an
// entity's id):
//
//   - One thing at a time. Events, commands, queries and timers of one unit never run at once; different units run in parallel.
//   - One commit. What a behavior emits, sends and writes through Tx, and the checkpoint of the event that it handled, are
//     durable together or not at all.
//   - Nothing half done survives in memory. A handler's instance, or an entity's state, is thrown away whenever an attempt
//     did not commit; the next attempt begins from what the store has.
//   - A panic, an error or a hang is a failure of that event. It never reaches another unit, nor the actor library below.
//   - Every ask is answered: by the behavior, or by a typed error that says whether asking again is safe ([Retryable]).
//   - What cannot be applied stops its unit, is set aside, or is parked together with what comes after it ([Policy]); what was set aside
//     is applied after all when a person says so, once and in order.
//   - An event that may have ended the process is tried with care: from the second time on with no other such event beside it on this
//     node, and no more after [Config].MaxCrashes.
//
// Where the port leases units one by one, several nodes run them, each unit on one of them. A lease that is lost ends the context of the behavior inside
// ([ErrLeaseLost]), nothing of it commits, and the unit is not entered here before it has returned. What another node has rests here; who goes for a unit when is
// not decided here, but by those whom [Others] tells. What is asked of an entity that another node has goes there through [Elsewhere], and comes in by
// [Runtime.ServeAsk]; a process that runs nothing asks by a [Remote].
//
// It does not promise that a behavior which ignores its context can be stopped: its unit stays occupied until it returns,
// and [Runtime.Stop] names it; a lease of it lapses, so that another node goes on. Effects outside the store happen at least once.
//
// Reading order: handler.go, entity.go, context.go, errors.go, ask.go (what users see); then runtime.go, running.go, unit.go
// (the actor of a unit), carry.go (what it does of what its partitions.Machine decides), lease.go, recovery.go, aside.go, behavior.go, execute.go, serve.go, gate.go, and
// attempt.go, work.go, sql.go (one unit of work); elsewhere.go, peer.go, peererror.go, cycle.go, probe.go (asks between nodes); activity.go for those who look on. The rest is what its file is called.
package actors
