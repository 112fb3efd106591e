package orders_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/examples/orders"
)

// make record-release RELEASE=2
var record = flag.String("record", "", "number of the release whose files are to be written into testdata/releases")

// TestRecordRelease writes what the releases to come will be tested with. It never changes what is there.
func TestRecordRelease(t *testing.T) {
	if *record == "" {
		t.Skip("only with -record, see docs/changing.md")
	}
	dir := filepath.Join(releases, *record)
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s is there already: what a release has stored is not written anew", dir)
	}
	path := filepath.Join(t.TempDir(), "orders.db")
	s := openRelease(t, path)
	live(t, s)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	packed := packed(t, path)
	store := openStore(t, path)
	journal := journalOf(t, store)
	kept := keptIn(t, store, journal)
	files := map[string][]byte{
		"orders.db.gz": packed, "states.json": pretty(t, statesOf(t, journal)), "store.json": pretty(t, kept), "types.json": pretty(t, typesOf(t, store, kept.Replies)),
	}
	var lines bytes.Buffer
	for _, e := range journal {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	files["journal.jsonl"] = lines.Bytes()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// live has the shop do a bit of everything. What later releases do with it is in release_test.go, so the ids matter.
func live(t *testing.T, s *shop) {
	t.Helper()
	place := func(command string) error {
		_, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-1"), &orders.PlaceOrder{ClientID: "c-1", Cents: 4200}, keyhold.CommandID(command))
		return err
	}
	if err := place("place"); err != nil {
		t.Fatal(err)
	}
	if err := place("again"); !errors.Is(err, keyhold.ErrRejected) {
		t.Fatalf("a second order of one id: %v", err)
	}
	s.placeFor(t, "o-2", "c-1", 1700) // each for another amount
	s.pay(t, "p-1", "o-1", 4200)
	if _, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-2"), &orders.CancelOrder{}); err != nil {
		t.Fatal(err)
	}
	s.carrier.refuses("o-3") // which halts shipping for c-2
	s.placeFor(t, "o-3", "c-2", 250)
	s.placeFor(t, "o-4", "c-2", 9900)
	s.pay(t, "p-2", "o-4", 100)     // too little
	s.placeFor(t, "o-5", "c-3", 12) // which notices sets aside
}

func pretty(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

func packed(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
