package leases

import (
	"container/heap"
	"time"
)

// place is where an entry stands in a queue.
type place struct {
	at time.Duration
	i  int // from 1; 0 = it is not in it
}

// queue has entries in order of time.
type queue struct {
	which int // of an entry's places
	list  entries
}

func (q *queue) put(e *entry, at time.Duration) {
	p := &e.places[q.which]
	p.at = at
	q.list.which = q.which
	if p.i == 0 {
		heap.Push(&q.list, e)
	} else {
		heap.Fix(&q.list, p.i-1)
	}
}

func (q *queue) remove(e *entry) {
	if i := e.places[q.which].i; i != 0 {
		heap.Remove(&q.list, i-1)
	}
}

// room is how many entries it can have without growing.
func (q *queue) room() int { return cap(q.list.all) }

// first gives the entry that comes first, nil when there is none, and its time.
func (q *queue) first() (*entry, time.Duration) {
	if len(q.list.all) == 0 {
		return nil, 0
	}
	e := q.list.all[0]
	return e, e.places[q.which].at
}

// entries is a container/heap.
type entries struct {
	which int
	all   []*entry
}

func (s *entries) Len() int { return len(s.all) }

func (s *entries) Less(i, j int) bool {
	return s.all[i].places[s.which].at < s.all[j].places[s.which].at
}

func (s *entries) Swap(i, j int) {
	s.all[i], s.all[j] = s.all[j], s.all[i]
	s.all[i].places[s.which].i, s.all[j].places[s.which].i = i+1, j+1
}

func (s *entries) Push(v any) {
	e := v.(*entry)
	s.all = append(s.all, e)
	e.places[s.which].i = len(s.all)
}

func (s *entries) Pop() any {
	last := len(s.all) - 1
	e := s.all[last]
	s.all[last] = nil
	s.all = s.all[:last]
	e.places[s.which].i = 0
	return e
}
