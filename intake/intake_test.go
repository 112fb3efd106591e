package intake_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/intake"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// world is a broker, a store, and a program that writes streams.
type world struct {
	*testing.T
	server *brokertest.Server
	store  *faulty.Store
	plan   faulty.Plan
	now    time.Time
	told   told
}

// told is what observers were told.
type told struct {
	Taken, Repeated, Malformed int
	Lost                       uint64
	Anew                       int
	Bad, Unreadable            []string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, server: brokertest.NewServer(brokertest.Config{}), now: time.UnixMilli(1764000000000).UTC()}
	w.store = faulty.Wrap(memory.Open(), func(op faulty.Op) faulty.Fault {
		if w.plan == nil {
			return faulty.Fault{}
		}
		return w.plan(op)
	})
	if _, err := w.store.Start(t.Context(), eventstore.StartOptions{Node: t.Name()}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) intake() *intake.Intake {
	b := w.server.Node("node")
	if err := b.Connect(w.Context()); err != nil {
		w.Fatal(err)
	}
	return intake.New(intake.Config{
		Category: "sale", Source: "crm", Store: w.store, Broker: b, Retention: time.Hour, Now: func() time.Time { return w.now },
		Observer: intake.Observer{
			Taken:      func(_ string, records, repeated int) { w.told.Taken += records; w.told.Repeated += repeated },
			Malformed:  func(event.LaneRef, string, string) { w.told.Malformed++ },
			Lost:       func(_ event.LaneRef, _ string, n uint64) { w.told.Lost += n },
			Anew:       func(event.LaneRef, string) { w.told.Anew++ },
			BadKey:     func(_, key string, _ error) { w.told.Bad = append(w.told.Bad, key) },
			Unreadable: func(l event.LaneRef, _ string, _ error) { w.told.Unreadable = append(w.told.Unreadable, l.Key) },
		},
	})
}

// write appends the events named, by their ids.
func (w *world) write(key string, ids ...string) {
	for _, id := range ids {
		w.server.Write("crm", key, "", fields(id)...)
	}
}

func fields(id string) []transport.SourceField {
	return []transport.SourceField{{Name: "id", Value: id}, {Name: "type", Value: "sale.made"}, {Name: "data", Value: `{}`}}
}

func (w *world) round(i *intake.Intake) {
	w.Helper()
	if err := i.Round(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// has compares what was taken in of a key: the ids that its producer gave.
func (w *world) has(key string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.ids(key), cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s (-want +got):\n%s", key, diff)
	}
}

func (w *world) ids(key string) (ids []string) {
	w.Helper()
	all, err := w.store.ReadLane(w.Context(), event.LaneRef{Category: "sale", Key: key}, 0, eventstore.MaxLimit)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range all {
		ids = append(ids, strings.TrimPrefix(e.ID, "sale/"+key+"/"))
	}
	return ids
}

func (w *world) was(want told) {
	w.Helper()
	if diff := cmp.Diff(want, w.told); diff != "" {
		w.Errorf("told (-want +got):\n%s", diff)
	}
}

func names(first, last int) (all []string) {
	for n := first; n <= last; n++ {
		all = append(all, strconv.Itoa(n))
	}
	return all
}

func TestEntriesAreTakenInInStreamOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	w.write("ada", names(1, 300)...)
	w.write("bob", "1")
	w.round(i)
	w.write("ada", "301")
	w.server.Index("crm", "cy") // before there is anything
	w.round(i)
	w.write("cy", "1")
	w.round(i)
	w.has("ada", names(1, 301)...)
	w.has("bob", "1")
	w.has("cy", "1")
	w.was(told{Taken: 303})
}

func TestAnEventThatIsWrittenAgainIsTakenInOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	w.write("ada", "1", "2", "1", "2")
	w.round(i)
	w.write("ada", "2", "3")
	w.write("bob", "2") // another key's
	w.round(i)
	w.has("ada", "1", "2", "3")
	w.has("bob", "2")
	w.was(told{Taken: 4, Repeated: 3})
}

func TestAStreamThatIsWrittenAnewGoesOn(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][2]string{"with ids that went on": {}, "with ids that went back": {"17-0", "18-0"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			i := w.intake()
			w.write("ada", names(1, 3)...)
			w.round(i)
			w.server.Drop("crm", "ada")
			w.round(i)
			w.server.Write("crm", "ada", ids[0], fields("3")...) // its producer was not sure of it
			w.server.Write("crm", "ada", ids[1], fields("4")...)
			w.round(i)
			w.round(i)
			w.has("ada", "1", "2", "3", "4")
			if w.told.Anew != 1 || w.told.Repeated != 1 || w.told.Lost != 0 {
				t.Errorf("told %+v", w.told)
			}
		})
	}
}

func TestWhatWasGoneIsCountedAndTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	w.write("ada", names(1, 10)...)
	w.server.Shorten("crm", "ada", 4) // before anybody looked: it was not to be had
	w.round(i)
	w.has("ada", names(7, 10)...)
	w.write("ada", names(11, 400)...)
	w.server.Shorten("crm", "ada", 200)
	w.round(i)
	w.has("ada", append(names(7, 10), names(201, 400)...)...)
	w.was(told{Taken: 204, Lost: 190})
	got, err := w.store.Taken(t.Context(), []eventstore.TakenAsk{{SourceRef: eventstore.SourceRef{Category: "sale", Key: "ada", Source: "crm"}}})
	if err != nil || got[0].Lost != 190 {
		t.Errorf("noted %+v, %v", got, err)
	}
}

// A replica that was promoted lacks the end of a stream that has entries older than event ids are remembered: those are not taken in once more.
func TestTheOldPartOfAStreamThatLostItsEndIsNotTakenInAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	began := w.now
	put := func(id string, after time.Duration) {
		w.server.Write("crm", "ada", fmt.Sprint(began.Add(after).UnixMilli(), "-0"), fields(id)...)
	}
	old := func() {
		for n, id := range names(1, 5) {
			put(id, -time.Duration(10-n)*time.Minute)
		}
	}
	old()
	w.round(i)
	w.now = began.Add(2 * time.Hour)
	if n, err := w.store.Purge(t.Context(), w.now.Add(-time.Hour), 1000); err != nil || n != 10 { // records, and ids
		t.Fatalf("purged %d, %v", n, err)
	}
	put("6", 110*time.Minute)
	w.round(i)
	w.server.Drop("crm", "ada")
	old()
	put("7", 120*time.Minute)
	w.round(i)
	w.has("ada", "6", "7")
	w.was(told{Taken: 7, Anew: 1})
}

func TestWhatIsNoStreamOrNoKeyIsToldAndKeepsNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	w.server.Text("crm", "text")
	w.server.Index("crm", "text")
	w.server.Index("crm", "a:b")
	w.write("ada", "1")
	w.round(i)
	w.write("ada", "2")
	w.round(i)
	w.has("ada", "1", "2")
	w.was(told{Taken: 2, Bad: []string{"a:b"}, Unreadable: []string{"text", "text"}})
	w.server.Drop("crm", "text")
	w.write("text", "1")
	w.round(i)
	w.has("text", "1")
}

// After a loss of memory all streams are looked at closely, also those without news; one that could not be read is so in the next round.
func TestAllStreamsAreLookedAtCloselyAfterALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	const keys = 20
	for n := range keys {
		w.write(fmt.Sprint("k-", n), "1")
	}
	w.round(i)
	for n := range keys {
		w.server.Drop("crm", fmt.Sprint("k-", n))
		w.server.Write("crm", fmt.Sprint("k-", n), "5-0", fields("2")...) // an id that went back, which is no news
	}
	w.server.Break(func(c brokertest.Call) brokertest.Fault {
		if c.Op == "read source" && c.Lane.Key > "k-5" {
			return brokertest.Refused
		}
		return brokertest.None
	})
	i.Forget()
	w.round(i)
	w.server.Break(nil)
	w.has("k-10", "1", "2")
	w.has("k-7", "1")
	w.round(i)
	for n := range keys {
		w.has(fmt.Sprint("k-", n), "1", "2")
	}
}

func TestMalformedEntriesStandWhereTheyStood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.intake()
	w.write("ada", "1")
	w.server.Write("crm", "ada", "", transport.SourceField{Name: "id", Value: "2"}, transport.SourceField{Name: "data", Value: "{}"})
	w.write("ada", "3")
	w.round(i)
	w.has("ada", "1", "2", "3")
	all, err := w.store.ReadLane(t.Context(), event.LaneRef{Category: "sale", Key: "ada"}, 1, 1)
	if err != nil || all[0].Type != event.Malformed {
		t.Errorf("%+v, %v", all, err)
	}
	w.was(told{Taken: 3, Malformed: 1})
}

