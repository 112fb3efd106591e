package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

// w3c is how a trace travels in an envelope, whatever the process uses on its other wires.
var w3c propagation.TraceContext

func (t *Telemetry) begin(next func(context.Context, *actors.Work) (context.Context, event.Trace)) func(context.Context, *actors.Work) (context.Context, event.Trace) {
	if t.noTraces {
		return next
	}
	return func(ctx context.Context, w *actors.Work) (context.Context, event.Trace) {
		if next != nil {
			if with, _ := next(ctx, w); with != nil {
				ctx = with
			}
		}
		ctx, span := t.tracer.Start(within(ctx, w), name(w), trace.WithSpanKind(kind(w)))
		w.Keep(span)
		if span.IsRecording() {
			span.SetAttributes(attributes(w)...)
		}
		if !span.SpanContext().IsValid() {
			return ctx, event.Trace{}
		}
		return ctx, carried(ctx)
	}
}

func (t *Telemetry) end(next func(*actors.Work)) func(*actors.Work) {
	if t.noTraces && t.counts == nil {
		return next
	}
	return func(w *actors.Work) {
		if t.counts != nil {
			t.counts.work(w)
		}
		if span, ok := w.Kept().(trace.Span); ok {
			finish(span, w)
		}
		if next != nil {
			next(w)
		}
	}
}

func finish(span trace.Span, w *actors.Work) {
	if span.IsRecording() {
		span.SetAttributes(attribute.String("keyhold.outcome", string(w.Outcome)), attribute.Int("keyhold.emitted", w.Emitted))
		if w.Err != nil && w.Outcome != actors.OutcomeRejected { // a no of the business is no failure
			span.RecordError(w.Err)
			span.SetStatus(codes.Error, string(w.Outcome))
			var p *actors.PanicError
			if errors.As(w.Err, &p) {
				span.SetAttributes(attribute.String("exception.stacktrace", p.Stack))
			}
		}
	}
	span.End()
}

// within makes ctx part of the trace that led to the work: that of the event that is applied, wherever that happens; for what is
// asked the span that ctx has already, that of whoever asks.
func within(ctx context.Context, w *actors.Work) context.Context {
	if w.Trace.Parent == "" || w.Event == nil && trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{"traceparent": w.Trace.Parent, "tracestate": w.Trace.State})
}

// carried gives the trace context of ctx as it travels.
func carried(ctx context.Context) event.Trace {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return event.Trace{Parent: carrier["traceparent"], State: carrier["tracestate"]}
}

func (t *Telemetry) traceOf(next func(context.Context) event.Trace) func(context.Context) event.Trace {
	if t.noTraces {
		return next
	}
	return func(ctx context.Context) event.Trace {
		if trace.SpanContextFromContext(ctx).IsValid() {
			return carried(ctx)
		}
		if next != nil {
			return next(ctx)
		}
		return event.Trace{}
	}
}

func kind(w *actors.Work) trace.SpanKind {
	if w.Event != nil {
		return trace.SpanKindConsumer
	}
	return trace.SpanKindInternal
}

func attributes(w *actors.Work) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("keyhold.handler", w.Unit.Name), attribute.String("keyhold.key", w.Unit.Key),
		attribute.String("keyhold.type", w.Type), attribute.Int("keyhold.attempt", w.Attempt),
	}
	if e := w.Event; e != nil {
		all = append(all, attribute.String("keyhold.category", e.Category), attribute.Int64("keyhold.sequence", int64(e.Sequence)),
			attribute.String("messaging.message.id", e.ID), attribute.String("keyhold.correlation_id", e.CorrelationID))
	}
	return all
}
