// Package transporttest is what every transport must pass: each promise of the port's comments as a named test.
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T, store eventstore.Store, id eventstore.Identity) transporttest.Transport { ... })
//	}
//
// What a transport says of itself decides which tests it takes: each of its [transport.Capabilities] is put to the test, so
// claiming one that is not there fails. A node of the suite's own ([node]) stands in for the runtime; it runs real units on a
// real store, and knows what was applied, where and when.
//
// Not tested here: the port's leases and reads (partitions/partitionstest), and how fast anything is.
//
// Reading order: suite.go, node.go, unit.go, then the group you look for.
package transporttest