// What a commit came to is not known, or it failed: it is taken in once all the same.
func TestCommitsThatFailOrAreNotKnownAreMadeGood(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faulty.Fault{"failed": {Before: errors.New("down")}, "not known": {After: errors.New("gone")}} {
		w := newWorld(t)
		i := w.intake()
		w.write("ada", names(1, 3)...)
		w.plan = faulty.Nth(faulty.Commit, 1, fault)
		if err := i.Round(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		w.round(i)
		w.write("ada", "4")
		w.round(i)
		w.has("ada", names(1, 4)...)
	}
}

// Another one takes in between the question what is known and the commit: the revision tells, and nothing is taken in twice.
func TestOfTwoThatTakeInTheSameOneDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("ada", names(1, 3)...)
	slow, quick := w.intake(), w.intake()
	reached, release := make(chan struct{}), make(chan struct{})
	w.plan = func(op faulty.Op) faulty.Fault {
		if op.Call == faulty.Commit && op.N == 1 {
			close(reached)
			return faulty.Fault{Wait: release}
		}
		return faulty.Fault{}
	}
	done := make(chan error, 1)
	go func() { done <- slow.Round(t.Context()) }()
	<-reached
	w.round(quick)
	close(release)
	if err := <-done; err != nil {
		t.Errorf("who was late: %v", err)
	}
	w.write("ada", "4")
	w.round(slow)
	w.has("ada", names(1, 4)...)
}

func TestEverythingThatThereIsIsTakenInAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 1100 {
		w.write(fmt.Sprint("k-", n), "1", "2")
	}
	if err := w.intake().CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.was(told{Taken: 2200})
	w.has("k-1099", "1", "2")
}

// Two take in the same streams, each with an old belief now and then, while the store fails, streams are trimmed, deleted and written anew, and events are written
// again. Every event is there once, in the order in which it was first written, unless it was gone; and what is gone is counted, but for streams
// that were deleted.
func TestWhateverHappensEventsAreTakenInOnceAndInOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if given := os.Getenv("KEYHOLD_SEED"); given != "" {
		seed, _ = strconv.ParseUint(given, 10, 64)
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	for run := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, run))
		w := newWorld(t)
		w.plan = faulty.Seeded(seed+run, faulty.Rates{Before: 0.1, After: 0.1, Error: errors.New("down")}, faulty.Commit, faulty.Taken)
		nodes := []*intake.Intake{w.intake(), w.intake()}
		keys, wrote := []string{"ada", "bob", "cy"}, map[string]int{}
		for _, key := range keys { // from then on what is gone is lost
			wrote[key] = 1
			w.write(key, "1")
		}
		plan := w.plan
		w.plan = nil
		w.round(nodes[0])
		w.plan = plan
		deleted := false
		for range 60 {
			key := keys[r.IntN(len(keys))]
			switch r.IntN(12) {
			case 0:
				w.server.Shorten("crm", key, r.IntN(4))
			case 1:
				if r.IntN(4) == 0 {
					w.server.Drop("crm", key)
					deleted = true
				}
			case 2:
				nodes[r.IntN(2)].Forget()
			case 3, 4:
				if n := wrote[key]; n > 0 {
					w.write(key, strconv.Itoa(1+r.IntN(n)))
				}
			case 5, 6, 7:
				_ = nodes[r.IntN(2)].Round(t.Context())
			default:
				for range 1 + r.IntN(3) {
					wrote[key]++
					w.write(key, strconv.Itoa(wrote[key]))
				}
			}
		}
		w.plan = nil
		for _, i := range nodes {
			i.Forget()
			w.round(i)
		}
		missing, lost := 0, w.noted()
		for key, n := range wrote {
			got := w.ids(key)
			missing += n - len(got)
			if sorted := slices.Sorted(slices.Values(got)); len(slices.Compact(sorted)) != len(got) {
				t.Fatalf("run %d: of %s one is there twice: %v", run, key, got)
			}
			if !deleted && lost == 0 && !slices.Equal(got, names(1, n)) {
				t.Fatalf("run %d: nothing of %s was lost: %v of %d", run, key, got, n)
			}
		}
		if !deleted && lost < uint64(missing) {
			t.Fatalf("run %d: %d are missing, %d are noted as lost", run, missing, lost)
		}
	}
}

// noted is what the store has as lost.
func (w *world) noted() (n uint64) {
	w.Helper()
	for _, key := range []string{"ada", "bob", "cy"} {
		got, err := w.store.Taken(w.Context(), []eventstore.TakenAsk{{SourceRef: eventstore.SourceRef{Category: "sale", Key: key, Source: "crm"}}})
		if err != nil {
			w.Fatal(err)
		}
		n += got[0].Lost
	}
	return n
}
