package keyhold

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// observer logs what happens to units, one line each, and passes everything on to Config.Observer.
func (a *App) observer() actors.Observer {
	log, next := a.cfg.Logger, a.cfg.Observer
	o := a.routine()
	a.observeAsides(&o)
	o.Rejected = func(u event.Unit, e *event.Envelope, err error) {
		log.Info("sent command was rejected", "unit", u, "event", e.ID, "type", e.Type, "error", err)
		if next.Rejected != nil {
			next.Rejected(u, e, err)
		}
	}
	o.Retried = func(u event.Unit, e *event.Envelope, attempt int, err error) {
		log.Warn("attempt failed", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "event", e.ID, "type", e.Type, "attempt", attempt, "error", err)
		if next.Retried != nil {
			next.Retried(u, e, attempt, err)
		}
	}
	o.Halted = func(h eventstore.Halt) {
		log.Error("halted: nothing later of this key is applied; mend the cause, then have it tried again",
			"unit", h.Unit, "lane", h.Lane, "sequence", h.Sequence, "event", h.EventID, "type", h.EventType,
			"attempts", h.Attempts, "reason", h.Reason, "error", h.Error, "try", why(h.Unit, h.Lane.Category))
		call(next.Halted, h)
	}
	o.DeadLettered = func(d eventstore.Dead) {
		log.Error("set aside as a dead letter", "unit", d.Unit, "lane", d.Lane, "sequence", d.Sequence, "event", d.EventID,
			"type", d.Type, "attempts", d.Attempts, "reason", d.Reason, "error", d.Error, "try", admin.CommandLine("keyhold", "dlq ls", nil, d.Unit.Name))
		call(next.DeadLettered, d)
	}
	o.WaitsForType = func(u event.Unit, e *event.Envelope) {
		log.Error("waits for a newer program: this one does not know the type of the next event", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "type", e.Type)
		call2(next.WaitsForType, u, e)
	}
	o.CommitFailed = func(u event.Unit, err error) {
		log.Warn("commit or reading failed: the unit begins anew from what is committed", "unit", u, "error", err)
		call2(next.CommitFailed, u, err)
	}
	o.TimerFailed = func(u event.Unit, name string, err error) {
		log.Error("timer failed: OnTimer is not called for it again", "unit", u, "timer", name, "error", err)
		if next.TimerFailed != nil {
			next.TimerFailed(u, name, err)
		}
	}
	o.Panicked = func(u event.Unit, p *actors.PanicError) {
		log.Error("behavior panicked", "unit", u, "panic", p.Value, "stack", p.Stack)
		call2(next.Panicked, u, p)
	}
	o.Overdue = func(u event.Unit, d time.Duration) {
		log.Error("behavior ignores its timeout: its key waits until it returns", "unit", u, "for", d)
		call2(next.Overdue, u, d)
	}
	o.LeaseRefused = func(u event.Unit, most time.Duration) {
		log.Debug("another node has the unit", "unit", u, "for_at_most", most)
		call2(next.LeaseRefused, u, most)
	}
	leases := new(rarely)
	o.LeaseLost = func(u event.Unit, why string) {
		if unsaid, now := leases.due(why); now {
			logLeaseLost(log, u, why, unsaid)
		}
		call2(next.LeaseLost, u, why)
	}
	o.Misused = func(u event.Unit, err error) { call2(next.Misused, u, err) } // the runtime has logged it
	o.Begin, o.End, o.Trace = next.Begin, next.End, next.Trace
	troubles := new(rarely)
	o.Trouble = func(u event.Unit, what string, err error) {
		if unsaid, now := troubles.due(what); now {
			attrs := []any{"unit", u, "what", what}
			if u.IsZero() {
				attrs = attrs[2:]
			}
			if unsaid > 0 {
				attrs = append(attrs, "unsaid", unsaid)
			}
			log.Warn("in trouble: the unit goes on trying", withError(attrs, err)...)
		}
		if next.Trouble != nil {
			next.Trouble(u, what, err)
		}
	}
	return o
}

// logLeaseLost warns of the first in a minute: what goes wrong for one unit does so for many.
func logLeaseLost(log *slog.Logger, u event.Unit, why string, unsaid int) {
	said := "lost the lease of a unit: another node may have it, and what its behavior does meanwhile is not committed; if that happens often, this process pauses, or " +
		"reaches the broker too slowly, for its TTL"
	if why == "host was suspended" {
		said = "this host stood still, as a machine that is suspended or a container that is paused: its units are other nodes' now, and what their behaviors did meanwhile is not committed"
	}
	log.Warn(said, "unit", u, "why", why, "unsaid", unsaid)
}

