package orders_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/keyholdtest"
	"github.com/keyhold/keyhold/transport/inline"
)

// What each release of the shop has left behind: testdata/releases/1 and so on. It was written by that release (see record_test.go), and is never
// changed: whatever becomes of events, states and the store's format, later releases must go on from there.
const releases = "testdata/releases"

// stored is an event or a command as a release has stored it.
type stored struct {
	Stream        string         `json:"stream,omitempty"` // of the entity that emitted it, as kind/id
	StreamVersion uint64         `json:"stream_version,omitempty"`
	Type          string         `json:"type"`
	Version       int            `json:"version"`
	Encoding      event.Encoding `json:"encoding"`
	Text          string         `json:"text,omitempty"` // the data, where that is JSON
	Data          []byte         `json:"data,omitempty"` // where it is not, in base64
	Category      string         `json:"category"`
	Key           string         `json:"key"`
	Sequence      event.Sequence `json:"sequence"`
	Time          time.Time      `json:"time"`
	ID            string         `json:"id"`
}

// kept is what else a store has of a release, and what the handlers' tables hold.
type kept struct {
	Halts       []aside             `json:"halts"`
	Dead        []aside             `json:"dead"`
	Checkpoints []checkpoint        `json:"checkpoints"`
	Snapshots   []snapshot          `json:"snapshots"`
	Replies     []reply             `json:"replies"`
	Rows        map[string][]string `json:"rows"`
}

type aside struct {
	Unit     string         `json:"unit"`
	Lane     string         `json:"lane"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id"`
	Type     string         `json:"type"`
	Attempts int            `json:"attempts"`
	Reason   string         `json:"reason"`
	Error    string         `json:"error"`
	Time     time.Time      `json:"time"`
}

type checkpoint struct {
	Unit     string         `json:"unit"`
	Lane     string         `json:"lane"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id"`
}

type snapshot struct {
	Stream       string `json:"stream"`
	Version      uint64 `json:"version"`
	StateVersion int    `json:"state_version"`
	State        string `json:"state"`
}

type reply struct {
	Stream    string `json:"stream"`
	CommandID string `json:"command_id"`
	Command   string `json:"command"`
	Type      string `json:"type,omitempty"`
	Version   int    `json:"version,omitempty"`
	Data      string `json:"data,omitempty"`
	Rejected  string `json:"rejected,omitempty"`
}

// notices is a handler that sets aside what it cannot apply. It cannot apply order o-5.
var notices = keyhold.Handler[struct{}]{
	Name: "notices", Categories: []string{orders.Order.Kind}, StartFrom: keyhold.Oldest, OnPoison: keyhold.Release,
	New: func(string) struct{} { return struct{}{} },
	On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e orders.OrderPlaced) error {
		if e.OrderID == "o-5" {
			return keyhold.Poison(errors.New("no such client"))
		}
		return nil
	})},
}

// readers are the names of entity kinds and handlers by the category that they read.
var readers = map[string][]string{
	"order": {"clients", "notices", "shipping"}, "order.commands": {"order"}, "payment": {"settlement"}, "payment.commands": {"payment"},
}

// openRelease starts a shop on a database of any release: with a handler more, with snapshots as often as there can be, and keeping everything.
func openRelease(t *testing.T, path string) *shop {
	t.Helper()
	return openReleaseRefusing(t, path, "")
}

// openReleaseRefusing is openRelease with a carrier that refuses an order.
func openReleaseRefusing(t *testing.T, path, refused string) *shop {
	t.Helper()
	s := &shop{carrier: &carrier{}}
	s.carrier.refuses(refused)
	s.store = sqlite.New(sqlite.Config{Path: path, Setup: orders.CreateTables})
	s.App = keyhold.New(keyhold.Config{
		Name: "orders", Store: s.store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler), Retention: 100 * 365 * 24 * time.Hour,
	})
	order := orders.Order
	order.SnapshotEvery = 1
	s.Register(order, orders.Payment, orders.Settlement, orders.Shipping(s.carrier), orders.Clients, notices)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openStore opens a database with no shop on it.
func openStore(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	store := sqlite.New(sqlite.Config{Path: path, Setup: orders.CreateTables})
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return store
}

