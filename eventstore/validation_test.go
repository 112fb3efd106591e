package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var (
	unit   = event.Unit{Name: "shipping", Key: "a"}
	order7 = event.Stream{Kind: "order", ID: "7"}
	orders = event.LaneRef{Category: "order", Key: "a"}
)

func placed(key string) event.Envelope {
	return event.Envelope{ID: "e-1", Type: "order.placed", Version: 1, Category: "order", Key: key}
}

// good is a unit of work in which everything is set that one can set at once.
func good() eventstore.Changes {
	return eventstore.Changes{
		Fence:    eventstore.Fence{Unit: unit, Generation: 3},
		Append:   []eventstore.Append{{Stream: order7, Events: []event.Envelope{placed("a"), placed("b")}}},
		Publish:  []event.Envelope{placed("c")},
		Advance:  []eventstore.Advance{{Lane: orders, From: 4, To: 5}, {Lane: event.LaneRef{Category: "order", Key: "a", Lane: event.Backfill}, To: 1}},
		Snapshot: &eventstore.Snapshot{Stream: order7, Version: 2},
		Reply:    &eventstore.Reply{Stream: order7, CommandID: "c-1"},
		Halt:     &eventstore.Halt{Unit: unit, Lane: orders, Sequence: 6},
		Dead:     []eventstore.Dead{{Unit: unit, Lane: orders, Sequence: 5}},
		Park:     []eventstore.Parked{{Unit: unit, Lane: orders, Sequence: 5}, {Unit: unit, Lane: orders, Sequence: 6}},
		Tried:    &eventstore.Tried{Unit: unit, Lane: orders, Sequence: 6},
	}
}

// settling is the same for a unit of work that ends an attempt at what was set aside.
func settling() eventstore.Changes {
	c := good()
	c.Park, c.Tried, c.Untry = nil, nil, true
	c.Settle = &eventstore.Settle{AsideRef: eventstore.AsideRef{Kind: eventstore.AsideDead, Lane: event.LaneRef{Category: "payment", Key: "a"}, Sequence: 1}}
	return c
}

func TestGoodChangesAreValidAndCostNothing(t *testing.T) {
	for _, c := range []eventstore.Changes{good(), settling()} {
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _ = c.Validate() }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
	}
	if err := (&eventstore.Changes{}).Validate(); err != nil {
		t.Fatal(err)
	}
	lift := eventstore.Changes{LiftHalt: &eventstore.HaltRef{Unit: unit, Lane: orders, Sequence: 6}}
	if err := lift.Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestMalformedChangesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  string
		spoil func(c *eventstore.Changes)
	}{
		{"names no unit", func(c *eventstore.Changes) { *c = eventstore.Changes{Fence: eventstore.Fence{Generation: 3}} }},
		{"has no name", func(c *eventstore.Changes) {
			*c = eventstore.Changes{Fence: eventstore.Fence{Unit: event.Unit{Key: "a"}}}
		}},
		{"needs a kind and an id", func(c *eventstore.Changes) { c.Append[0].Stream.ID = "" }},
		{"needs a kind and an id", func(c *eventstore.Changes) { c.Append[0].Stream.Kind = "" }},
		{"no events", func(c *eventstore.Changes) { c.Append[0].Events = nil }},
		{`append stream "order/7": twice`, func(c *eventstore.Changes) { c.Append = append(c.Append, c.Append[0]) }},
		{"append event \"e-1\": no type", func(c *eventstore.Changes) { c.Append[0].Events[1].Type = "" }},
		{"no id", func(c *eventstore.Changes) { c.Publish[0].ID = "" }},
		{"publish event \"e-1\": no category", func(c *eventstore.Changes) { c.Publish[0].Category = "" }},
		{"unknown lane 2", func(c *eventstore.Changes) { c.Publish[0].Lane = event.Backfill + 1 }},
		{"is of a sink lane", func(c *eventstore.Changes) { c.Publish[0].LaneID = "sink" }},
		{"must name the unit", func(c *eventstore.Changes) { *c = eventstore.Changes{Advance: c.Advance} }},
		{"from 5 to 5 is not forward", func(c *eventstore.Changes) { c.Advance[0].From = 5 }},
		{"from 6 to 5 is not forward", func(c *eventstore.Changes) { c.Advance[0].From = 6 }},
		{`advance "shipping" on order:a: twice`, func(c *eventstore.Changes) { c.Advance[1].Lane = orders }},
		{"a snapshot needs", func(c *eventstore.Changes) { c.Snapshot.Stream = event.Stream{} }},
		{"a snapshot needs", func(c *eventstore.Changes) { c.Snapshot.Version = 0 }},
		{"a reply needs both", func(c *eventstore.Changes) { c.Reply.Stream = event.Stream{} }},
		{"a reply needs both", func(c *eventstore.Changes) { c.Reply.CommandID = "" }},
		{"not both", func(c *eventstore.Changes) { c.LiftHalt = &eventstore.HaltRef{Unit: unit} }},
		{`halt of unit "shipping/b": the fence is for unit "shipping/a"`, func(c *eventstore.Changes) { c.Halt.Unit.Key = "b" }},
		{"no sequence", func(c *eventstore.Changes) { c.Halt.Sequence = 0 }},
		{`dead letter of unit "billing/a": the fence is for unit "shipping/a"`, func(c *eventstore.Changes) { c.Dead[0].Unit.Name = "billing" }},
		{"no sequence", func(c *eventstore.Changes) { c.Dead[0].Sequence = 0 }},
		{`parked event of unit "billing/a": the fence is for unit "shipping/a"`, func(c *eventstore.Changes) { c.Park[1].Unit.Name = "billing" }},
		{"no sequence", func(c *eventstore.Changes) { c.Park[1].Sequence = 0 }},
		{"no lane", func(c *eventstore.Changes) { c.Park[1].Lane = event.LaneRef{Key: "a"} }},
		{"order:a #5 is parked twice", func(c *eventstore.Changes) { c.Park[1].Sequence = 5 }},
		{"must name the unit whose row it is", func(c *eventstore.Changes) { *c = eventstore.Changes{Settle: settling().Settle} }},
		{"neither a parked event nor a dead letter (kind 0)", func(c *eventstore.Changes) { *c = settling(); c.Settle.Kind = 0 }},
		{"neither a parked event nor a dead letter (kind 3)", func(c *eventstore.Changes) { *c = settling(); c.Settle.Kind = 3 }},
		{"no sequence", func(c *eventstore.Changes) { *c = settling(); c.Settle.Sequence = 0 }},
		{"settles what was set aside or parks more, not both", func(c *eventstore.Changes) { c.Settle = settling().Settle }},
		{"the checkpoint of order:a moves with its own events", func(c *eventstore.Changes) { *c = settling(); c.Settle.Lane = orders }},
		{`attempts of unit "shipping/b": the fence is for unit "shipping/a"`, func(c *eventstore.Changes) { c.Tried.Unit.Key = "b" }},
		{"no sequence", func(c *eventstore.Changes) { c.Tried.Sequence = 0 }},
		{"notes or forgets them, not both", func(c *eventstore.Changes) { c.Untry = true }},
		{"must name the unit whose attempts", func(c *eventstore.Changes) { *c = eventstore.Changes{Untry: true} }},
	} {
		changes := good()
		c.spoil(&changes)
		if err := changes.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want something with %q", err, c.want)
		}
	}
}

