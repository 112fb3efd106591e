// Package ring is a queue that costs nothing while it is empty.
package ring

// Queue is first in, first out. The zero value is empty and holds no memory; when it is full, its ring doubles. It is not for
// concurrent use.
type Queue[T any] struct {
	ring  []T // its length is a power of two, or 0
	first int
	count int
}

// kept is the largest ring that an empty queue keeps.
const kept = 64

// Len is the number of items.
func (q *Queue[T]) Len() int { return q.count }

// Push adds an item at the end.
func (q *Queue[T]) Push(v T) {
	if q.count == len(q.ring) {
		q.grow()
	}
	q.ring[(q.first+q.count)&(len(q.ring)-1)] = v
	q.count++
}

// Pop takes the first item. It panics on an empty queue.
func (q *Queue[T]) Pop() T {
	if q.count == 0 {
		panic("ring: Pop of an empty queue")
	}
	var none T
	v := q.ring[q.first]
	q.ring[q.first] = none
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.count--
	if q.count == 0 && len(q.ring) > kept {
		*q = Queue[T]{}
	}
	return v
}

func (q *Queue[T]) grow() {
	ring := make([]T, max(4, 2*len(q.ring)))
	n := copy(ring, q.ring[q.first:])
	copy(ring[n:], q.ring[:q.first])
	q.ring, q.first = ring, 0
}
