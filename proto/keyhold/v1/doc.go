// Package keyholdv1 is the wire form of what Keyhold sends between nodes and brokers, generated from the .proto files
// beside it by "make generate".
//
// Its types end at the wire: adapters and package codec use them, nothing else does. Fields are only ever added; a change
// that breaks an older reader is a package v2.
package keyholdv1
