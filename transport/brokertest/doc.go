// Package brokertest is the conformance suite of [transport.Broker], and a broker in memory that passes it.
//
// An adapter calls [Run] from a test of its own with a [Harness] that can make happen what the suite needs: time passed, memory lost. Each
// sentence of the port's comments is a named test. The leases and reads of the port are not tested here (partitions/partitionstest).
//
// [Server] is the memory that nodes share, [Broker] one node's way to it. It runs on a clock that only moves with [Server.Pass], or on
// real time, and does at a word what a real broker does once a year: it forgets everything, loses the tail of a stream, answers and the answer
// is lost. It serves the tests of whoever needs a broker and no Redis.
//
// Reading order: suite.go, then the group you look for (append.go, trim.go, registration.go, unitwork.go, lifetime.go); server.go, broker.go, stream.go,
// port.go by themselves.
package brokertest
