package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// What one handler has to do may be on a server of the broker that does not answer. Units of the others, whose wakes are lost as well, are found all the same, and are not
// forgotten for it.
func TestWorkOfOneHandlerIsFoundThoughThatOfAnotherCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names = []string{"billing"}
		a := w.join("a")
		pass(30 * time.Second)
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "busy" && c.Unit.Name == "billing" {
				return brokertest.Refused
			}
			return brokertest.None
		})
		w.server.Deafen(true)
		a.take()
		u := event.Unit{Name: "shipping", Key: "k-1"}
		w.mark(a, u)
		pass(10 * time.Second)
		if got := a.take(); len(got) != 1 || got[0] != u {
			t.Errorf("woken: %v", got)
		}
		w.server.Break(nil)
		a.leave()
	})
}
