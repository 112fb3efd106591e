package redis

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
)

// asRead gives the fields of an entry as Redis gives them back: as text.
func asRead(fields []any) []any {
	read := make([]any, len(fields))
	for i, v := range fields {
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		read[i] = fmt.Sprint(reflect.Indirect(reflect.ValueOf(v)))
	}
	return read
}

// TestEntryComesBackAsItWas for any envelope.
func TestEntryComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 8, -1).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
		want := event.Envelope{
			ID: text.Draw(t, "id"), Type: text.Draw(t, "type"), Version: rapid.IntRange(0, 1<<30).Draw(t, "version"), Encoding: event.Encoding(text.Draw(t, "encoding")),
			Category: "order", Key: "k-1", Lane: event.Lane(rapid.IntRange(0, 1).Draw(t, "lane")), Tenant: text.Draw(t, "tenant"),
			CorrelationID: text.Draw(t, "correlation"), CausationID: text.Draw(t, "causation"), Trace: event.Trace{Parent: text.Draw(t, "trace"), State: text.Draw(t, "state")},
			Stream: event.Stream{Kind: text.Draw(t, "kind"), ID: text.Draw(t, "entity")}, StreamVersion: rapid.Uint64().Draw(t, "number"),
			Sequence: event.Sequence(rapid.Uint64Min(1).Draw(t, "sequence")), StoreID: text.Draw(t, "store"),
		}
		if data := rapid.SliceOf(rapid.Byte()).Draw(t, "data"); len(data) > 0 {
			want.Data = data
		}
		if ms := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "time"); ms != 0 {
			want.Time = time.UnixMilli(ms).UTC()
		}
		fields := encodeEntry(&want)
		if len(fields) == 0 || len(fields)%2 != 0 {
			t.Fatalf("%d values, which Redis refuses", len(fields))
		}
		got, err := decodeEntry(want.Ref(), entryID(want.Sequence), asRead(fields))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

// TestTextThatNoStoreKeepsIsReplaced: not data, which is the codec's business.
func TestTextThatNoStoreKeepsIsReplaced(t *testing.T) {
	t.Parallel()
	got, err := decodeEntry(orders, "3-0", []any{"id", "e\x00\xff", "type", "a.b\xc3", "corr", "\x00", "trace", "ok", "data", "\x00\xff"})
	want := event.Envelope{
		Category: orders.Category, Key: orders.Key, Sequence: 3, ID: "e\uFFFD\uFFFD", Type: "a.b\uFFFD", CorrelationID: "\uFFFD", Trace: event.Trace{Parent: "ok"}, Data: []byte("\x00\xff"),
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestVoidHasNoType(t *testing.T) {
	t.Parallel()
	void := event.Envelope{ID: "e-1", Category: "order", Key: "k-1", Sequence: 3}
	if diff := cmp.Diff([]any{"id", "e-1"}, asRead(encodeEntry(&void))); diff != "" {
		t.Error(diff)
	}
	got, err := decodeEntry(void.Ref(), "3-0", []any{"id", "e-1"})
	if err != nil || !got.Void() {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDataIsTheLastField, as the read script counts on.
func TestDataIsTheLastField(t *testing.T) {
	t.Parallel()
	e := event.Envelope{ID: "e-1", Type: "t", Version: 1, Data: []byte("x"), Tenant: "a", Time: time.UnixMilli(5), Trace: event.Trace{State: "s"}}
	if fields := encodeEntry(&e); fields[len(fields)-2] != fieldData {
		t.Errorf("got %v", fields)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add("1-0", "id", "e-1", "ver", "x")
	f.Add("1-1", "type", "", "time", "99999999999999999999")
	f.Add("18446744073709551616-0", "", "", "num", "-1")
	f.Fuzz(func(t *testing.T, id, a, b, c, d string) {
		got, err := decodeEntry(orders, id, []any{a, b, c, d, "odd"})
		if err != nil {
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", id)) {
				t.Errorf("%v does not name the entry", err)
			}
			return
		}
		if entryID(got.Sequence) != id || got.Sequence == 0 || got.Ref() != orders {
			t.Errorf("entry %q is %+v", id, got)
		}
		fields := asRead(encodeEntry(&got))
		again, err := decodeEntry(orders, id, fields)
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("written again it is another one: %v\n%s", err, diff)
		}
	})
}
