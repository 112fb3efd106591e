package orders_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// refold has the handlers of this release apply the events of a journal from the first on, to empty tables.
func refold(t *testing.T, journal []stored) *shop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.db")
	store := openStore(t, path)
	for _, s := range journal {
		if s.Stream == "" {
			continue // a command; what it led to is there
		}
		kind, id, _ := strings.Cut(s.Stream, "/")
		_, err := store.Begin("journal").Commit(t.Context(), eventstore.Changes{Append: []eventstore.Append{{
			Stream: event.Stream{Kind: kind, ID: id}, Expected: s.StreamVersion - 1,
			Events: []event.Envelope{{ID: s.ID, Type: s.Type, Version: s.Version, Encoding: s.Encoding, Data: append([]byte(s.Text), s.Data...),
				Category: s.Category, Key: s.Key, Time: s.Time}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return openReleaseRefusing(t, path, "o-3")
}

func (s *shop) rows(t *testing.T) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for table, query := range tables {
		rows[table] = s.column(t, query)
		slices.Sort(rows[table])
	}
	return rows
}

// Each event of each release makes of the tables what it made of them then.
func TestTheJournalOfEachReleaseMakesTheSameRows(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, dir string) {
		was := readJSON[kept](t, filepath.Join(dir, "store.json")).Rows
		for _, rows := range was {
			slices.Sort(rows)
		}
		if d := cmp.Diff(was, refold(t, readJournal(t, dir)).rows(t)); d != "" {
			t.Errorf("(-then +now): %s", d)
		}
	})
}

var cents = regexp.MustCompile(`"cents":(\d+)`)

// dearer is a journal in which each order costs another amount, and what each stream has more. In release 1 all cost the same: an
// upcaster that gives one amount to all of them would go unnoticed.
func dearer(t *testing.T, journal []stored) (dear []stored, more map[string]int64) {
	t.Helper()
	more = map[string]int64{}
	for i, s := range journal {
		if s.Type == "order.placed" {
			s.Text = cents.ReplaceAllStringFunc(s.Text, func(found string) string {
				n, err := strconv.ParseInt(cents.FindStringSubmatch(found)[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				more[s.Stream] += int64(1000 + i)
				return `"cents":` + strconv.FormatInt(n+int64(1000+i), 10)
			})
		}
		dear = append(dear, s)
	}
	return dear, more
}

func TestAmountsOfEachReleaseAreReadAsTheyWereStored(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, dir string) {
		journal, more := dearer(t, readJournal(t, dir))
		was := readJSON[map[string]any](t, filepath.Join(dir, "states.json"))
		var all int64
		for stream, n := range more {
			state := was[stream].(map[string]any)
			state["cents"] = state["cents"].(float64) + float64(n)
			all += n
		}
		if d := includes(was, statesOf(t, journal)); d != "" {
			t.Errorf("states (-then +now): %s", d)
		}
		sum := func(journal []stored) int64 {
			total, err := strconv.ParseInt(refold(t, journal).column(t, `SELECT sum(cents) FROM orders_per_client`)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return total
		}
		if before, after := sum(readJournal(t, dir)), sum(journal); after-before != all {
			t.Errorf("orders that cost %d more make %d more in the table", all, after-before)
		}
	})
}
