package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

// nodeCounts are fed as things happen among nodes.
type nodeCounts struct {
	lost, refused, woken, handed, unfit, published, healed, diverged, abandoned, retired, missed, routed, givenUp metric.Int64Counter

	taken, repeated, gone, malformed metric.Int64Counter
}

func (c *nodeCounts) instruments(counter func(to *metric.Int64Counter, name, unit, what string)) {
	counter(&c.lost, "keyhold.leases.lost", "{lease}", "Leases that had to be given up; handler part = of a part of the lanes.")
	counter(&c.refused, "keyhold.leases.refused", "{lease}", "Units that were wanted here and that another node has.")
	counter(&c.woken, "keyhold.wakes", "{wake}", "Wakes that came from the broker.")
	counter(&c.handed, "keyhold.handovers", "{unit}", "Units handed over to a node that ranks before this one.")
	counter(&c.unfit, "keyhold.unfit", "{unit}", "Units that this node could not recover, or whose next event it does not know.")
	counter(&c.published, "keyhold.relay.published", "{event}", "Records appended to streams of the broker, for the first time or again.")
	counter(&c.healed, "keyhold.relay.healed", "{lane}", "Lanes of which the broker had lost something, and has it again.")
	counter(&c.diverged, "keyhold.relay.diverged", "{lane}", "Lanes that stopped, because the broker has an event that the store has not.")
	counter(&c.abandoned, "keyhold.relay.abandoned", "{event}", "Records that no broker can hold.")
	counter(&c.retired, "keyhold.relay.retired", "{lane}", "Lanes that left the broker, passed by all.")
	counter(&c.missed, "keyhold.relay.missing", "{request}", "Requests of other applications for events that are nowhere any more.")
	counter(&c.routed, "keyhold.asks.routed", "{ask}", "Asks for other nodes that went to whom it was remembered to have the entity, were redirected, or repeated.")
	counter(&c.givenUp, "keyhold.asks.unrouted", "{ask}", "Asks for which nobody was found who has the entity.")
	counter(&c.taken, "keyhold.intake.taken", "{event}", "Events taken in from streams that other programs write.")
	counter(&c.repeated, "keyhold.intake.repeated", "{entry}", "Entries of such streams whose events were taken in before.")
	counter(&c.gone, "keyhold.intake.lost", "{entry}", "Entries of such streams that were gone before they were taken in.")
	counter(&c.malformed, "keyhold.intake.malformed", "{entry}", "Entries of such streams that are no event.")
}

func add(c metric.Int64Counter, n int, label, value string) {
	c.Add(context.Background(), int64(n), metric.WithAttributeSet(attribute.NewSet(attribute.String(label, value))))
}

// loss gives why a lease was lost as a label.
func loss(why string) string {
	switch why {
	case "renewal was fenced":
		return "fenced"
	case "deadline passed":
		return "expired"
	case "host was suspended":
		return "suspended"
	}
	return "other"
}

// part is what stands for parts of the lanes where others are named by their handler.
const part = "part"

func (c *nodeCounts) leaseLost(handler, why string) {
	c.lost.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(attribute.String("handler", handler), attribute.String("reason", loss(why)))))
}

// observe has o count what happens to leases before it is passed on to next.
func (c *nodeCounts) observe(o, next *actors.Observer) {
	o.LeaseLost = func(u event.Unit, why string) {
		c.leaseLost(u.Name, why)
		call2(next.LeaseLost, u, why)
	}
	o.LeaseRefused = func(u event.Unit, most time.Duration) {
		add(c.refused, 1, "handler", u.Name)
		call2(next.LeaseRefused, u, most)
	}
}

