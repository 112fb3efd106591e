package codec_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	keyholdv1 "github.com/keyhold/keyhold/proto/keyhold/v1"
)

// throughTheWire encodes an envelope to bytes and back.
func throughTheWire(t rapid.TB, e event.Envelope) event.Envelope {
	t.Helper()
	p, err := codec.EnvelopeToProto(&e)
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	read := &keyholdv1.Envelope{}
	if err := proto.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	got, err := codec.EnvelopeFromProto(read)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnyEnvelopeSurvivesTheWire(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return rapid.String().Draw(t, name) }
		number := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		e := event.Envelope{
			ID: text("id"), Type: text("type"), Version: rapid.IntRange(0, math.MaxInt32).Draw(t, "version"),
			Encoding: rapid.SampledFrom([]event.Encoding{"", event.JSON, event.Proto}).Draw(t, "encoding"),
			Data:     rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
			Category: text("category"), Key: text("key"), LaneID: text("lane id"),
			Lane:   rapid.SampledFrom([]event.Lane{event.Primary, event.Backfill}).Draw(t, "lane"),
			Tenant: text("tenant"), CorrelationID: text("correlation"), CausationID: text("causation"),
			Trace:  event.Trace{Parent: text("parent"), State: text("state")},
			Stream: event.Stream{Kind: text("kind"), ID: text("entity")}, StreamVersion: number("stream version"),
			Sequence: event.Sequence(number("sequence")), StoreID: text("store"),
		}
		if rapid.Bool().Draw(t, "has a time") {
			e.Time = time.UnixMilli(rapid.Int64Range(-62135596800000, 253402300799999).Draw(t, "time")).UTC()
		}
		if diff := cmp.Diff(e, throughTheWire(t, e), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-sent +received):\n%s", diff)
		}
	})
}

// A field added to the envelope and forgotten on the wire fails here.
func TestEveryFieldOfAnEnvelopeIsOnTheWire(t *testing.T) {
	t.Parallel()
	e := event.Envelope{
		ID: "id", Type: "type", Version: 2, Encoding: event.Proto, Data: []byte("data"), Category: "category", Key: "key", Lane: event.Backfill,
		LaneID: "lane", Tenant: "tenant", CorrelationID: "correlation", CausationID: "causation", Trace: event.Trace{Parent: "parent", State: "state"},
		Time: time.UnixMilli(1).UTC(), Stream: event.Stream{Kind: "kind", ID: "entity"}, StreamVersion: 3, Sequence: 4, StoreID: "store",
	}
	for i := range reflect.TypeFor[event.Envelope]().NumField() {
		if reflect.ValueOf(e).Field(i).IsZero() {
			t.Errorf("this test sets no %s", reflect.TypeOf(e).Field(i).Name)
		}
	}
	if diff := cmp.Diff(e, throughTheWire(t, e)); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
}

func TestEnvelopeThatHasNoWireFormIsRefused(t *testing.T) {
	t.Parallel()
	for label, e := range map[string]event.Envelope{
		"encoding":      {Encoding: "xml"},
		"lane":          {Lane: 2},
		"version below": {Version: -1},
		"version above": {Version: math.MaxInt32 + 1},
		"time":          {Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if p, err := codec.EnvelopeToProto(&e); err == nil {
			t.Errorf("%s: sent as %v", label, p)
		}
	}
	valid := func(change func(*keyholdv1.Envelope)) *keyholdv1.Envelope {
		p := &keyholdv1.Envelope{Lane: keyholdv1.Lane_LANE_PRIMARY}
		change(p)
		return p
	}
	if _, err := codec.EnvelopeFromProto(valid(func(*keyholdv1.Envelope) {})); err != nil {
		t.Fatalf("nothing changed: %v", err)
	}
	for label, p := range map[string]*keyholdv1.Envelope{
		"nil":      nil,
		"no lane":  valid(func(p *keyholdv1.Envelope) { p.Lane = 0 }),
		"lane":     valid(func(p *keyholdv1.Envelope) { p.Lane = 3 }),
		"encoding": valid(func(p *keyholdv1.Envelope) { p.Encoding = 3 }),
		"version":  valid(func(p *keyholdv1.Envelope) { p.Version = -1 }),
		"time":     valid(func(p *keyholdv1.Envelope) { p.Time = &timestamppb.Timestamp{Nanos: -1} }),
	} {
		if e, err := codec.EnvelopeFromProto(p); err == nil {
			t.Errorf("%s: read as %+v", label, e)
		}
	}
}
