// Package testprotov1 holds the protobuf messages of package codec's tests: each kind of field, under the presence rules of
// proto2, proto3 and editions.
package testprotov1
