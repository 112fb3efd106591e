// Package signal lets a test wait for a named thing to have happened, instead of for a time.
//
//	type Relay struct {
//		signals struct{ published signal.Signal[event.Tail] } // for tests
//	}
//
// The zero value does nothing and costs one comparison: so it stays in production code. A test calls Init before it starts
// the thing, and then Wait. A signal tells that something happened; it never decides what happens next.
package signal
