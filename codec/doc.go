// Package codec turns values into bytes and back by their wire names, and reads partition keys off values.
//
// A wire name, not a Go name, is what is stored: renaming a Go type changes nothing. A plain struct gets its wire name and
// version by a declaration ([Declare]) and travels as JSON; a protobuf message needs none, goes by its full name at
// version 1, and travels in its binary form. A [Registry] is made of declarations and reports all that is wrong with them
// at once.
//
// Upcasters ([UpcastOf], [UpcastJSONOf]) make older versions into newer ones when they are read; what is stored stays as it is. They form chains, each
// of which ends at the newest version of a name. A protobuf message has one version, so an upcaster from it leads to another name.
//
// It promises that a value decodes to the Go type it was encoded from, or to the newest that upcasters make of it; that a name or version this
// program does not know is told from bytes that are broken ([UnknownTypeError], [VersionError], [DecodeError]); and that a key is the value of one
// direct field, exactly.
//
// It does not judge keys (event.KeyRules does), and does not remember types for tools: [Registry.Describe] gives what the event store keeps.
//
// [EnvelopeToProto] and [EnvelopeFromProto] are the form in which envelopes travel between nodes and brokers.
//
// JSON is encoding/json's: unknown fields are ignored, of two fields with one name the last wins, names match without
// regard to case, and invalid UTF-8 inside strings becomes U+FFFD.
//
// Reading order: declare.go, registry.go, upcast.go, chain.go, json.go, field.go, describe.go, envelope.go.
package codec
