// Package event holds the words that every other package of Keyhold shares: the [Envelope] an event travels in,
// the [Unit] that one lease covers, the [LaneRef] that orders events on their way out, the rules a key must meet,
// the [Name] of everything Keyhold keeps in a broker, and the ids of events.
//
// It promises that what it writes stays readable: names, buckets, parts and derived ids are durable, and their forms are held by
// tests. It does not encode events (package codec does), nor decide which field of an event is its key.
//
// It is a leaf: it imports nothing of Keyhold, does no I/O and starts no goroutine. All types are plain values.
//
// Reading order: envelope.go, unit.go, key.go, name.go, bucket.go, part.go, id.go.
package event