// journalOf reads everything that a store has, in the order of commits.
func journalOf(t *testing.T, store eventstore.Streams) []stored {
	t.Helper()
	categories := []string{"order", "order.commands", "payment", "payment.commands"}
	all, _, err := store.ReadAll(t.Context(), eventstore.Position(""), categories, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var journal []stored
	for _, e := range all {
		s := stored{
			StreamVersion: e.StreamVersion, Type: e.Type, Version: e.Version, Encoding: e.Encoding,
			Category: e.Category, Key: e.Key, Sequence: e.Sequence, Time: e.Time.UTC(), ID: e.ID,
		}
		if e.StreamVersion > 0 {
			s.Stream = e.Stream.Kind + "/" + e.Stream.ID
		}
		if e.Encoding == event.JSON {
			s.Text = string(e.Data)
		} else {
			s.Data = e.Data
		}
		journal = append(journal, s)
	}
	return journal
}

// statesOf folds a journal, as the entities of this release do, to the state of each.
func statesOf(t *testing.T, journal []stored) map[string]any {
	t.Helper()
	store := memory.Open()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	var streams []string
	for _, s := range journal {
		if s.Stream == "" {
			continue
		}
		if !slices.Contains(streams, s.Stream) {
			streams = append(streams, s.Stream)
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
	k := keyholdtest.New(t, keyholdtest.On(store))
	read := map[string]func() any{}
	for _, stream := range streams {
		switch kind, id, _ := strings.Cut(stream, "/"); kind {
		case orders.Order.Kind:
			e := keyholdtest.Entity(k, orders.Order, id)
			read[stream] = func() any { return e.State() }
		case orders.Payment.Kind:
			e := keyholdtest.Entity(k, orders.Payment, id)
			read[stream] = func() any { return e.State() }
		default:
			t.Fatalf("nobody folds %s", stream)
		}
	}
	states := map[string]any{}
	for stream, state := range read {
		states[stream] = generic(t, state())
	}
	return states
}

// generic gives a value as it comes out of JSON.
func generic(t *testing.T, v any) (out any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tables are those of the handlers, with what of each is compared.
var tables = map[string]string{
	"shipments":         `SELECT order_id || ' of ' || client_id || ', ' || cents || ', recalled ' || recalled FROM shipments ORDER BY id`,
	"orders_per_client": `SELECT client_id || ': ' || orders || ', ' || paid || ' paid, ' || cents FROM orders_per_client ORDER BY client_id`,
}

// keptIn reads what a store has besides the journal.
func keptIn(t *testing.T, store *sqlite.Store, journal []stored) kept {
	t.Helper()
	ctx := t.Context()
	k := kept{Rows: map[string][]string{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	halts, err := store.ListHalts(ctx, "", event.Unit{}, 100)
	check(err)
	for _, h := range halts {
		k.Halts = append(k.Halts, aside{h.Unit.String(), h.Lane.String(), h.Sequence, h.EventID, h.EventType, h.Attempts, h.Reason, h.Error, h.Since.UTC()})
	}
	dead, err := store.ListDead(ctx, "notices", event.Position{}, 100)
	check(err)
	for _, d := range dead {
		k.Dead = append(k.Dead, aside{d.Unit.String(), d.Lane.String(), d.Sequence, d.EventID, d.Type, d.Attempts, d.Reason, d.Error, d.Time.UTC()})
	}
	lanes, streams := map[event.LaneRef]bool{}, map[string]bool{}
	for _, s := range journal {
		lane := event.LaneRef{Category: s.Category, Key: s.Key}
		if !lanes[lane] {
			lanes[lane] = true
			for _, name := range readers[s.Category] {
				found, err := store.Recover(ctx, []eventstore.Ask{{Unit: event.Unit{Name: name, Key: s.Key}, Lanes: []event.LaneRef{lane}}})
				check(err)
				at := found[0].Checkpoints[0]
				k.Checkpoints = append(k.Checkpoints, checkpoint{name + "/" + s.Key, lane.String(), at.Sequence, at.EventID})
			}
		}
		if s.Stream == "" || streams[s.Stream] {
			continue
		}
		streams[s.Stream] = true
		kind, id, _ := strings.Cut(s.Stream, "/")
		snap, err := store.ReadSnapshot(ctx, event.Stream{Kind: kind, ID: id})
		check(err)
		if snap != nil {
			k.Snapshots = append(k.Snapshots, snapshot{s.Stream, snap.Version, snap.StateVersion, string(snap.Data)})
		}
		for _, command := range []string{"place", "again"} {
			r, err := store.ReadReply(ctx, event.Stream{Kind: kind, ID: id}, command)
			check(err)
			if r != nil {
				k.Replies = append(k.Replies, reply{s.Stream, r.CommandID, r.Command, r.Type, r.Version, string(r.Data), r.Rejected})
			}
		}
	}
	s := shop{store: store}
	for table, query := range tables {
		k.Rows[table] = s.column(t, query)
	}
	return k
}

// eachRelease runs a test on what each release has left.
func eachRelease(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(releases, "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no releases in %s: %v", releases, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			test(t, dir)
		})
	}
}

func readJSON[T any](t *testing.T, path string) (v T) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readJournal(t *testing.T, dir string) (journal []stored) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var s stored
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		journal = append(journal, s)
	}
	return journal
}

// databaseOf unpacks a copy of a release's database.
func databaseOf(t *testing.T, dir string) string {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join(dir, "orders.db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "orders.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