func TestDuplicatesAreFoundInLongLists(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 16, 17, 100} {
		c := eventstore.Changes{Fence: eventstore.Fence{Unit: unit}}
		for i := range count {
			c.Advance = append(c.Advance, eventstore.Advance{Lane: event.LaneRef{Category: "order", Key: fmt.Sprint(i)}, To: 1})
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("%d lanes: %v", count, err)
		}
		c.Advance[count-1].Lane = c.Advance[0].Lane
		if err := c.Validate(); err == nil {
			t.Fatalf("%d lanes, the last one the first: no error", count)
		}
	}
}

func TestGrowthIsInLaneOrderWhateverTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	c := good()
	back := placed("b")
	back.Lane = event.Backfill
	other := placed("b")
	other.Category = "audit"
	c.Publish = append(c.Publish, back, other, placed("a"), placed("a"))
	want := []eventstore.Growth{
		{Lane: event.LaneRef{Category: "audit", Key: "b"}, Count: 1},
		{Lane: event.LaneRef{Category: "order", Key: "a"}, Count: 3},
		{Lane: event.LaneRef{Category: "order", Key: "b"}, Count: 1},
		{Lane: event.LaneRef{Category: "order", Key: "b", Lane: event.Backfill}, Count: 1},
		{Lane: event.LaneRef{Category: "order", Key: "c"}, Count: 1},
	}
	for range 20 {
		rand.Shuffle(len(c.Publish), func(i, j int) { c.Publish[i], c.Publish[j] = c.Publish[j], c.Publish[i] })
		if diff := cmp.Diff(want, c.AppendGrowth(nil)); diff != "" {
			t.Fatal(diff)
		}
	}
	kept := []eventstore.Growth{{Lane: event.LaneRef{Category: "zebra"}, Count: 9}}
	if diff := cmp.Diff(append(kept, want...), c.AppendGrowth(kept)); diff != "" {
		t.Fatal(diff)
	}
}

func TestLimitsAreOneToTenThousand(t *testing.T) {
	t.Parallel()
	for limit, good := range map[int]bool{-1: false, 0: false, 1: true, 10_000: true, 10_001: false} {
		if err := eventstore.CheckLimit(limit); (err == nil) != good {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}
