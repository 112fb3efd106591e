package brokertest

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

var trims = []check{
	{"Entries up to a sequence go", func(s *suite) {
		s.start(orders, 1, 5)
		s.each("trim", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 3}}), nil)
		s.same("below", s.entries(orders, 1, 0), s.read(orders, 0))
		s.same("above", s.entries(orders, 4, 5), s.read(orders, 3))
	}},
	{"The newest entry always stays", func(s *suite) {
		s.start(orders, 1, 3)
		s.each("trim", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 3}}), nil)
		s.same("the stream", s.entries(orders, 3, 3), s.read(orders, 2))
		s.each("trim beyond", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 99}}), nil)
		s.same("the newest", told(transport.AppendOK, orders, 3), s.ask(orders))
	}},
	{"A trim is idempotent, and each lane's own", func(s *suite) {
		s.start(orders, 4, 6)
		s.start(backfill(orders), 4, 6)
		for range 2 {
			s.each("trim", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 5}, {Lane: others, Through: 5}, {Lane: backfill(orders), Through: 2}}), nil, nil, nil)
		}
		s.same("primary", s.entries(orders, 6, 6), s.read(orders, 5))
		s.same("backfill", s.entries(backfill(orders), 4, 6), s.read(backfill(orders), 3))
	}},
	{"What was trimmed is read from the store", func(s *suite) {
		var publish []event.Envelope
		for _, e := range s.entries(orders, 1, 5) {
			e.Stream, e.StreamVersion = event.Stream{}, 0
			publish = append(publish, e)
		}
		_, err := s.store.Begin("test").Commit(s.Context(), eventstore.Changes{Publish: publish})
		s.must("commit", err)
		s.start(orders, 1, 5)
		s.each("trim", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 3}}), nil)
		s.same("read", 4, len(s.read(orders, 1)))
	}},
}

// retire retires one lane.
func (s *suite) retire(lane event.LaneRef, through event.Sequence, subscribers ...string) error {
	s.Helper()
	errs := s.Broker.Retire(s.Context(), []transport.Retire{{Lane: lane, Through: through, Subscribers: subscribers}})
	if len(errs) != 1 {
		s.Fatalf("%d answers for one lane", len(errs))
	}
	return errs[0]
}

// live checks how many keys of the category order are.
func (s *suite) live(want int) {
	s.Helper()
	got, err := s.Broker.Partitions(s.Context(), "order")
	s.must("partitions", err)
	if got != want {
		s.Errorf("%d keys are live, want %d", got, want)
	}
}

