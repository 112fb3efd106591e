package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport"
)

func TestWhatHappensAmongNodesIsCountedAndPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	heard := 0
	o := b.tel.Observer(actors.Observer{
		LeaseLost:    func(event.Unit, string) { heard++ },
		LeaseRefused: func(event.Unit, time.Duration) { heard++ },
	})
	n := b.tel.Cluster(cluster.Observer{
		Members:    func([]transport.Member) { heard++ },
		Woken:      func(string) { heard++ },
		PartLost:   func(event.Part, string) { heard++ },
		HandedOver: func(event.Unit, string) { heard++ },
		Unfit:      func(event.Unit, time.Duration) { heard++ },
		Trouble:    func(string, error) { heard++ },
	})
	r := b.tel.Relay(outbox.Observer{
		Relayed:   func(string, int) { heard++ },
		Healed:    func(event.LaneRef) { heard++ },
		Retired:   func(string, int) { heard++ },
		Diverged:  func(eventstore.Divergence) { heard++ },
		Abandoned: func(event.LaneRef, event.Sequence, string) { heard++ },
		Served:    func(transport.Wanted, int) { heard++ },
		Trouble:   func(string, error) { heard++ },
		Stale:     func(event.Part) { heard++ },
	})
	lane := event.LaneRef{Category: "order", Key: "c-17"}
	for _, why := range []string{"renewal was fenced", "deadline passed", "host was suspended", "c-17"} { // a label must not grow
		o.LeaseLost(shipping, why)
	}
	o.LeaseRefused(shipping, time.Second)
	n.Members(nil)
	n.Woken("shipping")
	n.Woken(event.PartName)
	n.PartLost(3, "deadline passed")
	n.HandedOver(shipping, "b")
	n.Unfit(event.Part(3).Unit(), time.Second)
	n.Trouble("look for work", errors.New("no"))
	r.Relayed("order", 7)
	r.Healed(lane)
	r.Retired("order", 2)
	r.Diverged(eventstore.Divergence{Lane: lane})
	r.Abandoned(lane, 1, "no")
	r.Served(transport.Wanted{Lane: lane}, 0)
	r.Served(transport.Wanted{Lane: lane}, 3)
	r.Trouble("append", errors.New("no"))
	r.Stale(3)
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
		"keyhold.unfit{handler=part}":                            1,
		"keyhold.troubles{what=look for work}":                   1,
		"keyhold.troubles{what=append}":                          1,
		"keyhold.relay.published{category=order}":                7,
		"keyhold.relay.healed{category=order}":                   1,
		"keyhold.relay.retired{category=order}":                  2,
		"keyhold.relay.diverged{category=order}":                 1,
		"keyhold.relay.abandoned{category=order}":                1,
		"keyhold.relay.missing{category=order}":                  1,
	})
	for name := range got {
		if strings.Contains(name, "c-17") {
			t.Errorf("a label has a key: %s", name)
		}
	}
	if want := 21; heard != want {
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
			Members: 3, Parts: 21, Leases: 400, Reaches: map[string]bool{"store": false, "broker": true}, Keys: map[string]int{"order": 12},
			Unpublished: 5, Oldest: time.Now().Add(time.Hour), // clocks disagree
		}, fault
	}
	if _, err := b.tel.Watch(from); err != nil {
		t.Fatal(err)
	}
	known := map[string]float64{
		"keyhold.members{}": 3, "keyhold.parts{}": 21, "keyhold.leases{}": 400, "keyhold.partitions{category=order}": 12,
		"keyhold.reachable{what=store}": 0, "keyhold.reachable{what=broker}": 1,
	}
	b.want(b.collect(), known)
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

func TestWithoutMetricsNodesAreObservedAsBefore(t *testing.T) {
	t.Parallel()
	tel := telemetry.New(telemetry.Options{NoMetrics: true})
	heard := 0
	tel.Cluster(cluster.Observer{Woken: func(string) { heard++ }}).Woken("shipping")
	tel.Relay(outbox.Observer{Relayed: func(string, int) { heard++ }}).Relayed("order", 1)
	if heard != 2 {
		t.Errorf("heard %d things", heard)
	}
}