// observeAsides is the part of the observer that tells of what is set aside, and of what may have ended the process.
func (a *App) observeAsides(o *actors.Observer) {
	log, next := a.cfg.Logger, a.cfg.Observer
	o.Parked = func(p eventstore.Parked) {
		log.Error("set aside, and with it all that comes after it in its category; mend the cause, then have the key try again",
			"unit", p.Unit, "lane", p.Lane, "sequence", p.Sequence, "event", p.EventID, "type", p.Type,
			"attempts", p.Attempts, "reason", p.Reason, "error", p.Error, "try", why(p.Unit, p.Lane.Category))
		call(next.Parked, p)
	}
	o.Unparked = func(u event.Unit, category string) {
		log.Info("all that was set aside is through", "unit", u, "category", category)
		call2(next.Unparked, u, category)
	}
	o.Replayed = func(u event.Unit, e *event.Envelope) {
		log.Info("dead letter was applied after all", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "event", e.ID, "type", e.Type)
		call2(next.Replayed, u, e)
	}
	o.AsideFailed = func(u event.Unit, e *event.Envelope, err error) {
		log.Error("what was set aside failed again, and stays where it is", "unit", u, "lane", e.Ref(), "sequence", e.Sequence,
			"event", e.ID, "type", e.Type, "error", err, "try", why(u, e.Category))
		if next.AsideFailed != nil {
			next.AsideFailed(u, e, err)
		}
	}
	o.Suspected = func(u event.Unit, e *event.Envelope, suspicions int, alone bool) {
		level := slog.LevelDebug // after a crash this goes for the next event of every key that has something to do: most are innocent
		if suspicions > 1 {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "the process may have died of this event: it is tried with care", "unit", u, "lane", e.Ref(), "sequence", e.Sequence,
			"event", e.ID, "type", e.Type, "suspicions", suspicions, "alone", alone, "try", why(u, e.Category))
		if next.Suspected != nil {
			next.Suspected(u, e, suspicions, alone)
		}
	}
	o.Paused = func(u event.Unit) {
		log.Info("paused by a person: it reads no further until it is resumed", "unit", u)
		call(next.Paused, u)
	}
}

// routine is the part of the observer that tells nothing an operator must know.
func (a *App) routine() actors.Observer {
	log, next := a.cfg.Logger, a.cfg.Observer
	debug := func() bool { return log.Enabled(context.Background(), slog.LevelDebug) }
	return actors.Observer{
		Activated: func(u event.Unit) {
			if debug() {
				log.Debug("activated", "unit", u)
			}
			call(next.Activated, u)
		},
		Passivated: func(u event.Unit) {
			if debug() {
				log.Debug("passivated", "unit", u)
			}
			call(next.Passivated, u)
		},
		Applied: func(u event.Unit, e *event.Envelope) {
			if debug() {
				log.Debug("applied", "unit", u, "lane", e.Ref(), "sequence", e.Sequence, "event", e.ID, "type", e.Type)
			}
			call2(next.Applied, u, e)
		},
		Resumed: func(u event.Unit) {
			log.Info("resumed", "unit", u)
			call(next.Resumed, u)
		},
	}
}

func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

func call2[T, V any](f func(T, V), t T, v V) {
	if f != nil {
		f(t, v)
	}
}

// rarely lets one thing of a kind through in each minute. What keeps many units from their work, a store that does not answer for
// instance, each of them tells again and again.
type rarely struct {
	mu struct {
		sync.Mutex
		kinds map[string]*rare
	}
}

type rare struct {
	next   time.Time // not before that
	unsaid int
}

// due reports whether to let this one through, and then how many were held back since the one before.
func (r *rarely) due(kind string) (unsaid int, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.mu.kinds[kind]
	if k == nil {
		if r.mu.kinds == nil {
			r.mu.kinds = map[string]*rare{}
		}
		k = new(rare)
		r.mu.kinds[kind] = k
	}
	t := time.Now()
	if t.Before(k.next) {
		k.unsaid++
		return 0, false
	}
	unsaid = k.unsaid
	*k = rare{next: t.Add(time.Minute)}
	return unsaid, true
}

func (a *App) storeNotice(n eventstore.Notice) {
	level := slog.LevelWarn
	if n.Routine {
		level = slog.LevelInfo
	}
	var attrs []any
	if n.Who != "" {
		attrs = append(attrs, "who", n.Who)
	}
	if n.Took != 0 {
		attrs = append(attrs, "took", n.Took)
	}
	a.cfg.Logger.Log(context.Background(), level, "store: "+n.What, withError(attrs, n.Error)...)
}

func withError(attrs []any, err error) []any {
	if err == nil {
		return attrs
	}
	return append(attrs, "error", err)
}

func (a *App) transportFault(err error) {
	if err != nil {
		a.cfg.Logger.Warn("transport: will be delivered later", "error", err)
	}
}
