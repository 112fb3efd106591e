package redis

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// drawEntry gives entries of which many have much alike, and some what a script may take for something else.
func drawEntry(t *rapid.T, lane event.LaneRef, seq event.Sequence) event.Envelope {
	some := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	e := event.Envelope{
		Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq,
		ID: some("id", fmt.Sprint("e-", lane.Key, seq), fmt.Sprint("f-", lane.Key, seq), "id", "-3", "1 2", ""), StoreID: some("store", "s", "s", "t"), Type: some("type", "a", "a", "a", "b", "MAXLEN", ""),
		Version: rapid.SampledFrom([]int{1, 1, 1, 2, 0}).Draw(t, "version"), Encoding: event.Encoding(some("encoding", "json", "json", "proto")),
		Tenant: some("tenant", "", "", "acme", "-1", "日本\n"), Stream: event.Stream{Kind: some("kind", "k", "k", "l"), ID: some("entity", "1", "2", "3", "")},
		StreamVersion: rapid.SampledFrom([]uint64{0, 1, 2, 3}).Draw(t, "number"), CorrelationID: some("correlation", "c", "d", "type", "1e5", ""), CausationID: some("causation", "c", "d", ""),
		Trace: event.Trace{Parent: some("trace", "", "p", "q"), State: some("state", "", "", "x")},
	}
	if data := some("data", "1", "22", "333", "-5", "\xff\xfe\x00\n", "\r\n$3\r\n", strings.Repeat("q", 40_000), ""); data != "" {
		e.Data = []byte(data)
	}
	if ms := rapid.Int64Range(0, 3).Draw(t, "time"); ms != 0 {
		e.Time = time.UnixMilli(ms).UTC()
	}
	return e
}

// drawAfter gives an entry that has much of one before it.
func drawAfter(t *rapid.T, before event.Envelope, lane event.LaneRef, seq event.Sequence) event.Envelope {
	e, other := before, drawEntry(t, lane, seq)
	e.Category, e.Key, e.Lane, e.Sequence = lane.Category, lane.Key, lane.Lane, seq
	if rapid.Bool().Draw(t, "another id") {
		e.ID = other.ID
	}
	for range rapid.IntRange(0, 2).Draw(t, "others") {
		switch rapid.IntRange(0, 12).Draw(t, "other") {
		case 0:
			e.StoreID = other.StoreID
		case 1:
			e.Type = other.Type
		case 2:
			e.Version = other.Version
		case 3:
			e.Encoding = other.Encoding
		case 4:
			e.Tenant = other.Tenant
		case 5:
			e.Stream.Kind = other.Stream.Kind
		case 6:
			e.Stream.ID = other.Stream.ID
		case 7:
			e.StreamVersion = other.StreamVersion
		case 8:
			e.CorrelationID = other.CorrelationID
		case 9:
			e.CausationID = other.CausationID
		case 10:
			e.Trace = other.Trace
		case 11:
			e.Data = other.Data
		case 12:
			e.Time = other.Time
		}
	}
	return e
}

func TestEntriesThatAreAlikeDifferInTheirLastValuesAlone(t *testing.T) {
	t.Parallel()
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		a := drawEntry(t, orders, 1)
		b := drawAfter(t, a, orders, 2)
		if !alike(&a, &b) {
			return
		}
		found++
		got, values := asRead(encodeEntry(&a)), asRead(appendValues(nil, &b))
		for i, v := range values {
			got[len(got)-2*(len(values)-i)+1] = v
		}
		if diff := cmp.Diff(asRead(encodeEntry(&b)), got); diff != "" {
			t.Fatal(diff)
		}
	})
	if found == 0 {
		t.Error("none were alike")
	}
}

