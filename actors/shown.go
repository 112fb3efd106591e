package actors

import (
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// shown is a phase and when it began, in one word, so that others see both together.
type shown struct{ word atomic.Uint64 }

// phaseBits leave room for more than five hundred years of microseconds.
const phaseBits = 8

func (s *shown) set(p partitions.Phase, since partitions.Tick) {
	s.word.Store(uint64(time.Duration(since).Microseconds())<<phaseBits | uint64(p))
}

func (s *shown) get() (partitions.Phase, partitions.Tick) {
	w := s.word.Load()
	return partitions.Phase(w & (1<<phaseBits - 1)), partitions.Tick(time.Duration(w>>phaseBits) * time.Microsecond)
}
