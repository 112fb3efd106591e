// Package partitionstest is the conformance suite of the lease-and-stream port, [partitions.Port]. An adapter calls [Run]
// from a test of its own with a [Harness] that can make happen what the suite needs: records appended, time passed, memory lost.
//
// Tests of leases are run where the port's traits say that it leases.
//
// [Broker] is a port in memory that leases, on a clock of its own. It passes the suite, and serves tests that need a leased
// port and no Redis.
//
// Reading order: suite.go, reading.go, owning.go, leasing.go; broker.go by itself.
package partitionstest
