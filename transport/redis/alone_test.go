package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// anyText gives texts that a script may take for something else.
func anyText(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"", "", "a", "a", "b", "-1", "-3", "0", "6", "id", "type", "1 2", "1-0", "+", "-", "$", "MAXLEN", "NOMKSTREAM", "日本", "x\ny", "nil", " ", "1e5", "0x10", strings.Repeat("z", 300)}).Draw(t, label)
}

// anyEntry gives an entry that has some or all alike with the one before it.
func anyEntry(t *rapid.T, before *event.Envelope, ref event.LaneRef, seq event.Sequence) event.Envelope {
	var e event.Envelope
	if before != nil && rapid.IntRange(0, 4).Draw(t, "keep") > 0 {
		e = *before
	}
	e.Category, e.Key, e.Lane, e.Sequence = ref.Category, ref.Key, ref.Lane, seq
	if before == nil || rapid.Bool().Draw(t, "newid") {
		e.ID = anyText(t, "id")
	}
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		switch rapid.IntRange(0, 13).Draw(t, "which") {
		case 0:
			e.StoreID = anyText(t, "store")
		case 1:
			e.Type = anyText(t, "type")
		case 2:
			e.Version = rapid.IntRange(-1, 3).Draw(t, "ver")
		case 3:
			e.Encoding = event.Encoding(anyText(t, "enc"))
		case 4:
			e.Tenant = anyText(t, "ten")
		case 5:
			e.Stream.Kind = anyText(t, "kind")
		case 6:
			e.Stream.ID = anyText(t, "ent")
		case 7:
			e.StreamVersion = rapid.SampledFrom([]uint64{0, 1, 2, 1<<64 - 1}).Draw(t, "num")
		case 8:
			e.CorrelationID = anyText(t, "corr")
		case 9:
			e.CausationID = anyText(t, "cause")
		case 10:
			e.Trace.Parent = anyText(t, "tp")
		case 11:
			e.Trace.State = anyText(t, "ts")
		case 12:
			e.Data = rapid.SampledFrom([][]byte{nil, {}, {0}, []byte("-5"), []byte("id"), []byte("\r\n$3\r\n"), {0xff, 0xfe, 0, '\n'}, []byte(strings.Repeat("q", 40000))}).Draw(t, "data")
		case 13:
			e.Time = rapid.SampledFrom([]time.Time{{}, time.UnixMilli(0).UTC(), time.UnixMilli(-5).UTC(), time.UnixMilli(17).UTC()}).Draw(t, "time")
		}
	}
	return e
}

// TestEntriesAreStoredAsIfEachWereAlone: whatever else is in the call, entries of lanes that are refused among them.
func TestEntriesAreStoredAsIfEachWereAlone(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprint(cluster), func(t *testing.T) {
			t.Parallel()
			w, node := newWorld(t, sharedRedis(t, cluster), Config{})
			round := 0
			rapid.Check(t, func(rt *rapid.T) {
				round++
				have := map[event.LaneRef][]event.Envelope{}
				var refs []event.LaneRef
				for l := range rapid.IntRange(1, 8).Draw(rt, "lanes") {
					cat := rapid.SampledFrom([]string{"order", "bill"}).Draw(rt, "cat")
					lane := rapid.SampledFrom([]event.Lane{event.Primary, event.Backfill}).Draw(rt, "lane")
					refs = append(refs, event.LaneRef{Category: cat, Key: fmt.Sprint("alike-", cluster, round, "-", l), Lane: lane})
				}
				var before *event.Envelope
				for range rapid.IntRange(1, 4).Draw(rt, "calls") {
					var runs []transport.Append
					kinds := []string{}
					for _, ref := range refs {
						n := len(have[ref])
						kind := rapid.SampledFrom([]string{"next", "next", "next", "dup", "overlap", "foreign", "gap", "none", "empty"}).Draw(rt, "kind")
						if n == 0 && kind != "gap" && kind != "empty" && kind != "none" {
							kind = "next"
						}
						if n > 0 && kind == "empty" {
							kind = "gap"
						}
						r := transport.Append{Lane: ref, Subscribers: []string{"h"}, Start: n == 0 && kind == "next"}
						more := rapid.IntRange(1, 4).Draw(rt, "more")
						from := n
						switch kind {
						case "dup", "overlap":
							from = rapid.IntRange(0, n-1).Draw(rt, "from")
							r.Entries = append(r.Entries, have[ref][from:]...)
						case "foreign":
							from = n - 1
							e := anyEntry(rt, before, ref, event.Sequence(n))
							e.ID = have[ref][n-1].ID + "x"
							r.Entries = append(r.Entries, e)
							before = &e
						case "gap", "empty":
							from = n + 3
						}
						if kind != "dup" && kind != "none" {
							for range more {
								e := anyEntry(rt, before, ref, event.Sequence(from+len(r.Entries)+1))
								before = &e
								r.Entries = append(r.Entries, e)
							}
						}
						kinds = append(kinds, kind)
						runs = append(runs, r)
					}
					if len(runs) == 0 {
						continue
					}
					for i, a := range node.Append(w.Context(), runs) {
						ref, n := runs[i].Lane, len(have[runs[i].Lane])
						want := transport.AppendOK
						switch kinds[i] {
						case "foreign":
							want = transport.AppendDup
						case "gap":
							want = transport.AppendGap
							if n == 0 {
								want = transport.AppendEmpty
							}
						case "empty":
							want = transport.AppendEmpty
						case "none":
							if n == 0 {
								want = transport.AppendEmpty
							}
						}
						if a.Err != nil || a.Outcome != want {
							rt.Fatalf("%s %s: %+v want %v", kinds[i], ref, a, want)
						}
						if want == transport.AppendOK && len(runs[i].Entries) > 0 {
							have[ref] = append(have[ref][:runs[i].Entries[0].Sequence-1:runs[i].Entries[0].Sequence-1], runs[i].Entries...)
						}
						if n = len(have[ref]); n > 0 && (a.Newest != event.Sequence(n) || a.NewestID != have[ref][n-1].ID) {
							rt.Fatalf("%s %s: %+v want %d %q", kinds[i], ref, a, n, have[ref][n-1].ID)
						}
					}
				}
				for ref, entries := range have {
					if len(entries) == 0 {
						continue
					}
					raw, _ := list(w.do("xrange", w.stream(ref), "-", "+"), 0)
					if len(raw) != len(entries) {
						rt.Fatalf("%s: %d, want %d", ref, len(raw), len(entries))
					}
					for i, r := range raw {
						two, _ := list(r, 0)
						fields, _ := list(two[1], 0)
						if diff := cmp.Diff(asRead(encodeEntry(&entries[i])), fields, cmpopts.EquateEmpty()); diff != "" {
							rt.Fatalf("%s %d raw (-want +got):\n%s", ref, i, diff)
						}
					}
				}
			})
		})
	}
}
