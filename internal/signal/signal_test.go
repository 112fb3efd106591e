package signal_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keyhold/keyhold/internal/signal"
)

func TestZeroSignalDoesNothing(t *testing.T) { // not parallel: it counts allocations
	var s signal.Signal[int]
	s.Send(1)
	if n := testing.AllocsPerRun(100, func() { s.Send(2) }); n != 0 {
		t.Errorf("Send allocates %v times", n)
	}
}

func TestWaitGivesValuesInOrderFromAnyGoroutine(t *testing.T) {
	t.Parallel()
	var s signal.Signal[int]
	s.Init(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			s.Send(i)
		}
	})
	defer wg.Wait()
	for want := range 50 {
		if got := s.Wait(t); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	if got := s.WaitFor(t, func(v int) bool { return v >= 70 }); got != 70 {
		t.Errorf("WaitFor: got %d, want 70", got)
	}
	if got := s.Wait(t); got != 71 {
		t.Errorf("Wait after WaitFor: got %d, want 71", got)
	}
}

// failing records what a real test would have failed with. Fatalf ends the goroutine by panic(failing), as FailNow does.
type failing struct {
	ctx  context.Context
	said string
}

func (f *failing) Helper()                           {}
func (f *failing) Context() context.Context          { return f.ctx }
func (f *failing) Errorf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }
func (f *failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic(f) }

// expect checks that do ends by Fatalf.
func (f *failing) expect(t *testing.T, do func()) {
	t.Helper()
	defer func() {
		if recover() != f {
			t.Error("Fatalf was not called")
		}
	}()
	do()
}

func TestWaitWithoutInitFailsTheTestAtOnce(t *testing.T) {
	t.Parallel()
	f := &failing{ctx: t.Context()}
	var s signal.Signal[int]
	f.expect(t, func() { s.Wait(f) })
	if want := "*signal.Signal[int]: Init was not called"; f.said != want {
		t.Errorf("got %q, want %q", f.said, want)
	}
}

func TestWaitFailsTheTestWhenNothingComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a minute of virtual time
		f := &failing{ctx: t.Context()}
		var s signal.Signal[string]
		s.Init(f)
		s.Send("another")
		f.expect(t, func() { s.WaitFor(f, func(v string) bool { return v == "wanted" }) })
		const want = "*signal.Signal[string]: not sent within 1m0s (1 others were)"
		if f.said != want {
			t.Errorf("got %q, want %q", f.said, want)
		}
	})
}

func TestValuesNobodyReadsFailTheTestAndBlockNobody(t *testing.T) {
	t.Parallel()
	f := &failing{ctx: t.Context()}
	var s signal.Signal[int]
	s.Init(f)
	for i := 0; f.said == "" && i < 1<<20; i++ {
		s.Send(i)
	}
	const want = "*signal.Signal[int]: more than 262144 values were left unread"
	if f.said != want {
		t.Errorf("got %q, want %q", f.said, want)
	}
}
