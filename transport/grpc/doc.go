// Package grpc is the node service over gRPC: how nodes of an application, and its clients, ask one another. One HTTP/2 link goes to each node that is asked. It is opened by the first
// call, and closed when nobody has used it for a while.
//
// Secure by default: without TLS it neither listens nor calls beyond this machine, unless Insecure says so. With [MutualTLS] both sides show a certificate of the same authority; the
// files are read anew when they change, and open links stay. Each call says of which application and store the caller is.
//
// Promises: a call ends when its context does, when it is answered, or a few seconds after the other side froze or the network was cut; and its error says whether the question may have
// arrived. A message that is too large, garbled or of an unknown type fails alone. What is too much is refused at once: calls inside, calls of one link, links,
// and bytes, of which one link has a share. A panic of the service is
// one failed call.
//
// Not promised: that a question arrives once, or in order; retries are up to the caller, who knows what may be repeated.
//
// Reading order: config.go, peers.go (start and stop), link.go and outcome.go (calling), host.go, room.go and bytes.go (being called), tls.go and ends.go, wire.go.
package grpc
