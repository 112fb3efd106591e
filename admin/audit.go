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
	return Page[Audit]{}, errUnbuilt
}
