// Package peertest tests node services, [transport.Peers], and has one in memory.
//
// [Run] is the suite that every node service passes; [RunVirtual] the same in bubbles of testing/synctest. [Network] is a network in memory whose messages are lost, late, doubled and cut
// off by hand and by seed; its time may be virtual.
//
// Reading order: suite.go, calls.go, ends.go (the checks), network.go, peers.go.
package peertest
