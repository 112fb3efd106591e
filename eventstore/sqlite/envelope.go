package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keyhold/keyhold/event"
)

// noContext is for queries on the writer's connection, which nothing interrupts.
var noContext = context.Background()

// millis is how times are kept, and fromMillis the way back.
func millis(t time.Time) int64      { return t.UnixMilli() }
func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// envelopeHead is what scanEnvelope reads, without the data: of the log as l and its lanes as n.
const envelopeHead = `n.category, n.key, n.lane, l.sequence, l.void, l.id, l.type, l.version, l.encoding, l.time,
	coalesce(l.stream_kind, ''), coalesce(l.stream_id, ''), coalesce(l.stream_version, 0),
	coalesce(l.tenant, ''), coalesce(l.correlation, ''), coalesce(l.causation, ''), coalesce(l.trace_parent, ''), coalesce(l.trace_state, '')`

// envelopeColumns are all that scanEnvelope reads.
const envelopeColumns = envelopeHead + `, l.data`

// scanEnvelope reads a row that begins with envelopeColumns; what follows them goes into more.
func scanEnvelope(rows *sql.Rows, storeID string, more ...any) (e event.Envelope, void bool, err error) {
	var ms int64
	err = rows.Scan(append([]any{
		&e.Category, &e.Key, &e.Lane, &e.Sequence, &void, &e.ID, &e.Type, &e.Version, &e.Encoding, &ms,
		&e.Stream.Kind, &e.Stream.ID, &e.StreamVersion,
		&e.Tenant, &e.CorrelationID, &e.CausationID, &e.Trace.Parent, &e.Trace.State, &e.Data,
	}, more...)...)
	e.Time, e.StoreID = fromMillis(ms), storeID
	return e, void, err
}

// emptied is the void that a lane shows in place of an abandoned record.
func emptied(e event.Envelope) event.Envelope {
	return event.Envelope{
		ID: e.ID, Category: e.Category, Key: e.Key, Lane: e.Lane, Time: e.Time,
		Stream: e.Stream, StreamVersion: e.StreamVersion, Sequence: e.Sequence, StoreID: e.StoreID,
	}
}
