// Package proxy is a connection on which things go wrong when a test says so: a TCP proxy on the loopback interface, for clients of
// Redis and PostgreSQL.
//
// It passes, delays, holds back, swallows, in one direction or both, cuts, refuses, and loses exactly one reply after its request got
// through. Connections that have lost bytes are closed when all is well again, since what would follow makes no sense to either side.
// A killed proxy is the same as a cut.
//
// Reading order: proxy.go, link.go.
package proxy
