package actors_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

// told is what observers are told of leases.
type told struct {
	mu                     sync.Mutex
	lost, refused, trouble []string
}

func (o *told) option(c *actors.Config) {
	note := func(to *[]string, s string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		*to = append(*to, s)
	}
	c.Observer.LeaseLost = func(u event.Unit, why string) { note(&o.lost, u.String()+" "+why) }
	c.Observer.LeaseRefused = func(u event.Unit, most time.Duration) {
		if most <= 0 {
			u.Name = "no time"
		}
		note(&o.refused, u.String())
	}
	c.Observer.Trouble = func(u event.Unit, what string, _ error) {
		if u.IsZero() {
			note(&o.trouble, what)
		}
	}
}

func TestLostAndRefusedLeasesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var first, second told
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, true))}, first.option)
		a.publish(t, amounts(1, 1)...)
		c := <-enter
		b := w.join(t, []actors.Definition{auditing("B", nil)}, second.option) // not before: it would have been woken as well
		same(t, "leases", []int{1, 0}, []int{a.Leases(), b.Leases()})
		b.Wake(ledgerOf("c"))
		pass(time.Millisecond)
		a.port.freeze()
		<-c.Done()
		if !errors.Is(context.Cause(c), actors.ErrLeaseLost) {
			t.Errorf("cause: %v", context.Cause(c))
		}
		close(letGo)
		pass(time.Second)
		first.mu.Lock()
		same(t, "lost", []string{ledgerOf("c").String() + " deadline passed"}, first.lost)
		if len(first.trouble) == 0 || first.trouble[0] != "renew leases" {
			t.Errorf("renewals that fail: %q", first.trouble)
		}
		first.mu.Unlock()
		second.mu.Lock()
		defer second.mu.Unlock()
		if len(second.refused) == 0 || second.refused[0] != ledgerOf("c").String() {
			t.Errorf("refused: %q", second.refused)
		}
		same(t, "lost of the other", 0, len(second.lost))
	})
}