var retires = []check{
	{"A lane that all have passed goes, and its key with it", func(s *suite) {
		s.start(orders, 1, 2, "shipping")
		s.live(1)
		s.pass(shipping, orders, 2)
		s.must("retire", s.retire(orders, 2, "shipping"))
		s.same("the newest", told(transport.AppendEmpty, orders, 0), s.ask(orders))
		s.live(0)
	}},
	{"A lane to which somebody published since stays", func(s *suite) {
		s.start(orders, 1, 3, "shipping")
		s.pass(shipping, orders, 3)
		s.each("retire", []error{s.retire(orders, 2, "shipping")}, transport.ErrBusy)
		s.same("the stream", s.entries(orders, 1, 3), s.read(orders, 0))
		s.live(1)
	}},
	{"A lane that a subscriber has not passed stays", func(s *suite) {
		s.start(orders, 1, 2, "shipping", "billing")
		s.pass(shipping, orders, 2)
		s.pass(billing, orders, 1)
		s.each("retire", []error{s.retire(orders, 2, "billing", "shipping")}, transport.ErrBusy)
		s.same("the newest", told(transport.AppendOK, orders, 2), s.ask(orders))
		s.pass(billing, orders, 2)
		s.must("retire", s.retire(orders, 2, "billing", "shipping"))
	}},
	{"A lane that a subscriber has never read stays", func(s *suite) {
		s.start(orders, 1, 1, "shipping", "billing")
		s.pass(shipping, orders, 1)
		s.each("retire", []error{s.retire(orders, 1, "billing", "shipping")}, transport.ErrBusy)
		s.live(1)
	}},
	{"A lane that nobody subscribes to goes", func(s *suite) {
		s.start(orders, 1, 1)
		s.must("retire", s.retire(orders, 1))
		s.live(0)
	}},
	{"A key is live while either of its lanes is", func(s *suite) {
		s.start(orders, 1, 1)
		s.start(backfill(orders), 1, 1)
		s.live(1)
		s.must("retire primary", s.retire(orders, 1))
		s.live(1)
		s.same("the other lane", told(transport.AppendOK, backfill(orders), 1), s.ask(backfill(orders)))
		s.must("retire backfill", s.retire(backfill(orders), 1))
		s.live(0)
	}},
	{"What is not there is retired already", func(s *suite) {
		s.must("retire", s.retire(orders, 4, "shipping"))
	}},
	{"A lane that was retired begins anew where the next run does", func(s *suite) {
		s.start(orders, 1, 2)
		s.must("retire", s.retire(orders, 2))
		s.start(orders, 3, 4)
		s.live(1)
		s.same("the stream", s.entries(orders, 3, 4), s.read(orders, 2))
	}},
	{"Each lane is answered for itself", func(s *suite) {
		s.start(orders, 1, 2)
		s.start(others, 1, 2)
		s.each("retire", s.Broker.Retire(s.Context(), []transport.Retire{{Lane: orders, Through: 1}, {Lane: others, Through: 2}}), transport.ErrBusy, nil)
		s.live(1)
	}},
}

