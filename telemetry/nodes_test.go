package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/telemetry"
)

func TestWhatHappensAmongNodesIsCountedAndPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	heard := 0
	o := b.tel.Observer(actors.Observer{
		LeaseLost:    func(event.Unit, string) { heard++ },
		LeaseRefused: func(event.Unit, time.Duration) { heard++ },
	})
	n := b.tel.Nodes()
	for _, why := range []string{"renewal was fenced", "deadline passed", "host was suspended", "c-17"} { // a label must not grow
		o.LeaseLost(shipping, why)
	}
	o.LeaseRefused(shipping, time.Second)
	n.Woken("shipping")
	n.Woken("") // of a part
	n.PartLost("deadline passed")
	n.HandedOver("shipping")
	n.Unfit("shipping")
	n.Trouble("look for work", errors.New("no"))
	n.Published("order", 7)
	n.Healed("order")
	n.Retired("order", 2)
	n.Diverged("order")
	n.Abandoned("order")
	n.Missing("order")
	n.Routed("redirected")
	n.GivenUp("unavailable")
	n.TakenIn("sale", 5)
	n.Repeated("sale", 2)
	n.Gone("sale", 3)
	n.Malformed("sale")
	got := b.collect()
	b.want(got, map[string]float64{
		"keyhold.leases.lost{handler=shipping,reason=fenced}":    1,
		"keyhold.leases.lost{handler=shipping,reason=expired}":   1,
		"keyhold.leases.lost{handler=shipping,reason=suspended}": 1,
		"keyhold.leases.lost{handler=shipping,reason=other}":     1,
		"keyhold.leases.lost{handler=part,reason=expired}":       1,
		"keyhold.leases.refused{handler=shipping}":               1,
		"keyhold.wakes{handler=shipping}":                        1,
		"keyhold.wakes{handler=part}":                            1,
		"keyhold.handovers{handler=shipping}":                    1,
		"keyhold.unfit{handler=shipping}":                        1,
		"keyhold.troubles{what=look for work}":                   1,
		"keyhold.relay.published{category=order}":                7,
		"keyhold.relay.healed{category=order}":                   1,
		"keyhold.relay.retired{category=order}":                  2,
		"keyhold.relay.diverged{category=order}":                 1,
		"keyhold.relay.abandoned{category=order}":                1,
		"keyhold.relay.missing{category=order}":                  1,
		"keyhold.asks.routed{how=redirected}":                    1,
		"keyhold.asks.unrouted{reason=unavailable}":              1,
		"keyhold.intake.taken{category=sale}":                    5,
		"keyhold.intake.repeated{category=sale}":                 2,
		"keyhold.intake.lost{category=sale}":                     3,
		"keyhold.intake.malformed{category=sale}":                1,
	})
	for name := range got {
		if strings.Contains(name, "c-17") {
			t.Errorf("a label has a key: %s", name)
		}
	}
	if want := 5; heard != want {
		t.Errorf("the next observers heard %d things, want %d", heard, want)
	}
}

func TestHowANodeStandsIsReadAsFarAsItIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var fault error
	from := standing(eventstore.Overview{}, nil)
	from.Node = func(context.Context) (actors.NodeStanding, error) {
		return actors.NodeStanding{
			Members: 3, Unheard: 1, Parts: 21, Leases: 400, Reaches: map[string]bool{"store": false, "broker": true}, Keys: map[string]int{"order": 12},
			Sealing: 2, CertificateEnds: time.Now().Add(time.Hour),
			Unpublished: 5, Oldest: time.Now().Add(time.Hour), // clocks disagree
		}, fault
	}
	if _, err := b.tel.Watch(from); err != nil {
		t.Fatal(err)
	}
	known := map[string]float64{
		"keyhold.members{}": 3, "keyhold.members.unheard{}": 1, "keyhold.parts{}": 21, "keyhold.leases{}": 400, "keyhold.partitions{category=order}": 12,
		"keyhold.gossip.keys{}": 2, "keyhold.reachable{what=store}": 0, "keyhold.reachable{what=broker}": 1,
	}
	b.want(b.collect(), known)
	if left := b.collect()["keyhold.certificate.left{}"]; left > 3601 || left < 3000 {
		t.Errorf("the certificate is left %v s", left)
	}
	b.want(b.collect(), map[string]float64{"keyhold.relay.lag.events{}": 5, "keyhold.relay.lag.age{}": 0})

	fault = errors.New("disk is on fire")
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err == nil || !strings.Contains(err.Error(), "what is not published: disk is on fire") {
		t.Errorf("collected with %v", err)
	}
	got := read(&all)
	b.want(got, known)
	if _, told := got["keyhold.relay.lag.events{}"]; told {
		t.Error("what the store did not tell is given as 0")
	}
}

func TestWhatANodeHasNotIsNoGauge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	from := standing(eventstore.Overview{}, nil)
	from.Node = func(context.Context) (actors.NodeStanding, error) { return actors.NodeStanding{}, nil }
	if _, err := b.tel.Watch(from); err != nil {
		t.Fatal(err)
	}
	got := b.collect()
	for _, name := range []string{"keyhold.gossip.keys{}", "keyhold.certificate.left{}"} {
		if v, told := got[name]; told {
			t.Errorf("%s is %v", name, v)
		}
	}
}

func TestWithoutMetricsNothingOfNodesIsCounted(t *testing.T) {
	t.Parallel()
	if n := telemetry.New(telemetry.Options{NoMetrics: true}).Nodes(); n.Woken != nil || n.Published != nil {
		t.Error("who counts nothing is told")
	}
}
