package intake

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// The fields of an entry that are read; others are passed over. They are called as those of Keyhold's own entries.
const (
	fieldID          = "id"
	fieldType        = "type"
	fieldVersion     = "ver"
	fieldEncoding    = "enc"
	fieldTime        = "time"
	fieldTenant      = "tenant"
	fieldCorrelation = "corr"
	fieldCausation   = "cause"
	fieldTrace       = "trace"
	fieldTraceState  = "state"
	fieldData        = "data"
)

// maxText is how long texts may be that are not data.
const maxText = 512

// taken is an entry as it is taken in: a record, and the id by which it is known when it comes again.
type taken struct {
	record event.Envelope
	known  string
}

// stream is where entries are from and go to.
type stream struct {
	category, key, source string
	now                   time.Time
	check                 func(*event.Envelope) error // of type, encoding, data and key; may be nil
}

// unslashed has a name without slashes, and no two names alike: else an event of the key a/b would have the id that another of the key a has, to whoever tells events by their ids.
var unslashed = strings.NewReplacer("%", "%25", "/", "%2F")

// take makes a record of an entry, one of type [event.Malformed] where it is no event.
func (s *stream) take(e *transport.SourceEntry) taken {
	fields := make(map[string]string, len(e.Fields))
	for _, f := range e.Fields {
		fields[f.Name] = f.Value
	}
	record := event.Envelope{Category: s.category, Key: s.key, Time: s.time(e.ID)}
	id, err := s.read(&record, fields)
	if id == "" { // a program that gives its events no ids has only these to tell them by
		id = e.ID + "/" + sumOf(e)
	}
	record.ID = unslashed.Replace(s.category) + "/" + unslashed.Replace(s.key) + "/" + id
	if err != nil {
		record = event.Envelope{ID: record.ID, Category: s.category, Key: s.key, Time: record.Time, Type: event.Malformed, Version: 1, Encoding: event.JSON, Data: s.malformed(e, err)}
	}
	if record.CorrelationID == "" {
		record.CorrelationID = record.ID
	}
	return taken{record: record, known: id}
}

// read fills in what the fields say, and gives the event's id if it has one that can be used.
func (s *stream) read(record *event.Envelope, fields map[string]string) (id string, err error) {
	var faults []error
	text := func(field string, limit int) string {
		v := fields[field]
		if reason := unfit(v, limit); reason != "" {
			faults = append(faults, fmt.Errorf("its field %s %s", field, reason))
			return ""
		}
		return v
	}
	number := func(field string, least, otherwise int64) int64 {
		v, there := fields[field]
		if !there {
			return otherwise
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least {
			faults = append(faults, fmt.Errorf("its field %s is %s: it must be a number from %d", field, quoted(v), least))
			return otherwise
		}
		return n
	}
	id = text(fieldID, event.MaxKey)
	record.Type = text(fieldType, event.MaxKey)
	if record.Type != "" {
		if err := event.CheckName(record.Type); err != nil {
			faults = append(faults, fmt.Errorf("its field type: %w", err))
		}
	} else if len(faults) == 0 {
		faults = append(faults, errors.New("it has no field type"))
	}
	if record.Type == event.Malformed {
		faults = append(faults, errors.New("its type is one of Keyhold's own"))
	}
	const highest = 1 << 30
	if version := number(fieldVersion, 1, 1); version <= highest {
		record.Version = int(version)
	} else {
		faults = append(faults, fmt.Errorf("its field ver is %d: at most %d is a version", version, highest))
	}
	switch enc := event.Encoding(text(fieldEncoding, maxText)); enc {
	case "", event.JSON, event.Proto:
		record.Encoding = enc
	default:
		faults = append(faults, fmt.Errorf("its field enc is %s: it must be json or proto", quoted(string(enc))))
	}
	if ms := number(fieldTime, 0, -1); ms > lastMilli {
		faults = append(faults, fmt.Errorf("its field time is %d: it must be milliseconds since 1970", ms))
	} else if ms >= 0 {
		record.Time = time.UnixMilli(ms).UTC()
	}
	record.Tenant = text(fieldTenant, maxText)
	record.CorrelationID, record.CausationID = text(fieldCorrelation, maxText), text(fieldCausation, maxText)
	record.Trace = event.Trace{Parent: text(fieldTrace, maxText), State: text(fieldTraceState, maxText)}
	data, there := fields[fieldData]
	record.Data = []byte(data)
	if !there {
		faults = append(faults, errors.New("it has no field data"))
	} else if err := event.CheckData(record.Type, record.Data); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 && s.check != nil {
		if err := s.check(record); err != nil {
			faults = append(faults, err)
		}
	}
	if record.Encoding == "" {
		record.Encoding = event.JSON
	}
	return id, join(faults)
}

// lastMilli is the last millisecond that every store keeps: the end of the year 9999.
const lastMilli = 253402300799999

// time is when an entry was written: ids that the broker made begin with it, others are of no time.
func (s *stream) time(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && isTime(id) && ms <= s.now.Add(24*time.Hour).UnixMilli() {
		return time.UnixMilli(ms).UTC()
	}
	return s.now.UTC().Truncate(time.Millisecond)
}

// unfit says why a text cannot be kept, "" if it can.
func unfit(s string, limit int) string {
	switch {
	case len(s) > limit:
		return fmt.Sprintf("is %d bytes long, at most %d are kept", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character"
	}
	return ""
}

// malformed is the data of a record that stands for an entry that is no event.
func (s *stream) malformed(e *transport.SourceEntry, why error) []byte {
	const most = 64 << 10 // of a field, or of them all: people are to recognize it
	m := event.MalformedEntry{Stream: s.source + ":" + s.key, Entry: e.ID, Why: clipped(why.Error(), most), Fields: map[string]string{}}
	room := most
	for _, f := range e.Fields {
		name, value := clipped(f.Name, room), ""
		room -= len(name)
		value = clipped(f.Value, room)
		if room -= len(value); room > 0 {
			m.Fields[name] = value
		}
	}
	data, _ := json.Marshal(m) // texts alone: never an error
	return data
}

func clipped(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), max(limit, 0))], "\uFFFD")
}

func quoted(s string) string { return strconv.Quote(clipped(s, 64)) }

func join(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

// sumOf is short, and another one for another body.
func sumOf(e *transport.SourceEntry) string {
	sum := sha256.New()
	for _, f := range e.Fields {
		fmt.Fprintf(sum, "%d:%s%d:%s", len(f.Name), f.Name, len(f.Value), f.Value)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