var missing = []check{
	{"A run that another store's subscriber misses is wanted until it is served", func(s *suite) {
		port, h := s.misses()
		wanted, err := s.Broker.Wanted(s.Context(), "order")
		s.must("wanted", err)
		if len(wanted) != 1 || wanted[0].Unit != billing || wanted[0].Lane != orders || wanted[0].After != 1 || wanted[0].ID == "" {
			s.Fatalf("got %+v, want what billing misses above 1", wanted)
		}
		s.must("serve", s.Broker.Serve(s.Context(), wanted[0], s.entries(orders, 2, 4)))
		s.same("busy", []string{"k-1"}, s.busy("billing"))
		got, err := port.Fetch(s.Context(), h, []event.Position{{Lane: orders, Sequence: 1, EventID: entryID(orders, 1)}}, 10)
		s.must("fetch", err)
		if len(got.Entries) == 0 {
			s.Fatalf("got %+v, want the run that was served", got)
		}
		s.same("the run", s.entries(orders, 2, 1+event.Sequence(len(got.Entries))), got.Entries)
		wanted, err = s.Broker.Wanted(s.Context(), "order")
		if err != nil || len(wanted) != 0 {
			s.Errorf("served, and still wanted: %+v, %v", wanted, err)
		}
	}},
	{"Entries that are nowhere any more are a gap", func(s *suite) {
		port, h := s.misses()
		wanted, err := s.Broker.Wanted(s.Context(), "order")
		s.must("wanted", err)
		s.same("wanted", 1, len(wanted))
		s.must("serve", s.Broker.Serve(s.Context(), wanted[0], nil))
		got, err := port.Fetch(s.Context(), h, []event.Position{{Lane: orders, Sequence: 1, EventID: entryID(orders, 1)}}, 10)
		if err != nil || !got.Gap || got.Lane != orders {
			s.Errorf("got %+v, %v; want a gap", got, err)
		}
	}},
	{"A reader of another store misses what it has not read of a stream that is gone", func(s *suite) { s.gone(orders) }},
	{"A reader of another store misses what it has not read of the backfill of a stream that is gone", func(s *suite) { s.gone(backfill(orders)) }},
	{"A reader of another store that has applied another history is told, be it behind or at the end of it", func(s *suite) {
		b, _, h := s.abroad()
		read := func(seq event.Sequence, id string) (partitions.Fetched, error) {
			return b.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders, Sequence: seq, EventID: id}}, 10)
		}
		s.start(orders, 1, 3)
		got, err := read(3, entryID(orders, 3))
		s.must("fetch at the end", err)
		s.same("nothing more", 0, len(got.Entries))
		s.must("retire", s.Broker.Retire(s.Context(), []transport.Retire{{Lane: orders, Through: 3}})[0])
		again := s.entries(orders, 2, 4)
		for i := range again {
			again[i].ID = "another " + again[i].ID
		}
		s.append(transport.Append{Lane: orders, Start: true, Entries: again[:1]}) // the producer's store knows 1 alone
		if got, err := read(3, entryID(orders, 3)); err == nil {
			s.Errorf("the stream ends below what was applied: %+v", got)
		}
		for _, more := range []int{2, 3} {
			s.append(transport.Append{Lane: orders, Entries: again[:more]})
			want := event.Position{Lane: orders, Sequence: 3, EventID: "another " + entryID(orders, 3)}
			if got, err := read(3, entryID(orders, 3)); err != nil || !got.Diverged || got.Found != want || len(got.Entries) > 0 {
				s.Errorf("up to %d: %+v, %v; want it diverged at %+v", 1+more, got, err, want)
			}
		}
		got, err = read(3, "another "+entryID(orders, 3))
		s.must("fetch, by one who has applied that", err)
		s.same("what comes next", again[2:], got.Entries)
	}},
	{"One who has no place in a lane asks where it begins, and begins with the first that is kept", func(s *suite) {
		s.begun(2, func(*transport.Wanted) []event.Envelope { return s.entries(orders, 3, 4) })
	}},
	{"Where nothing is kept, it begins with what is to come", func(s *suite) {
		s.begun(6, func(w *transport.Wanted) []event.Envelope {
			w.After = 6
			return nil
		})
	}},
	{"The producer is told that a subscriber of another store is gone, once", func(s *suite) {
		port, h := s.misses()
		s.must("release", port.Release(s.Context(), h, false))
		s.must("unregister", s.Broker.Unregister(s.Context(), "billing"))
		over := func() (all []transport.Wanted) {
			wanted, err := s.Broker.Wanted(s.Context(), "order")
			s.must("wanted", err)
			for _, w := range wanted {
				if w.Over {
					all = append(all, w)
				}
			}
			return all
		}
		told := over()
		if len(told) != 1 || told[0].Unit.Name != "billing" || told[0].StoreID != "another-store" || told[0].Lane.Category != "order" {
			s.Fatalf("told %+v", told)
		}
		s.must("settle", s.Broker.Serve(s.Context(), told[0], nil))
		s.same("after it was settled", 0, len(over()))
	}},
	{"The producer is not told of its own", func(s *suite) {
		own := s.id.StoreID
		s.must("declare", s.Broker.Declare(s.Context(), transport.Declared{StoreID: own, Categories: []transport.Produced{{Category: "order", KeyField: "id", StoreID: own}},
			Subscribers: []transport.Subscriber{{Name: "shipping", Category: "order", StoreID: own, Kind: "handler"}}}))
		s.must("unregister", s.Broker.Unregister(s.Context(), "shipping"))
		wanted, err := s.Broker.Wanted(s.Context(), "order")
		s.must("wanted", err)
		s.same("wanted", 0, len(wanted))
	}},
	{"A trim leaves what a subscriber of another store has not acknowledged, registered or named", func(s *suite) {
		port, h := s.misses()
		s.must("release", port.Release(s.Context(), h, false))
		trim := func(subscribers ...string) {
			s.each("trim", s.Broker.Trim(s.Context(), []transport.Trim{{Lane: orders, Through: 5, Subscribers: subscribers}}), nil)
		}
		trim()
		s.same("registered", s.entries(orders, 5, 6), s.read(orders, 4))
		s.must("unregister", s.Broker.Unregister(s.Context(), "billing"))
		trim("audit")
		s.same("named", s.entries(orders, 5, 6), s.read(orders, 4))
		trim()
		s.same("nobody's", s.entries(orders, 6, 6), s.read(orders, 5))
	}},
	{"The beginnings of a category are behind the newest entries, or before the first that are late enough", func(s *suite) {
		for i, lane := range []event.LaneRef{orders, others} {
			run := s.entries(lane, 4, 7)
			for k := range run {
				run[k].Time = beginning.Add(time.Duration(k-2*i) * time.Hour) // of orders all are late enough
			}
			s.append(transport.Append{Lane: lane, Start: true, Entries: run})
		}
		now, err := s.Broker.Beginnings(s.Context(), "order", nil)
		s.must("beginnings", err)
		s.places(map[event.LaneRef]event.Sequence{orders: 7, others: 7}, now)
		from := beginning
		some, err := s.Broker.Beginnings(s.Context(), "order", &from)
		s.must("beginnings", err)
		s.places(map[event.LaneRef]event.Sequence{others: 5}, some)
		from = beginning.Add(24 * time.Hour)
		late, err := s.Broker.Beginnings(s.Context(), "order", &from)
		s.must("beginnings", err)
		s.places(map[event.LaneRef]event.Sequence{orders: 7, others: 7}, late)
		none, err := s.Broker.Beginnings(s.Context(), "payment", nil)
		s.must("beginnings", err)
		s.places(nil, none)
	}},
	{"Nothing is wanted of other categories", func(s *suite) {
		s.misses()
		wanted, err := s.Broker.Wanted(s.Context(), "payment")
		if err != nil || len(wanted) != 0 {
			s.Errorf("got %+v, %v", wanted, err)
		}
	}},
}

