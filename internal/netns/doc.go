// Package netns gives tests hosts that can be cut off from one another as machines can: network namespaces of Linux.
//
// [Networks] are a few networks, each a bridge in a namespace of its own, the centre, where servers run that all reach. A [Host] is a namespace
// with one interface into each of them. Processes are started in either, and [Host.Cut] has one network lose all that comes from a host and goes
// to it: nobody is told, nothing is refused, connections stay and fall silent.
//
// Namespaces have no names and are nowhere in the file system. They go when nothing runs in them and nobody has them open: so nothing is left
// behind, whatever ends the test. What other tests do on the same machine at the same time is in namespaces of their own, so that addresses may be
// the same.
//
// It needs Linux, root, and iproute2's programs ip and bridge. Elsewhere [Open] says what is missing; [Run] skips the test.
//
// Reading order: networks.go, space_linux.go, tests.go.
package netns
