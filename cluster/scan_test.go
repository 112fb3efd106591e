package cluster_test

import (
	"context"
	"fmt"
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

// Keys are counted once a minute, for people. Where that hangs, for as many categories as there are, the others are told of this node all the same.
func TestCountingKeysKeepsNobodyOffTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 20 {
			w.counts = append(w.counts, fmt.Sprint("category-", i))
		}
		a := w.join("a")
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "partitions" {
				ctx, done := context.WithTimeout(context.Background(), 3*time.Second) // a heartbeat
				defer done()
				<-ctx.Done()
				return brokertest.Refused
			}
			return brokertest.None
		})
		pass(50 * time.Second)
		before := a.beaten()
		pass(30 * time.Second) // in which keys are counted
		if after := a.beaten(); after-before < 7 {
			t.Errorf("it has beaten %d times in ten heartbeats", after-before)
		}
		w.server.Break(nil)
		a.leave()
	})
}