// misses makes a subscriber of another application that misses what lies before a stream, and has asked for it.
func (s *suite) misses() (partitions.Port, partitions.Held) {
	s.Helper()
	b, _, h := s.abroad()
	s.start(orders, 5, 6)
	got, err := b.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders, Sequence: 1, EventID: entryID(orders, 1)}}, 10)
	if err == nil && (got.Gap || len(got.Entries) > 0) {
		s.Fatalf("got %+v while the producer is asked", got)
	}
	return b.Port(), h
}

// gone takes a stream of which a subscriber of another application has read the first of three entries, and looks that it asks for the others, and for them alone.
func (s *suite) gone(lane event.LaneRef) {
	s.Helper()
	if s.Delete == nil {
		s.Skip("this harness cannot take a stream")
	}
	b, _, h := s.abroad()
	read := func(seq event.Sequence) (partitions.Fetched, error) {
		return b.Port().Advance(s.Context(), h, []event.Position{{Lane: lane, Sequence: seq, EventID: entryID(lane, seq)}}, 10)
	}
	s.append(transport.Append{Lane: lane, Start: true, Entries: s.entries(lane, 1, 3), Subscribers: []string{"billing"}})
	s.Delete(s.T, lane)
	for range 2 {
		if got, err := read(1); err == nil {
			s.Fatalf("got %+v while the producer is asked", got)
		}
	}
	s.same("has work", []string{billing.Key}, s.busy("billing"))
	wanted, err := s.Broker.Wanted(s.Context(), "order")
	s.must("wanted", err)
	if len(wanted) != 1 || wanted[0].Unit != billing || wanted[0].Lane != lane || wanted[0].After != 1 {
		s.Fatalf("wanted %+v", wanted)
	}
	s.must("serve", s.Broker.Serve(s.Context(), wanted[0], s.entries(lane, 2, 3)))
	got, err := read(1)
	s.must("read what was served", err)
	s.same("what was lost", s.entries(lane, 2, 3), got.Entries)
	if got, err = read(3); err != nil || !got.Drained || len(got.Entries) > 0 {
		s.Errorf("%+v, %v; want that there is nothing more", got, err)
	}
	wanted, err = s.Broker.Wanted(s.Context(), "order")
	s.must("wanted", err)
	s.same("wanted", 0, len(wanted))
}

