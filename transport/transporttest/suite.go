package transporttest

import (
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Transport is a transport with the port through which its units read.
type Transport interface {
	transport.Transport
	Port() partitions.Port
}

// Open makes a transport over a store, which is started. The suite starts and stops the transport, and stops the store last.
// The key rules are the default ones.
type Open func(t *testing.T, store eventstore.Store, id eventstore.Identity) Transport

// check is one behaviour, for transports that have all of with and none of without.
type check struct {
	name    string
	with    transport.Capabilities
	without transport.Capabilities
	before  func(f *fixture) // what happened in the process before, which did not stop its store; nil = there was none
	run     func(f *fixture)
}

// Option says what a transport is, besides its capabilities.
type Option func(*options)

type options struct{ owned bool }

// Owned: its units belong to the process that owns the store. What they had in hand when that process ended without a word it learns
// from Identity.Unclean.
func Owned(o *options) { o.owned = true }

// Run runs what of the suite is for the transport that open makes, by its capabilities.
func Run(t *testing.T, open Open, opts ...Option) {
	var is options
	for _, o := range opts {
		o(&is)
	}
	has := newFixture(t, open, nil).transport.Capabilities()
	for _, g := range []struct {
		name   string
		checks []check
	}{
		{"Identity", identity},
		{"Delivery", delivery},
		{"Order", order},
		{"Lifetime", lifetime},
		{"Failure", failure},
		{"Parallel", parallel},
		{"Inline", inline},
		{"Unclean", unclean},
	} {
		if g.name == "Unclean" && !is.owned {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.checks {
				if !has.Has(c.with) || has&c.without != 0 {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newFixture(t, open, c.before))
				})
			}
		})
	}
}

var identity = []check{
	{name: "It is what it says", run: func(f *fixture) {
		const all = transport.Inline<<1 - 1
		has := f.transport.Capabilities()
		if f.transport.Name() == "" {
			f.Error("it has no name")
		}
		if f.transport.Port() == nil {
			f.Error("it has no port")
		}
		if has&^all != 0 {
			f.Errorf("capabilities %b are unknown", has&^all)
		}
		if !has.Has(transport.Publish) {
			f.Errorf("it does not publish, but %s", has)
		}
		if has.Has(transport.Inline | transport.Partitioning) {
			f.Error("it says both that nothing runs in parallel and that keys do")
		}
		f.start()
		f.stop()
		if now := f.transport.Capabilities(); now != has {
			f.Errorf("capabilities were %s, and are %s now", has, now)
		}
	}},
}
