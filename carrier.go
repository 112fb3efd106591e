package keyhold

import (
	"context"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// carrier takes what is committed to the units that are concerned. There are two kinds: alone, where this process owns its store and runs every unit,
// and shared, where it is one of several nodes.
type carrier interface {
	// start begins to carry. The units are started.
	start(ctx context.Context) error
	// drain begins the end: units are stopped next, and others take over what is not in hand.
	drain(ctx context.Context) error
	// stop ends carrying, when units are stopped; it may be called again after an error.
	stop(ctx context.Context) error

	// committed tells which lanes a commit of this process has grown.
	committed(ctx context.Context, tails []event.Tail) error
	// notify says that something was committed, and nobody knows what.
	notify()
	// resume has a unit, wherever it runs, look at what the store says about it.
	resume(u event.Unit)
	// wake has a unit, wherever it runs, look for work.
	wake(u event.Unit)
	// unlisted says that a handler was removed, or has another name now.
	unlisted(name string)
	// does reports whether a duty of the whole application is this process's now.
	does(duty) bool
}

// duty is something that one node does for all.
type duty uint8

const (
	dutyJobs        duty = iota // acts on many rows, step by step
	dutyPurge                   // what is kept no longer
	dutyProjections             // read models
)

// part is the part whose holder has the duty.
func (d duty) part() event.Part {
	return event.PartOf(event.PartName, [...]string{"jobs", "purge", "projections"}[d])
}

// alone carries within the process.
type alone struct {
	r    *running
	node transport.Node
}

func (c *alone) start(ctx context.Context) error { return c.r.app.cfg.Transport.Start(ctx, c.node) }
func (c *alone) drain(ctx context.Context) error { return c.stop(ctx) }
func (c *alone) stop(ctx context.Context) error  { return c.r.app.cfg.Transport.Stop(ctx) }

func (c *alone) committed(ctx context.Context, tails []event.Tail) error {
	return c.r.app.cfg.Transport.Committed(ctx, tails)
}

func (c *alone) notify() {
	if n, ok := c.r.app.cfg.Transport.(interface{ Notify() }); ok {
		n.Notify()
	}
}

func (c *alone) resume(u event.Unit) { c.r.runtime.Resume(u) }
func (c *alone) wake(u event.Unit)   { c.r.runtime.Wake(u) }
func (c *alone) unlisted(string)     {}
func (c *alone) does(duty) bool      { return true }