// beginning is from when on billing begins.
var beginning = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// begun has the producer answer a subscriber of another application that has no place in a lane whose stream has lost its beginning, and looks where it begins.
func (s *suite) begun(want event.Sequence, serve func(*transport.Wanted) []event.Envelope) {
	s.Helper()
	b, store, h := s.abroad()
	s.start(orders, 5, 6)
	if got, err := b.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders}}, 10); err == nil && (got.Gap || len(got.Entries) > 0) {
		s.Fatalf("got %+v while the producer is asked", got)
	}
	wanted, err := s.Broker.Wanted(s.Context(), "order")
	s.must("wanted", err)
	if len(wanted) != 1 || !wanted[0].Begin || wanted[0].Unit != billing || wanted[0].After != 0 || !wanted[0].From.Equal(beginning) {
		s.Fatalf("got %+v, want where billing begins from %v on", wanted, beginning)
	}
	run := serve(&wanted[0])
	s.must("serve", s.Broker.Serve(s.Context(), wanted[0], run))
	if _, err = b.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders}}, 10); !errors.Is(err, partitions.ErrFenced) {
		s.Fatalf("got %v, want that the unit is to recover", err)
	}
	known, err := store.Recover(s.Context(), []eventstore.Ask{{Unit: billing, Lanes: []event.LaneRef{orders}}})
	s.must("recover", err)
	s.same("place", want, known[0].Checkpoints[0].Sequence)
	h = s.acquire(b, billing)
	got, err := b.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders, Sequence: want}}, 10)
	s.must("fetch", err)
	if len(run) == 0 {
		s.same("what is to come", 0, len(got.Entries))
		return
	}
	if len(got.Entries) == 0 {
		s.Fatalf("got %+v, want what was served", got)
	}
	s.same("the first", s.entries(orders, want+1, want+event.Sequence(len(got.Entries))), got.Entries)
}

// places compares beginnings with what is wanted.
func (s *suite) places(want map[event.LaneRef]event.Sequence, got []event.Position) {
	s.Helper()
	found := make(map[event.LaneRef]event.Sequence)
	for _, at := range got {
		found[at.Lane] = at.Sequence
		if at.EventID != entryID(at.Lane, at.Sequence) {
			s.Errorf("%s #%d is event %q", at.Lane, at.Sequence, at.EventID)
		}
	}
	s.same("places", want, found)
}

// abroad makes an application with another store, whose handler billing holds its unit.
func (s *suite) abroad() (Leasing, eventstore.Store, partitions.Held) {
	s.Helper()
	if s.Foreign == nil {
		s.Skip("this harness has no application with another store")
	}
	theirs := memory.Open()
	_, err := theirs.Start(s.Context(), eventstore.StartOptions{Node: "theirs", Relayed: true})
	s.must("start their store", err)
	s.Cleanup(func() { _ = theirs.Stop(context.WithoutCancel(s.Context())) })
	s.must("declare", s.Broker.Declare(s.Context(), transport.Declared{StoreID: s.id.StoreID, Categories: []transport.Produced{{Category: "order", KeyField: "id", StoreID: s.id.StoreID}}}))
	b := s.connected(s.Foreign(s.T, theirs, "another-store"))
	s.must("declare", b.Declare(s.Context(), transport.Declared{StoreID: "another-store", Categories: []transport.Produced{{Category: "order", KeyField: "id"}},
		Subscribers: []transport.Subscriber{{Name: "billing", Category: "order", StoreID: "another-store", Kind: "handler", Begins: beginning}}}))
	h := s.acquire(b, billing)
	_, err = theirs.Raise(s.Context(), []eventstore.Ask{{Unit: h.Unit, Generation: h.Generation}})
	s.must("raise", err)
	return b, theirs, h
}
