package host

// queue is a first-in, first-out queue in a ring that doubles when it is full. The zero value is empty and holds no memory.
type queue[T any] struct {
	ring  []T // its length is a power of two, or 0
	first int
	count int
}

// kept is the largest ring that an empty queue keeps.
const kept = 64

func (q *queue[T]) len() int { return q.count }

func (q *queue[T]) push(v T) {
	if q.count == len(q.ring) {
		q.grow()
	}
	q.ring[(q.first+q.count)&(len(q.ring)-1)] = v
	q.count++
}

// pop must not be called on an empty queue.
func (q *queue[T]) pop() T {
	var none T
	v := q.ring[q.first]
	q.ring[q.first] = none
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.count--
	if q.count == 0 && len(q.ring) > kept {
		*q = queue[T]{}
	}
	return v
}

func (q *queue[T]) grow() {
	ring := make([]T, max(4, 2*len(q.ring)))
	n := copy(ring, q.ring[q.first:])
	copy(ring[n:], q.ring[:q.first])
	q.ring, q.first = ring, 0
}
