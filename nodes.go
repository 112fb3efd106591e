package keyhold

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
)

// brokerReach is told by the beats of the node.
func (a *App) brokerReach(name string, ttl time.Duration) *reach {
	return &reach{
		what: "the broker " + name, log: a.cfg.Logger, patience: ttl,
		then: "what is committed is published when it answers, and this process gives up its keys as their leases end; see whether its server runs and lets this process in",
	}
}

// toldOfNodes is who is told beside the log.
func (a *App) toldOfNodes() actors.NodeObserver {
	if a.cfg.Telemetry == nil {
		return actors.NodeObserver{}
	}
	return a.cfg.Telemetry.Nodes()
}

// subscriber is the name of a unit's handler; "" for what stands for a part.
func subscriber(name string) string {
	if name == event.PartName {
		return ""
	}
	return name
}

// clustered logs what a node does.
func (c *shared) clustered() cluster.Observer {
	log, told := c.r.app.cfg.Logger, c.r.app.toldOfNodes()
	return cluster.Observer{
		PartHeld: func(p event.Part, held bool) {
			if held && p == dutyJobs.part() { // not in turn with projections, which may be long in stopping
				c.r.jobs.look()
			}
			token(c.changed)
		},
		Beat: func(err error) {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, lifecycle.ErrStopped) { // by a stop
				c.reach.told(err)
			}
			c.listen()
		},
		Woken: func(name string) { call(told.Woken, subscriber(name)) },
		PartLost: func(p event.Part, why string) {
			call(told.PartLost, why)
			if unsaid, now := c.once.due("part " + why); now {
				log.Warn("lost the lease of a part of the lanes: another node publishes them, or will when the broker answers", "part", p, "why", why, "unsaid", unsaid)
			}
		},
		Keys: func(category string, live int) {
			c.counted.Lock()
			defer c.counted.Unlock()
			c.counted.keys[category] = live
		},
		ManyPartitions: func(category string, live int) {
			log.Warn("a category has very many live keys, each of which costs memory on the broker: is its key one of every order or request? "+
				"Then use a category without a key, whose events are spread over buckets", "category", category, "live", live)
		},
		Trouble: func(what string, err error) {
			call2(told.Trouble, what, err)
			rareLog(log, &c.once, "the broker did not do what this node asked: tried again", what, err)
		},
		Unfit: func(u event.Unit, d time.Duration) {
			call(told.Unfit, u.Name)
			log.Debug("other nodes are to go for a unit first: this one could not recover it, or does not know the type of its next event", "unit", u, "for", d)
		},
		HandedOver: func(u event.Unit, to string) {
			call(told.HandedOver, u.Name)
			log.Debug("handed over", "unit", u, "to", to)
		},
	}
}

// relayed logs what happens to what is relayed.
func (c *shared) relayed() outbox.Observer {
	log, told := c.r.app.cfg.Logger, c.r.app.toldOfNodes()
	return outbox.Observer{
		Relayed: told.Published,
		Retired: told.Retired,
		Healed: func(lane event.LaneRef) {
			call(told.Healed, lane.Category)
			log.Warn("the broker had lost events and has them again", "lane", lane)
		},
		Diverged: func(d eventstore.Divergence) {
			call(told.Diverged, d.Lane.Category)
			log.Error("the broker has an event that the store has not: was the store restored from a backup, or did it fail over without its last commits? "+
				"Nothing of this lane is published until a person decides", "lane", d.Lane, "sequence", d.Sequence, "broker", d.EventID, "store", d.StoredEventID,
				"try", admin.CommandLine("keyhold", "lanes ls", nil))
		},
		Abandoned: func(lane event.LaneRef, seq event.Sequence, reason string) {
			call(told.Abandoned, lane.Category)
			log.Error("an event can never be published: a void takes its place", "lane", lane, "sequence", seq, "reason", reason)
		},
		Served: func(w transport.Wanted, records int) {
			if records == 0 {
				call(told.Missing, w.Lane.Category)
				log.Error("another application asks for events that are nowhere any more: its handler halts before them", "unit", w.Unit, "lane", w.Lane, "after", w.After)
			}
		},
		Trouble: func(what string, err error) {
			call2(told.Trouble, what, err)
			rareLog(log, &c.once, "publishing waits: tried again", what, err)
		},
		Stale: func(p event.Part) {
			// Two nodes that do not see one another, as on two servers, take parts from each other without end.
			if unsaid, now := c.once.due("part stale"); now {
				log.Info("a part of the lanes is another node's by now, and is published there", "part", p, "unsaid", unsaid)
			}
		},
	}
}

// standing is what gauges are read from.
func (c *shared) standing(ctx context.Context) (actors.NodeStanding, error) {
	s := actors.NodeStanding{
		Members: len(c.node.Placement().Members()), Unheard: len(c.node.Unheard()), Parts: c.node.Parts(), Leases: c.runtime.Leases(),
		Reaches: map[string]bool{"store": c.r.store.fault() == nil, "broker": c.reach.fault() == nil},
	}
	if g, is := c.near.gossip.(transport.Sealed); is {
		s.Sealing, _ = g.Sealing()
	}
	if p, is := c.near.peers.(transport.Certified); is {
		s.CertificateEnds, _ = p.Certificate()
	}
	c.counted.Lock()
	s.Keys = maps.Clone(c.counted.keys)
	c.counted.Unlock()
	lag, err := c.relay.Lag(ctx)
	s.Unpublished, s.Oldest = lag.Records, lag.Oldest
	return s, err
}

// members are the nodes as this one knows them, for the desk; nil where it is alone.
func (a *App) members() (all []admin.Member) {
	r, err := a.live()
	if err != nil {
		return nil
	}
	c, is := r.carrier.(*shared)
	if !is {
		return nil
	}
	unheard := map[string]bool{}
	for _, m := range c.node.Unheard() {
		unheard[m.ID] = true
	}
	for _, m := range c.node.Placement().Members() {
		all = append(all, admin.Member{Node: m.Node, PID: m.PID, Here: m.ID == c.broker.OwnerID(), Version: m.Version, Draining: m.Draining, Apart: m.Apart,
			Unheard: unheard[m.ID], Address: m.Address, Since: m.Since})
	}
	return all
}

// consumes is Ready of an application whose desk is there: that it is not started, a desk says by itself.
func (a *App) consumes() error {
	if err := a.Ready(); !errors.Is(err, ErrNotStarted) {
		return err
	}
	return nil
}
