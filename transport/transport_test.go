package transport_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/transport"
)

func TestCapabilitiesAreNamedInOrder(t *testing.T) {
	t.Parallel()
	for has, want := range map[transport.Capabilities]string{
		0:                                     "",
		transport.Inline | transport.Publish:  "publish, inline",
		transport.Ack | transport.DeadLetter:  "ack, dead letter",
		transport.Inline<<1 - 1:               "publish, consumer groups, ack, ordering, dead letter, replay, partitioning, inline",
		transport.Replay | transport.Ordering: "ordering, replay",
	} {
		if got := has.String(); got != want {
			t.Errorf("%b: got %q, want %q", has, got, want)
		}
	}
}

func TestHasWantsAll(t *testing.T) {
	t.Parallel()
	has := transport.Publish | transport.Ack
	if !has.Has(transport.Publish) || !has.Has(has) || !has.Has(0) {
		t.Error("has not what it has")
	}
	if has.Has(transport.Ack | transport.Inline) {
		t.Error("one of two is enough")
	}
}

func TestSubscribersComeInOrderOfRegistration(t *testing.T) {
	t.Parallel()
	n := transport.Node{Subscriptions: []transport.Subscription{
		{Name: "shipping", Category: "order"}, {Name: "billing", Category: "payment"}, {Name: "billing", Category: "order"},
	}}
	want := map[string][]string{"order": {"shipping", "billing"}, "payment": {"billing"}}
	if diff := cmp.Diff(want, n.Subscribers()); diff != "" {
		t.Error(diff)
	}
}

func TestContextsDerivedFromANestedOneAreNested(t *testing.T) {
	t.Parallel()
	if transport.IsNested(t.Context()) {
		t.Error("any context is nested")
	}
	derived, cancel := context.WithCancel(transport.Nested(t.Context()))
	defer cancel()
	if !transport.IsNested(derived) || !transport.IsNested(context.WithoutCancel(derived)) {
		t.Error("a derived context is not nested")
	}
}
