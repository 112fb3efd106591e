package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// counts are the instruments that are fed as things happen.
type counts struct {
	duration metric.Float64Histogram
	attempts metric.Int64Histogram

	retries, halts, resumes, parked, dead, unparked, replayed, asides, suspects, panics, failures, overdue, troubles metric.Int64Counter

	projectionRetries, projectionHalts metric.Int64Counter

	nodes nodeCounts

	labels sync.Map // workLabels -> metric.MeasurementOption: made once, as a unit of work must cost next to nothing
}

// workLabels are those of a unit of work: as many as handlers, uses and outcomes.
type workLabels struct {
	handler string
	use     actors.Use
	outcome actors.Outcome
}

func newCounts(m metric.Meter) (*counts, error) {
	c := &counts{}
	var faults error
	counter := func(to *metric.Int64Counter, name, unit, what string) {
		var err error
		*to, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		faults = errors.Join(faults, err)
	}
	counter(&c.retries, "keyhold.retries", "{attempt}", "Attempts that failed and were made again.")
	counter(&c.halts, "keyhold.halts", "{unit}", "Units that stopped before an event that cannot be applied.")
	counter(&c.resumes, "keyhold.resumes", "{unit}", "Units that a person set going again.")
	counter(&c.parked, "keyhold.parked", "{event}", "Events that could not be applied and were parked.")
	counter(&c.dead, "keyhold.dead_letters", "{event}", "Events set aside as dead letters.")
	counter(&c.replayed, "keyhold.replayed", "{event}", "Dead letters that were applied after all.")
	counter(&c.unparked, "keyhold.unparked", "{unit}", "Times that the last parked event of a key was applied.")
	counter(&c.asides, "keyhold.aside_failures", "{event}", "Parked events and dead letters that were tried again in vain.")
	counter(&c.suspects, "keyhold.suspects", "{event}", "Events begun again after the process had died, perhaps of them.")
	counter(&c.panics, "keyhold.panics", "{panic}", "Panics of behaviors.")
	counter(&c.failures, "keyhold.commit_failures", "{commit}", "Activations dropped because a commit was refused or its outcome is not known.")
	counter(&c.overdue, "keyhold.overdue", "{call}", "Behaviors that ignored the end of their context.")
	counter(&c.troubles, "keyhold.troubles", "{call}", "Calls of store or transport that did not work out.")
	counter(&c.projectionRetries, "keyhold.projection.retries", "{attempt}", "Attempts of projections that failed and were made again.")
	counter(&c.projectionHalts, "keyhold.projection.halts", "{build}", "Times that a projection stopped at what it cannot apply.")
	c.nodes.instruments(counter)
	var err error
	c.duration, err = m.Float64Histogram("keyhold.work.duration", metric.WithUnit("s"),
		metric.WithDescription("From the call of a behavior to the outcome of its commit."),
		metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	faults = errors.Join(faults, err)
	c.attempts, err = m.Int64Histogram("keyhold.work.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that an event took, when it took more than one."),
		metric.WithExplicitBucketBoundaries(2, 3, 5, 10, 20, 50))
	return c, errors.Join(faults, err)
}

func (c *counts) work(w *actors.Work) {
	key := workLabels{w.Unit.Name, w.Use, w.Outcome}
	labels, known := c.labels.Load(key)
	if !known {
		labels, _ = c.labels.LoadOrStore(key, metric.WithAttributeSet(attribute.NewSet(
			attribute.String("handler", w.Unit.Name), attribute.String("use", use(w)), attribute.String("outcome", string(w.Outcome)))))
	}
	c.duration.Record(context.Background(), w.Took.Seconds(), labels.(metric.MeasurementOption))
	if w.Event != nil && w.Attempt > 1 && w.Outcome == actors.OutcomeCommitted {
		c.attempts.Record(context.Background(), int64(w.Attempt), handler(w.Unit))
	}
}

func handler(u event.Unit) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("handler", u.Name)))
}

// one counts something that happened to a unit.
func one(c metric.Int64Counter, u event.Unit, more ...attribute.KeyValue) {
	labels := append([]attribute.KeyValue{attribute.String("handler", u.Name)}, more...)
	c.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(labels...)))
}

// observe has o count what happens before it is passed on to next.
func (c *counts) observe(o, next *actors.Observer) {
	o.Retried = func(u event.Unit, e *event.Envelope, attempt int, err error) {
		one(c.retries, u)
		if next.Retried != nil {
			next.Retried(u, e, attempt, err)
		}
	}
	o.Halted = func(h eventstore.Halt) {
		one(c.halts, h.Unit, attribute.String("reason", reason(h.Reason)))
		call(next.Halted, h)
	}
	o.Resumed = func(u event.Unit) {
		one(c.resumes, u)
		call(next.Resumed, u)
	}
	o.DeadLettered = func(d eventstore.Dead) {
		one(c.dead, d.Unit)
		call(next.DeadLettered, d)
	}
	o.Parked = func(p eventstore.Parked) {
		one(c.parked, p.Unit)
		call(next.Parked, p)
	}
	o.Unparked = func(u event.Unit, category string) {
		one(c.unparked, u)
		call2(next.Unparked, u, category)
	}
	o.Replayed = func(u event.Unit, e *event.Envelope) {
		one(c.replayed, u)
		call2(next.Replayed, u, e)
	}
	o.AsideFailed = func(u event.Unit, e *event.Envelope, err error) {
		one(c.asides, u)
		if next.AsideFailed != nil {
			next.AsideFailed(u, e, err)
		}
	}
	o.Suspected = func(u event.Unit, e *event.Envelope, suspicions int, alone bool) {
		one(c.suspects, u)
		if next.Suspected != nil {
			next.Suspected(u, e, suspicions, alone)
		}
	}
	o.Panicked = func(u event.Unit, p *actors.PanicError) {
		one(c.panics, u)
		call2(next.Panicked, u, p)
	}
	o.CommitFailed = func(u event.Unit, err error) {
		one(c.failures, u)
		call2(next.CommitFailed, u, err)
	}
	o.Overdue = func(u event.Unit, d time.Duration) {
		one(c.overdue, u)
		call2(next.Overdue, u, d)
	}
	o.Trouble = func(u event.Unit, what string, err error) {
		c.troubles.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(attribute.String("what", what))))
		if next.Trouble != nil {
			next.Trouble(u, what, err)
		}
	}
}

// reason gives the reason of a halt as a label: those that the framework gives, and one for all others.
func reason(r string) string {
	switch r {
	case "retries exhausted", "poison", "undecodable", "missing", "rejected", "not worth a retry", "too many parked", "crashed the process", "the store has no SQL":
		return r
	}
	return "other"
}

func call[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

func call2[A, B any](f func(A, B), a A, b B) {
	if f != nil {
		f(a, b)
	}
}
