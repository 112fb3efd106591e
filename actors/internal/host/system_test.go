package host

import (
	"runtime"
	"testing"
	"testing/synctest"
)

func (s *System) actors() int {
	n := 0
	for _, bucket := range s.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		n += bucket.Count()
	}
	return n
}

type deadly func()

func (d deadly) Receive(any) { d() }
func (d deadly) Failed(any)  {}

// What an actor leaves behind is nothing, however it ends.
func TestActorsThatHaveEndedAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		before := s.actors()
		for range 10 {
			s.Spawn(deadly(func() { panic("oops") })).Send(1)
			s.Spawn(deadly(func() { runtime.Goexit() })).Send(1)
			fine := s.Spawn(deadly(func() {}))
			fine.Send(1)
			fine.Stop()
		}
		synctest.Wait()
		if n := s.actors() - before; n != 1 { // the supervisor, which there is one of
			t.Errorf("%d actors are left", n)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
