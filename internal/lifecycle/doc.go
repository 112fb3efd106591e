// Package lifecycle owns goroutines, so that nothing else has to: a [Loop] owns one that runs until it is stopped, a
// [Group] any number of short ones. Everything that works in the background holds one of the two and passes its own Start
// and Stop on to it. A `go` statement elsewhere is an architecture fault (internal/arch).
//
// Promises: Stop returns nil only when no goroutine is left; Start and Stop may be called concurrently and in any order; both
// kinds may be started again after a Stop. lifecycletest.Stress tests that of anything built on them.
//
// Not promised: a panic is not caught here. Code that runs what others wrote catches it where it knows what to do about it.
package lifecycle
