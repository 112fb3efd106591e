package redis

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// drawNext gives an entry that has much of the one before it, if there is one.
func drawNext(t *rapid.T, before *event.Envelope, lane event.LaneRef, seq event.Sequence) event.Envelope {
	if before == nil {
		return drawEntry(t, lane, seq)
	}
	return drawAfter(t, *before, lane, seq)
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
							e := drawNext(rt, before, ref, event.Sequence(n))
							e.ID = have[ref][n-1].ID + "x"
							r.Entries = append(r.Entries, e)
							before = &e
						case "gap", "empty":
							from = n + 3
						}
						if kind != "dup" && kind != "none" {
							for range more {
								e := drawNext(rt, before, ref, event.Sequence(from+len(r.Entries)+1))
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
