// Package event holds the words that every other package of Keyhold shares: the [Envelope] an event travels in,
// the [Unit] that one lease covers, the [LaneRef] that orders events on their way out, the rules a key must meet,
// and the [Name] of everything Keyhold keeps in a broker.
//
// It is a leaf: it imports nothing of Keyhold, does no I/O and starts no goroutine. All types are plain values.
//
// Reading order: envelope.go, unit.go, key.go, name.go.
package event
