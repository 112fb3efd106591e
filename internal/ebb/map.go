// Package ebb has a map that gives its room back. A map of Go's keeps the room that it had at its fullest for as long as it lives; where keys come to life
// by the hundred thousand and go again, that is most of what they leave behind.
package ebb

import (
	"iter"
	"maps"
)

// room is how many entries a map has room for without a thought of giving it back.
const room = 64

// Map is a map. The zero value is empty and holds no memory. It is not for concurrent use.
type Map[K comparable, V any] struct {
	entries map[K]V
	most    int // there were since it was made
}

// Get gives the value of a key, the zero value when there is none.
func (m *Map[K, V]) Get(key K) V { return m.entries[key] }

// Find is Get that tells whether there is one.
func (m *Map[K, V]) Find(key K) (v V, found bool) {
	v, found = m.entries[key]
	return v, found
}

// Set gives a key a value.
func (m *Map[K, V]) Set(key K, v V) {
	if m.entries == nil {
		m.entries = make(map[K]V)
	}
	m.entries[key] = v
	m.most = max(m.most, len(m.entries))
}

// Delete takes a key out. When one of eight are left of the most there were, those move to a map of their size: that is paid for by the seven that went.
func (m *Map[K, V]) Delete(key K) {
	delete(m.entries, key)
	if m.most <= room || len(m.entries) > m.most/8 {
		return
	}
	left := make(map[K]V, len(m.entries))
	maps.Copy(left, m.entries)
	m.entries, m.most = left, len(left)
}

// Len is the number of keys.
func (m *Map[K, V]) Len() int { return len(m.entries) }

// All gives keys and values in no order. The key that it gave last may be deleted meanwhile; nothing else may change.
func (m *Map[K, V]) All() iter.Seq2[K, V] { return maps.All(m.entries) }