// Nodes gives what counts what happens among nodes.
func (t *Telemetry) Nodes() actors.NodeObserver {
	if t.counts == nil {
		return actors.NodeObserver{}
	}
	c := &t.counts.nodes
	of := func(counter metric.Int64Counter, label string) func(string) {
		return func(value string) { add(counter, 1, label, value) }
	}
	some := func(counter metric.Int64Counter) func(string, int) {
		return func(category string, n int) { add(counter, n, "category", category) }
	}
	return actors.NodeObserver{
		Woken:      func(name string) { add(c.woken, 1, "handler", cmp.Or(name, part)) },
		PartLost:   func(why string) { c.leaseLost(part, why) },
		HandedOver: of(c.handed, "handler"), Unfit: of(c.unfit, "handler"),
		Published: some(c.published), Retired: some(c.retired),
		Healed: of(c.healed, "category"), Diverged: of(c.diverged, "category"), Abandoned: of(c.abandoned, "category"), Missing: of(c.missed, "category"),
		Trouble: func(what string, _ error) { add(t.counts.troubles, 1, "what", what) },
		Routed:  of(c.routed, "how"), GivenUp: of(c.givenUp, "reason"),
		TakenIn: some(c.taken), Repeated: some(c.repeated), Gone: some(c.gone), Malformed: of(c.malformed, "category"),
	}
}

// nodeGauges are read where the application is one of several nodes.
type nodeGauges struct {
	members, unheard, parts, leases, reachable, keys, unpublished, sealing metric.Int64ObservableGauge
	age, certificate                                                       metric.Float64ObservableGauge
}

func (t *Telemetry) nodeGauges() (g nodeGauges, err error) {
	for _, i := range []struct {
		to               *metric.Int64ObservableGauge
		name, unit, what string
	}{
		{&g.members, "keyhold.members", "{node}", "Nodes that take part, as this one knows them."},
		{&g.unheard, "keyhold.members.unheard", "{node}", "Nodes that take part, and that gossip does not reach from here."},
		{&g.parts, "keyhold.parts", "{part}", "Parts of the lanes, of 64, that this node publishes."},
		{&g.leases, "keyhold.leases", "{lease}", "Units that this node holds."},
		{&g.reachable, "keyhold.reachable", "1", "1 while the store, or the broker, answers this process; else 0."},
		{&g.keys, "keyhold.partitions", "{key}", "Live keys of a category on the broker; counted once a minute, by one node for each category."},
		{&g.sealing, "keyhold.gossip.keys", "{key}", "Keys that open what this node hears by gossip: 2 while they are changed."},
		{&g.unpublished, "keyhold.relay.lag.events", "{event}", "Records of the parts of this node that the broker is not known to have."},
	} {
		var e error
		*i.to, e = t.meter.Int64ObservableGauge(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.what))
		err = errors.Join(err, e)
	}
	var e, of error
	g.certificate, of = t.meter.Float64ObservableGauge("keyhold.certificate.left", metric.WithUnit("s"), metric.WithDescription("Until the certificate of this node's service ends; below 0 when it has."))
	g.age, e = t.meter.Float64ObservableGauge("keyhold.relay.lag.age", metric.WithUnit("s"), metric.WithDescription("Age of the oldest of them, of a hundred lanes."))
	return g, errors.Join(err, of, e)
}

func (g *nodeGauges) all() []metric.Observable {
	return []metric.Observable{g.members, g.unheard, g.parts, g.leases, g.reachable, g.keys, g.unpublished, g.age, g.sealing, g.certificate}
}

func (g *nodeGauges) observe(ctx context.Context, o metric.Observer, from actors.Standing, now time.Time) error {
	s, err := from.Node(ctx)
	o.ObserveInt64(g.members, int64(s.Members))
	o.ObserveInt64(g.unheard, int64(s.Unheard))
	o.ObserveInt64(g.parts, int64(s.Parts))
	o.ObserveInt64(g.leases, int64(s.Leases))
	if s.Sealing > 0 {
		o.ObserveInt64(g.sealing, int64(s.Sealing))
	}
	if !s.CertificateEnds.IsZero() {
		o.ObserveFloat64(g.certificate, s.CertificateEnds.Sub(now).Seconds())
	}
	for what, answers := range s.Reaches {
		var v int64
		if answers {
			v = 1
		}
		o.ObserveInt64(g.reachable, v, metric.WithAttributeSet(attribute.NewSet(attribute.String("what", what))))
	}
	for category, live := range s.Keys {
		o.ObserveInt64(g.keys, int64(live), metric.WithAttributeSet(attribute.NewSet(attribute.String("category", category))))
	}
	if err := done(ctx, err); err != nil { // what the store was to tell is left out
		return fmt.Errorf("what is not published: %w", err)
	}
	o.ObserveInt64(g.unpublished, int64(s.Unpublished))
	o.ObserveFloat64(g.age, age(s.Oldest, now))
	return nil
}
