// Package transport is the port to what carries committed events from the store to the handlers: in the same process
// (transport/inline, transport/local) or through a broker.
//
// A transport says what it can do in its [Capabilities]; an application that asks for more is refused when it starts, never
// at run time. Each transport passes the suite of transport/transporttest.
//
// A transport is told of every commit ([Transport.Committed]) and reaches the units of its process through a [Node]. It
// carries references, not events: what a unit reads, and in which order, is the business of partitions.Port. So a
// transport may wake too often, or twice, without harm. It must not wake too rarely: an event committed while it runs, or
// before, is offered to each subscriber in the end.
//
// A [Broker] is a transport that several nodes share: it keeps streams, leases, and who has work.
// Its nodes hear of one another by [Gossip], and ask one another by [Peers].
//
// Reading order: transport.go, node.go, capabilities.go, broker.go, gossip.go, peer.go.
package transport
