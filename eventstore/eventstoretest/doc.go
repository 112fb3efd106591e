// Package eventstoretest is what every event store must pass: each promise of the port's comments as a named test.
//
//	func TestStore(t *testing.T) {
//		eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness { ... })
//	}
//
// Every adapter runs the same list, one group for each role. What an adapter can do beyond the port
// ([eventstore.Capabilities]) decides what a test expects, not whether it runs: a store without SQL is asked for SQL too,
// and must answer [eventstore.ErrNoSQL].
//
// Reading order: harness.go, fixture.go, then the group you look for.
package eventstoretest