// TestEntriesArriveAsTheyWereSaid whatever they have alike, in lanes that have some of them already.
func TestEntriesArriveAsTheyWereSaid(t *testing.T) {
	t.Parallel()
	w, node := newWorld(t, sharedRedis(t, false), Config{})
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		want := make(map[event.LaneRef][]event.Envelope)
		var first, second []transport.Append
		before := drawEntry(rt, orders, 1)
		for lane := range rapid.IntRange(1, 5).Draw(rt, "lanes") {
			ref := event.LaneRef{Category: "order", Key: fmt.Sprint(round, "-", lane)}
			for seq := range rapid.IntRange(1, 5).Draw(rt, "entries") {
				before = drawAfter(rt, before, ref, event.Sequence(seq+1))
				want[ref] = append(want[ref], before)
			}
			first = append(first, transport.Append{Lane: ref, Start: true, Entries: want[ref][:rapid.IntRange(1, len(want[ref])).Draw(rt, "at first")]})
			second = append(second, transport.Append{Lane: ref, Entries: want[ref]})
		}
		for _, runs := range [][]transport.Append{first, second} {
			for i, a := range node.Append(w.Context(), runs) {
				last := runs[i].Entries[len(runs[i].Entries)-1]
				if a.Err != nil || a.Outcome != transport.AppendOK || a.Newest != last.Sequence || a.NewestID != last.ID {
					rt.Fatalf("%s: %+v, want its newest to be %d %q", runs[i].Lane, a, last.Sequence, last.ID)
				}
			}
		}
		for ref, entries := range want {
			raw, _ := list(w.do("xrange", w.stream(ref), "-", "+"), 0)
			var got []event.Envelope
			for _, r := range raw {
				e, err := parseEntry(ref, r)
				if err != nil {
					rt.Fatal(err)
				}
				got = append(got, e)
			}
			if diff := cmp.Diff(entries, got, cmp.Comparer(bytes.Equal)); diff != "" {
				rt.Fatalf("%s (-said +there):\n%s", ref, diff)
			}
		}
	})
}

// Entries that have as much alike as those of one handler do cost a word for each value that is another, and one more.
func TestValuesThatAreAlikeAreSaidOnce(t *testing.T) {
	t.Parallel()
	_, node := newWorld(t, sharedRedis(t, false), Config{})
	var runs []transport.Append
	for i := range 10 {
		e := event.Envelope{
			ID: fmt.Sprint("e-", i), StoreID: "s", Type: "a", Version: 1, Encoding: event.JSON, Time: time.UnixMilli(5), CorrelationID: fmt.Sprint("c-", i), Data: []byte("1"), Sequence: 1,
		}
		runs = append(runs, transport.Append{Lane: event.LaneRef{Category: "order", Key: fmt.Sprint("alike-", i)}, Start: true, Entries: []event.Envelope{e}})
	}
	p := &publication{c: node.conn.Load(), runs: runs, keys: make([]laneKeys, len(runs)), answers: make([]transport.Appended, len(runs))}
	size := func(n int) int { return len(p.call(scriptAppend, p.all()[:n]).line) }
	if each := size(10) - size(9); each != 2+6+1+4 { // keys, lane, number of values, values
		t.Errorf("one more lane takes %d words, want 13", each)
	}
}

func TestValuesAloneFollowTheLastEntryInFull(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(t, sharedRedis(t, false), Config{})
	lane := event.LaneRef{Category: "order", Key: "by hand"}
	w.do("eval", scriptAppend.flagged.source, 2, w.stream(lane), "newest", 1000, 1, 1, 0, lane.Key, 1, 1, 3,
		6, "type", "t", "id", "a", "data", "1",
		-3, "u", "b", "2",
		-1, "3",
		0)
	want := []any{
		[]any{"1-0", []any{"type", "t", "id", "a", "data", "1"}},
		[]any{"2-0", []any{"type", "u", "id", "b", "data", "2"}},
		[]any{"3-0", []any{"type", "t", "id", "a", "data", "3"}},
	}
	if diff := cmp.Diff(any(want), w.do("xrange", w.stream(lane), "-", "+")); diff != "" {
		t.Error(diff)
	}
}
