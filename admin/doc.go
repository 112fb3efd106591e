// Package admin is one port to what a person may see of an application and do to it: list, show, explain, act, look up who did what. A
// command line, pages for a browser and an API over HTTP are faces of it.
//
// A [Desk] works on a store that a running application has started (keyhold's App.Admin gives one, which also knows what the
// process is doing), and on one that is attached from outside, whether a program runs on it or not. What is done from outside is taken up
// by the running program within half a second, or by the next that starts.
//
// Every act is compare-and-act: it names the state that the person saw, and is refused with the present one when that has changed
// ([MovedError]). Whoever names none acts on what the desk read just before, and is told so. Every act says who and why and stays
// in the store ([Desk.Audit]). Acts on many rows are jobs ([Desk.StartJob]), which go on after a restart.
//
// Results are plain structs; their JSON names are stable. Words are for people and may change. What an event holds is left out
// unless asked for: it may be nobody's business.
//
// Errors: [NotFoundError], [MovedError], [UsageError], [eventstore.ErrInUse], else what the store says.
//
// Read desk.go, then status.go, why.go and act.go.
package admin
