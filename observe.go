package keyhold

import (
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// observer logs what an operator must know, one line each, and passes everything on to Config.Observer.
func (a *App) observer() actors.Observer {
	log, next := a.cfg.Logger, a.cfg.Observer
	o := next
	o.Halted = func(h eventstore.Halt) {
		log.Error("halted: nothing later of this key is applied until the halt is lifted",
			"unit", h.Unit, "lane", h.Lane, "sequence", h.Sequence, "event", h.EventID, "type", h.EventType,
			"attempts", h.Attempts, "reason", h.Reason, "error", h.Error)
		call(next.Halted, h)
	}
	o.Resumed = func(u event.Unit) {
		log.Info("resumed", "unit", u)
		call(next.Resumed, u)
	}
	o.DeadLettered = func(d eventstore.Dead) {
		log.Error("set aside as a dead letter", "unit", d.Unit, "lane", d.Lane, "sequence", d.Sequence, "event", d.EventID,
			"type", d.Type, "attempts", d.Attempts, "reason", d.Reason, "error", d.Error)
		call(next.DeadLettered, d)
	}
	o.Retried = func(u event.Unit, e *event.Envelope, attempt int, err error) {
		log.Warn("attempt failed", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "event", e.ID, "type", e.Type, "attempt", attempt, "error", err)
		if next.Retried != nil {
			next.Retried(u, e, attempt, err)
		}
	}
	o.Rejected = func(u event.Unit, e *event.Envelope, err error) {
		log.Info("sent command was rejected", "unit", u, "event", e.ID, "type", e.Type, "error", err)
		if next.Rejected != nil {
			next.Rejected(u, e, err)
		}
	}
	o.WaitsForType = func(u event.Unit, e *event.Envelope) {
		log.Error("waits for a newer program: this one does not know the type of the next event", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "type", e.Type)
		if next.WaitsForType != nil {
			next.WaitsForType(u, e)
		}
	}
	o.CommitFailed = func(u event.Unit, err error) {
		log.Warn("commit failed: the unit reads its state again", "unit", u, "error", err)
		if next.CommitFailed != nil {
			next.CommitFailed(u, err)
		}
	}
	o.Panicked = func(u event.Unit, p *actors.PanicError) {
		log.Error("behavior panicked", "unit", u, "panic", p.Value, "stack", p.Stack)
		if next.Panicked != nil {
			next.Panicked(u, p)
		}
	}
	o.Overdue = func(u event.Unit, d time.Duration) {
		log.Error("behavior ignores its timeout: its key waits until it returns", "unit", u, "for", d)
		if next.Overdue != nil {
			next.Overdue(u, d)
		}
	}
	return o
}

func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

func (a *App) storeNotice(n eventstore.Notice) {
	a.cfg.Logger.Warn("store: "+n.What, "who", n.Who, "took", n.Took, "error", n.Error)
}

func (a *App) transportFault(err error) {
	if err != nil {
		a.cfg.Logger.Warn("transport: will be delivered later", "error", err)
	}
}
