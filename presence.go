package keyhold

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// presence is what this process says of itself in the store, where people find it who look from outside, and what it sees there of others. It belongs to whoever looks for acts.
type presence struct {
	said   time.Time // since when there is the trouble that was said last; zero = none is
	asked  time.Time // who else has the store open
	absent map[event.Generation]absence
	since  time.Time
	fault  error           // what came of that
	unlike map[string]bool // settings of others that were told of

	about     string    // what was said last of what this process is
	described time.Time // when
	changed   time.Time // since when it drains or is apart, as it is said; zero = it does neither
	kept      bool      // it does one of the two
}

// describeEvery is how often what changes all the time is said of this process.
const describeEvery = 10 * time.Second

// say notes in the store what keeps this process from its share of the work, whenever that changes. It gives no error: where the store is out of reach, whoever calls it
// finds that out by himself.
func (r *running) say(ctx context.Context) {
	c, is := r.carrier.(*shared)
	if !is || !c.carries() {
		return
	}
	r.describe(ctx, c)
	since, err := c.reach.loss()
	if err == nil {
		since, err = r.presence.apart(ctx, c)
	}
	trouble := ""
	if err != nil {
		trouble = event.Text(err.Error(), 4<<10)
	}
	if since.Equal(r.presence.said) {
		return
	}
	if r.app.cfg.Store.Say(ctx, trouble, since) == nil {
		r.presence.said = since
	}
}

// describe says in the store what this node is, when that has changed.
func (r *running) describe(ctx context.Context, c *shared) {
	now, p := time.Now(), &r.presence
	self := c.node.Self()
	kept := self.Draining || self.Apart
	turned := kept != p.kept
	if p.about != "" && !turned && now.Sub(p.described) < describeEvery {
		return
	}
	if turned {
		p.kept, p.changed = kept, time.Time{}
		if kept {
			p.changed = now.UTC().Truncate(time.Second)
		}
	}
	a := admin.About{ID: self.ID, Address: self.Address, Gossip: self.Gossip, Version: self.Version, Up: self.Since.UTC().Truncate(time.Second),
		Units: c.runtime.Leases(), Draining: self.Draining, Apart: self.Apart, Since: p.changed, Notices: r.app.Notices(), Settings: c.settings}
	if g, is := c.near.gossip.(transport.Sealed); is {
		a.Keys, a.Seals = g.Sealing()
	}
	text, err := a.Text()
	if err != nil {
		return
	}
	p.described = now
	if text != p.about && r.app.cfg.Store.Describe(ctx, text) == nil {
		p.about = text
	}
}

// apart asks, with every beat, who else has the store open, and gives what is wrong with that.
func (p *presence) apart(ctx context.Context, c *shared) (since time.Time, err error) {
	now := time.Now()
	if now.Sub(p.asked) < c.beat {
		return p.since, p.fault
	}
	present, err := c.r.app.cfg.Store.Present(ctx)
	if err != nil {
		return p.since, p.fault // as it was, for all that is known
	}
	p.asked = now
	p.tellUnlike(c, present)
	absent, fresh, over := p.compare(present, c.node.Placement().Members(), now, 2*c.reach.patience)
	p.tellAbsent(c, fresh, over)
	if absent == nil {
		p.since, p.fault = time.Time{}, nil
		return p.since, p.fault
	}
	p.since, p.fault = absent.since, fmt.Errorf("process %d (%s) has this store open too, and is none of the nodes on %s: it is frozen, or it cannot reach that, or it is on another server, database or namespace",
		absent.owner.PID, absent.owner.Node, c.broker.Name())
	return p.since, p.fault
}

// tellAbsent says once of each process that it is absent, and once that it is no more.
func (p *presence) tellAbsent(c *shared, fresh, over []absence) {
	log := c.r.app.cfg.Logger
	for _, a := range fresh {
		log.Warn("another process has this store open, and is none of the nodes that the broker knows: it is frozen (stopped, or on a host that is paused or starved), or it cannot reach the broker, "+
			"or it is on another server, database or namespace. See whether it runs and what its log says; have all nodes use one broker, with one namespace",
			"node", a.owner.Node, "pid", a.owner.PID, "broker", c.broker.Name(), "since", a.since)
	}
	for _, a := range over {
		log.Info("the process that was none of the nodes "+a.now, "node", a.owner.Node, "pid", a.owner.PID, "after", time.Since(a.since).Round(time.Second))
	}
}

// absence is a process that has the store open, and is not among the members.
type absence struct {
	owner eventstore.Owner
	since time.Time
	told  bool
	now   string // what it does instead, once it is over
}

// compare gives the first process that has the store open and has not been among the members for as long as patience: it is frozen, or the broker that it has is another one, or out of
// its reach. fresh are those which are so by now, and over those which were and are no more.
// Who starts or stops is not there for less, and who says what is wrong with it needs nobody else to say it.
func (p *presence) compare(present []eventstore.Owner, members []transport.Member, now time.Time, patience time.Duration) (absent *absence, fresh, over []absence) {
	before := p.absent
	p.absent = map[event.Generation]absence{}
	for _, o := range present {
		a, known := before[o.Generation]
		delete(before, o.Generation)
		switch {
		case slices.ContainsFunc(members, func(m transport.Member) bool { return m.Start == o.Generation }):
			a.now = "is one of them again"
		case o.Trouble != "":
			a.now = "says what keeps it from that by itself"
		default:
			if !known {
				a = absence{owner: o, since: now}
			}
			if now.Sub(a.since) >= patience {
				if !a.told {
					fresh = append(fresh, a)
				}
				a.told = true
				if absent == nil {
					absent = &a
				}
			}
			p.absent[o.Generation] = a
			continue
		}
		if a.told {
			over = append(over, a)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(before)) {
		if a := before[g]; a.told {
			a.now = "has the store open no more"
			over = append(over, a)
		}
	}
	return absent, fresh, over
}
