package codec

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/keyhold/keyhold/event"
	keyholdv1 "github.com/keyhold/keyhold/proto/keyhold/v1"
)

// EnvelopeToProto gives the wire form of an envelope, whose Data it shares. The error tells a field that has no wire form.
func EnvelopeToProto(e *event.Envelope) (*keyholdv1.Envelope, error) {
	if e.Version < 0 || e.Version > math.MaxInt32 {
		return nil, fmt.Errorf("envelope %q: version %d is out of range", e.ID, e.Version)
	}
	p := &keyholdv1.Envelope{
		Id:            e.ID,
		Type:          e.Type,
		Version:       int32(e.Version),
		Data:          e.Data,
		Category:      e.Category,
		Key:           e.Key,
		LaneId:        e.LaneID,
		Tenant:        e.Tenant,
		CorrelationId: e.CorrelationID,
		CausationId:   e.CausationID,
		StreamVersion: e.StreamVersion,
		Sequence:      uint64(e.Sequence),
		StoreId:       e.StoreID,
	}
	switch e.Encoding {
	case "":
	case event.JSON:
		p.Encoding = keyholdv1.Encoding_ENCODING_JSON
	case event.Proto:
		p.Encoding = keyholdv1.Encoding_ENCODING_PROTO
	default:
		return nil, fmt.Errorf("envelope %q: encoding %q is not known", e.ID, e.Encoding)
	}
	switch e.Lane {
	case event.Primary:
		p.Lane = keyholdv1.Lane_LANE_PRIMARY
	case event.Backfill:
		p.Lane = keyholdv1.Lane_LANE_BACKFILL
	default:
		return nil, fmt.Errorf("envelope %q: lane %d is not known", e.ID, e.Lane)
	}
	if e.Trace != (event.Trace{}) {
		p.Trace = &keyholdv1.TraceContext{Traceparent: e.Trace.Parent, Tracestate: e.Trace.State}
	}
	if !e.Stream.IsZero() {
		p.Stream = &keyholdv1.Stream{Kind: e.Stream.Kind, Id: e.Stream.ID}
	}
	if !e.Time.IsZero() {
		p.Time = timestamppb.New(e.Time)
		if err := p.Time.CheckValid(); err != nil {
			return nil, fmt.Errorf("envelope %q: %w", e.ID, err)
		}
	}
	return p, nil
}

// EnvelopeFromProto reads the wire form of an envelope, whose Data it shares. The error tells a field that this program does
// not understand.
func EnvelopeFromProto(p *keyholdv1.Envelope) (event.Envelope, error) {
	if p == nil {
		return event.Envelope{}, errors.New("envelope is nil")
	}
	e := event.Envelope{
		ID:            p.GetId(),
		Type:          p.GetType(),
		Version:       int(p.GetVersion()),
		Data:          p.GetData(),
		Category:      p.GetCategory(),
		Key:           p.GetKey(),
		LaneID:        p.GetLaneId(),
		Tenant:        p.GetTenant(),
		CorrelationID: p.GetCorrelationId(),
		CausationID:   p.GetCausationId(),
		Trace:         event.Trace{Parent: p.GetTrace().GetTraceparent(), State: p.GetTrace().GetTracestate()},
		Stream:        event.Stream{Kind: p.GetStream().GetKind(), ID: p.GetStream().GetId()},
		StreamVersion: p.GetStreamVersion(),
		Sequence:      event.Sequence(p.GetSequence()),
		StoreID:       p.GetStoreId(),
	}
	if e.Version < 0 {
		return event.Envelope{}, fmt.Errorf("envelope %q: version %d is out of range", e.ID, e.Version)
	}
	switch p.GetEncoding() {
	case keyholdv1.Encoding_ENCODING_UNSPECIFIED:
	case keyholdv1.Encoding_ENCODING_JSON:
		e.Encoding = event.JSON
	case keyholdv1.Encoding_ENCODING_PROTO:
		e.Encoding = event.Proto
	default:
		return event.Envelope{}, fmt.Errorf("envelope %q: encoding %d is not known", e.ID, p.GetEncoding())
	}
	switch p.GetLane() {
	case keyholdv1.Lane_LANE_PRIMARY:
		e.Lane = event.Primary
	case keyholdv1.Lane_LANE_BACKFILL:
		e.Lane = event.Backfill
	default:
		return event.Envelope{}, fmt.Errorf("envelope %q: lane %d is not known", e.ID, p.GetLane())
	}
	if p.GetTime() != nil {
		if err := p.GetTime().CheckValid(); err != nil {
			return event.Envelope{}, fmt.Errorf("envelope %q: %w", e.ID, err)
		}
		e.Time = p.GetTime().AsTime()
	}
	return e, nil
}
