// Package nodev1 is what the nodes of an application say to one another: generated from node.proto. transport/grpc turns it into the words of the transport port, and back; nobody else
// sees it. Fields are only ever added, so that nodes of two releases understand one another.
package nodev1
