package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Audit is an act that was done.
type Audit struct {
	ID      int64              `json:"id"`
	Kind    eventstore.ActKind `json:"kind"`
	Handler string             `json:"handler,omitempty"`
	Key     string             `json:"key,omitempty"`
	At      *Place             `json:"at,omitempty"`  // the event concerned, if one is
	Job     int64              `json:"job,omitempty"` // concerned, if one is
	Actor   string             `json:"actor"`
	Reason  string             `json:"reason,omitempty"`
	Detail  string             `json:"detail"` // what changed, in words
	Time    time.Time          `json:"time"`
}

// AuditQuery selects acts. Zero fields select all.
type AuditQuery struct {
	Handler string
	Key     string
	Cursor  string
	Limit   int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// Audit lists acts, the newest first.
func (d *Desk) Audit(ctx context.Context, q AuditQuery) (Page[Audit], error) {
	var before int64
	p, err := page("audit", q.Limit, q.Cursor, &before)
	if err = d.begin(err); err != nil {
		return Page[Audit]{}, err
	}
	rows, err := d.store.ListActs(ctx, eventstore.ActQuery{Before: before, Name: q.Handler, Key: q.Key, Limit: p.ask()})
	if err != nil { // a name that is not known is none of a fault: it may have been renamed or removed
		return Page[Audit]{}, err
	}
	return pageOf(p, rows, auditOf, func(r eventstore.ActRecord) any { return r.ID }), nil
}

func auditOf(r eventstore.ActRecord) Audit {
	a := Audit{
		ID: r.ID, Kind: r.Kind, Handler: r.Unit.Name, Key: r.Unit.Key, Job: r.Job, Actor: r.Actor, Reason: r.Reason, Detail: r.Detail, Time: r.Time,
	}
	if r.Event.Sequence > 0 {
		at := placeOf(r.Event.Lane, r.Event.Sequence, r.Event.EventID)
		a.At = &at
	}
	return a
}
