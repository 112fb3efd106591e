package keyhold

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// presence is what this process says of itself in the store, where people find it who look from outside. It belongs to whoever looks for acts.
type presence struct {
	said   time.Time // since when there is the trouble that was said last; zero = none is
	asked  time.Time // who else has the store open
	absent map[event.Generation]time.Time
	since  time.Time
	fault  error // what came of that
}

// say notes in the store what keeps this process from its share of the work, whenever that changes. It gives no error: where the store is out of reach, whoever calls it
// finds that out by himself.
func (r *running) say(ctx context.Context) {
	c, is := r.carrier.(*shared)
	if !is || !c.carries() {
		return
	}
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
	o, since := p.compare(present, c.node.Placement().Members(), now, 2*c.reach.patience)
	if o == nil {
		p.since, p.fault = time.Time{}, nil
		return p.since, p.fault
	}
	if p.fault == nil {
		c.r.app.cfg.Logger.Error("another process has this store open, and is none of the nodes that the broker knows: have all of them use one broker, with one namespace",
			"node", o.Node, "pid", o.PID, "broker", c.broker.Name())
	}
	p.since, p.fault = since, fmt.Errorf("process %d (%s) has this store open too, and is none of the nodes on %s: it cannot reach that, or it is on another server, database or namespace",
		o.PID, o.Node, c.broker.Name())
	return p.since, p.fault
}

// compare gives a process that has the store open and has not been among the members for as long as patience, and since when it is not: the broker that it has is another one.
// Who starts or stops is not there for less, and who says what is wrong with it needs nobody else to say it.
func (p *presence) compare(present []eventstore.Owner, members []transport.Member, now time.Time, patience time.Duration) (absent *eventstore.Owner, since time.Time) {
	before := p.absent
	p.absent = map[event.Generation]time.Time{}
	for i := range present {
		o := &present[i]
		if o.Trouble != "" || slices.ContainsFunc(members, func(m transport.Member) bool { return m.Start == o.Generation }) {
			continue
		}
		first, known := before[o.Generation]
		if !known {
			first = now
		}
		p.absent[o.Generation] = first
		if now.Sub(first) >= patience && absent == nil {
			absent, since = o, first
		}
	}
	return absent, since
}
