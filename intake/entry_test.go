package intake

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func entryOf(id string, words ...string) *transport.SourceEntry {
	e := &transport.SourceEntry{ID: id}
	for n := 0; n < len(words); n += 2 {
		e.Fields = append(e.Fields, transport.SourceField{Name: words[n], Value: words[n+1]})
	}
	return e
}

func TestAnEntryBecomesARecord(t *testing.T) {
	t.Parallel()
	s := stream{category: "sale", key: "ada", source: "crm", now: now}
	for name, c := range map[string]struct {
		entry *transport.SourceEntry
		known string
		want  event.Envelope
	}{
		"the least": {entryOf("1764000000123-4", "type", "sale.made", "data", `{}`), "1764000000123-4/13458acc7a440986",
			event.Envelope{Type: "sale.made", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Time: time.UnixMilli(1764000000123).UTC()}},
		"all that there can be": {entryOf("7-0", "id", "s-1", "type", "sale.made", "ver", "3", "enc", "proto", "time", "1700000000000", "tenant", "acme", "corr", "c", "cause", "d",
			"trace", "00-1", "state", "a=b", "data", "\x00\xff", "more", "passed over"), "s-1",
			event.Envelope{Type: "sale.made", Version: 3, Encoding: event.Proto, Data: []byte("\x00\xff"), Time: time.UnixMilli(1700000000000).UTC(), Tenant: "acme", CorrelationID: "c",
				CausationID: "d", Trace: event.Trace{Parent: "00-1", State: "a=b"}}},
		"an id that is no time": {entryOf("7-0", "id", "s-1", "type", "sale.made", "data", ""), "s-1",
			event.Envelope{Type: "sale.made", Version: 1, Encoding: event.JSON, Data: []byte{}, Time: now}},
		"of two fields the last": {entryOf("7-0", "id", "s-1", "type", "sale.made", "data", "1", "data", "2"), "s-1",
			event.Envelope{Type: "sale.made", Version: 1, Encoding: event.JSON, Data: []byte("2"), Time: now}},
	} {
		c.want.Category, c.want.Key, c.want.ID = "sale", "ada", "sale/ada/"+c.known
		if c.want.CorrelationID == "" {
			c.want.CorrelationID = c.want.ID
		}
		got := s.take(c.entry)
		if diff := cmp.Diff(c.want, got.record); diff != "" || got.known != c.known {
			t.Errorf("%s: known as %q (-want +got):\n%s", name, got.known, diff)
		}
	}
}

// Events are told by their ids, by handlers that write elsewhere for example: no two may have one, whatever is in keys and in the ids that programs give.
func TestEventsOfDifferentKeysHaveDifferentIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, of := range [][3]string{{"sale", "a", "b/c"}, {"sale", "a/b", "c"}, {"sale/a", "b", "c"}, {"sale", "a%2Fb", "c"}} {
		s := stream{category: of[0], key: of[1], source: "crm", now: now}
		id := s.take(entryOf("7-0", "id", of[2], "type", "sale.made", "data", "1")).record.ID
		if other, taken := seen[id]; taken {
			t.Errorf("%v and %s have the id %q", of, other, id)
		}
		seen[id] = strings.Join(of[:], " ")
	}
}

func TestWhatIsNoEventSaysWhy(t *testing.T) {
	t.Parallel()
	s := stream{category: "sale", key: "ada", source: "crm", now: now, check: func(e *event.Envelope) error {
		if string(e.Data) == "refused" {
			return errors.New("its key is another")
		}
		return nil
	}}
	for why, fields := range map[string][]string{
		"it has no field type; it has no field data":                            {},
		"it has no field type":                                                  {"data", "{}"},
		"it has no field data":                                                  {"type", "sale.made"},
		`its field ver is "x": it must be a number from 1`:                      {"type", "sale.made", "data", "{}", "ver", "x"},
		`its field ver is "0": it must be a number from 1`:                      {"type", "sale.made", "data", "{}", "ver", "0"},
		"its field ver is 99999999999: at most 1073741824 is a version":         {"type", "sale.made", "data", "{}", "ver", "99999999999"},
		`its field enc is "xml": it must be json or proto`:                      {"type", "sale.made", "data", "{}", "enc", "xml"},
		`its field time is "soon": it must be a number from 0`:                  {"type", "sale.made", "data", "{}", "time", "soon"},
		"its field time is 999999999999999: it must be milliseconds since 1970": {"type", "sale.made", "data", "{}", "time", "999999999999999"},
		"its field id has a control character":                                  {"type", "sale.made", "data", "{}", "id", "a\x00b"},
		"its field corr is not valid UTF-8":                                     {"type", "sale.made", "data", "{}", "corr", "\xff"},
		"its field id is 256 bytes long, at most 255 are kept":                  {"type", "sale.made", "data", "{}", "id", strings.Repeat("x", 256)},
		"its type is one of Keyhold's own":                                      {"type", event.Malformed, "data", "{}"},
		"its key is another":                                                    {"type", "sale.made", "data", "refused"},
	} {
		got := s.take(entryOf("7-0", fields...))
		if got.record.Type != event.Malformed || got.record.ID != "sale/ada/"+got.known {
			t.Errorf("%s: %+v", why, got.record)
		}
		err := event.MalformedIn(&got.record)
		if err.Why != why || err.Entry != "7-0" || err.Stream != "crm:ada" {
			t.Errorf("got %+v, want %q", err, why)
		}
	}
	large := s.take(entryOf("7-0", "type", "sale.made", "data", strings.Repeat("x", event.MaxData+1)))
	if large.record.Type != event.Malformed || event.CheckData("", large.record.Data) != nil {
		t.Errorf("a large one: %s, %d bytes", large.record.Type, len(large.record.Data))
	}
}

func TestEntriesWithoutAnIDAreToldByPlaceAndBody(t *testing.T) {
	t.Parallel()
	s := stream{category: "sale", key: "ada", source: "crm", now: now}
	ids := map[string]bool{}
	for _, e := range []*transport.SourceEntry{
		entryOf("7-0", "type", "a", "data", "bc"), entryOf("7-0", "type", "ab", "data", "c"), entryOf("8-0", "type", "a", "data", "bc"), entryOf("7-0", "type", "a", "data", "bc"),
	} {
		ids[s.take(e).known] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d ids of three entries: %v", len(ids), ids)
	}
}

// Whatever is written becomes a record that every store can keep.
func FuzzEntry(f *testing.F) {
	f.Add(uint64(1), "sale.made", "{}", "id", "s-1")
	f.Add(uint64(1764000000123), "", "\x00", "ver", "1")
	f.Add(uint64(0), "a:b", "\xff", "trace", "\n")
	f.Fuzz(func(t *testing.T, id uint64, typ, data, field, value string) {
		s := stream{category: "sale", key: "ada", source: "crm", now: now}
		got := s.take(entryOf(strconv.FormatUint(id, 10)+"-0", "type", typ, "data", data, field, value))
		e := &got.record
		for _, text := range []string{e.ID, e.Type, string(e.Encoding), e.Tenant, e.CorrelationID, e.CausationID, e.Trace.Parent, e.Trace.State} {
			if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
				t.Errorf("%q of %+v", text, e)
			}
		}
		if e.Type == "" || e.Version < 1 || got.known == "" || event.CheckData(e.Type, e.Data) != nil {
			t.Errorf("%+v", e)
		}
		if e.Type == event.Malformed && !json.Valid(e.Data) {
			t.Errorf("data of %+v", e)
		}
	})
}
