package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyhold/keyhold/event"
)

// Fields of an entry, in their order: first those that many entries have alike, so that the script is told only of the others. One that is empty is left out, and readers pass over those they do not know. Category, key and lane are in the name of the stream, the sequence is in
// the id of the entry. An entry without a type is a void.
const (
	fieldStore       = "store"
	fieldType        = "type"
	fieldVersion     = "ver"
	fieldEncoding    = "enc"
	fieldTenant      = "tenant"
	fieldKind        = "kind"
	fieldID          = "id"
	fieldTime        = "time" // milliseconds since 1970
	fieldEntity      = "entity"
	fieldNumber      = "num" // of the event in its entity's stream
	fieldCorrelation = "corr"
	fieldCausation   = "cause"
	fieldTrace       = "trace"
	fieldTraceState  = "state"
	fieldData        = "data" // the last one, so that its size is found without looking
)

// errNotOurs: an entry was written by somebody who does not keep to docs/wire.md.
var errNotOurs = errors.New("is no entry of Keyhold's: remove it (XDEL), and tell its producer to use docs/wire.md")

// entryID is the id of the entry with that sequence.
func entryID(seq event.Sequence) string { return seq.String() + "-0" }

// sequenceOf takes the id of an entry apart.
func sequenceOf(id string) (event.Sequence, error) {
	number, ok := strings.CutSuffix(id, "-0")
	seq, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || seq == 0 || strconv.FormatUint(seq, 10) != number {
		return 0, fmt.Errorf("entry %q %w", id, errNotOurs)
	}
	return event.Sequence(seq), nil
}

// encodeEntry gives the fields of an entry, and their values, as they follow the id in XADD.
func encodeEntry(e *event.Envelope) []any { return appendEntry(make([]any, 0, 24), e) }

// appendEntry adds them to what is there. Values point into e, which saves a copy of each: nobody may change it until they are sent.
func appendEntry(fields []any, e *event.Envelope) []any {
	before := len(fields)
	fields = appendText(fields, fieldStore, &e.StoreID)
	fields = appendText(fields, fieldType, &e.Type)
	if e.Version != 0 {
		fields = append(fields, fieldVersion, &e.Version)
	}
	fields = appendText(fields, fieldEncoding, (*string)(&e.Encoding))
	fields = appendText(fields, fieldTenant, &e.Tenant)
	fields = appendText(fields, fieldKind, &e.Stream.Kind)
	fields = appendText(fields, fieldID, &e.ID)
	if !e.Time.IsZero() {
		fields = append(fields, fieldTime, e.Time.UnixMilli())
	}
	fields = appendText(fields, fieldEntity, &e.Stream.ID)
	if e.StreamVersion != 0 {
		fields = append(fields, fieldNumber, &e.StreamVersion)
	}
	fields = appendText(fields, fieldCorrelation, &e.CorrelationID)
	fields = appendText(fields, fieldCausation, &e.CausationID)
	fields = appendText(fields, fieldTrace, &e.Trace.Parent)
	fields = appendText(fields, fieldTraceState, &e.Trace.State)
	if len(e.Data) > 0 || len(fields) == before { // Redis has no entry without fields
		fields = append(fields, fieldData, e.Data)
	}
	return fields
}

func appendText(fields []any, name string, value *string) []any {
	if *value == "" {
		return fields
	}
	return append(fields, name, value)
}

// alike reports whether two entries differ in no more than the values from the id on: they have the same fields, and the same values in those before it.
func alike(a, b *event.Envelope) bool {
	return a.StoreID == b.StoreID && a.Type == b.Type && a.Version == b.Version && a.Encoding == b.Encoding && a.Tenant == b.Tenant && a.Stream.Kind == b.Stream.Kind &&
		a.ID != "" && b.ID != "" && a.Time.IsZero() == b.Time.IsZero() && (a.Stream.ID == "") == (b.Stream.ID == "") && (a.StreamVersion == 0) == (b.StreamVersion == 0) &&
		(a.CorrelationID == "") == (b.CorrelationID == "") && (a.CausationID == "") == (b.CausationID == "") &&
		(a.Trace.Parent == "") == (b.Trace.Parent == "") && (a.Trace.State == "") == (b.Trace.State == "") && (len(a.Data) == 0) == (len(b.Data) == 0)
}

// appendValues adds the values from the id on, as appendEntry does.
func appendValues(values []any, e *event.Envelope) []any {
	values = append(values, &e.ID)
	if !e.Time.IsZero() {
		values = append(values, e.Time.UnixMilli())
	}
	if e.Stream.ID != "" {
		values = append(values, &e.Stream.ID)
	}
	if e.StreamVersion != 0 {
		values = append(values, &e.StreamVersion)
	}
	for _, text := range [...]*string{&e.CorrelationID, &e.CausationID, &e.Trace.Parent, &e.Trace.State} {
		if *text != "" {
			values = append(values, text)
		}
	}
	if len(e.Data) > 0 {
		values = append(values, e.Data)
	}
	return values
}

// decodeEntry makes an envelope of an entry of a lane's stream. A value that cannot be read counts as one that is not there: whoever handles the event finds that out, and
// the unit halts before it, where a person sees it. An error is about the id alone: such an entry has no place in the lane.
func decodeEntry(lane event.LaneRef, id string, fields []any) (event.Envelope, error) {
	seq, err := sequenceOf(id)
	if err != nil {
		return event.Envelope{}, fmt.Errorf("%s: %w", lane, err)
	}
	e := event.Envelope{Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq}
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, _ := fields[i+1].(string)
		if name != fieldData && name != fieldTenant { // two tenants must not become one: what nobody can keep as it is is passed on by nobody
			value = plain(value)
		}
		set(&e, name, value)
	}
	return e, nil
}

// plain is a text as every store can keep it. Who writes entries by other programs may put anything into them, and what comes of an event is noted with its id, its type
// and its causes: were those refused, its unit could neither pass it nor halt.
func plain(text string) string {
	if utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

func set(e *event.Envelope, field, value string) {
	switch field {
	case fieldID:
		e.ID = value
	case fieldStore:
		e.StoreID = value
	case fieldType:
		e.Type = value
	case fieldVersion:
		e.Version, _ = strconv.Atoi(value)
	case fieldEncoding:
		e.Encoding = event.Encoding(value)
	case fieldTime:
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			e.Time = time.UnixMilli(ms).UTC()
		}
	case fieldTenant:
		e.Tenant = value
	case fieldKind:
		e.Stream.Kind = value
	case fieldEntity:
		e.Stream.ID = value
	case fieldNumber:
		e.StreamVersion, _ = strconv.ParseUint(value, 10, 64)
	case fieldCorrelation:
		e.CorrelationID = value
	case fieldCausation:
		e.CausationID = value
	case fieldTrace:
		e.Trace.Parent = value
	case fieldTraceState:
		e.Trace.State = value
	case fieldData:
		if value != "" {
			e.Data = []byte(value)
		}
	}
}
