package eventstoretest

import (
	"errors"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var order7 = event.Stream{Kind: "order", ID: "7"}

var streams = []check{
	{"every field of an event comes back as it was", func(f *fixture) {
		e := f.event("order", "client-1")
		e.Version, e.Encoding, e.Data = 3, event.Proto, []byte{0, 0xff, '\'', 0}
		e.Tenant, e.CorrelationID, e.CausationID = "tenant", "correlation", "causation"
		e.Trace = event.Trace{Parent: "00-trace-01", State: "k=v"}
		e.Key = "clé 1 'quoted'"
		e.Lane = event.Backfill
		e.Time = base.Add(123 * 1e6)
		f.emit(order7, 0, e)
		want := ofStream(order7, 1, f.placed(1, e))
		f.same("stream", f.stream(order7), want)
		f.same("lane", f.lane(e.Ref()), want)
	}},
	{"an event without data comes back without data", func(f *fixture) {
		e := f.event("order", "client-1")
		e.Data = nil
		f.emit(order7, 0, e)
		f.same("stream", f.stream(order7), ofStream(order7, 1, f.placed(1, e)))
	}},
	{"versions count 1, 2, 3 and the commit tells the last", func(f *fixture) {
		first := f.events("order", "client-1", 2)
		f.same("versions", f.emit(order7, 0, first...).Versions, []uint64{2})
		second := f.events("order", "client-1", 1)
		f.same("versions", f.emit(order7, 2, second...).Versions, []uint64{3})
		f.same("stream", f.stream(order7), ofStream(order7, 1, f.placed(1, append(first, second...)...)))
	}},
	{"what an envelope says of its place is ignored", func(f *fixture) {
		given := f.event("order", "client-1")
		given.Stream, given.StreamVersion = event.Stream{Kind: "other", ID: "1"}, 9
		given.Sequence, given.StoreID = 9, "other"
		f.emit(order7, 0, given)
		f.same("stream", f.stream(order7), ofStream(order7, 1, f.placed(1, given)))
		published := given
		published.ID = "published"
		f.publish(published)
		published.Stream, published.StreamVersion = event.Stream{}, 0
		f.same("lane", f.laneAfter(given.Ref(), 1), f.placed(2, published))
	}},
	{"the events given are not changed", func(f *fixture) {
		events := f.events("order", "client-1", 2)
		before := append([]event.Envelope(nil), events...)
		f.emit(order7, 0, events...)
		f.same("events", events, before)
		published := f.events("order", "client-1", 2)
		before = append([]event.Envelope(nil), published...)
		f.publish(published...)
		f.same("events", published, before)
	}},
	{"what a read returned may be changed", func(f *fixture) {
		f.commit(eventstore.Changes{
			Append:   []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 2)}},
			Snapshot: &eventstore.Snapshot{Stream: order7, Version: 2, Data: []byte("state")},
			Reply:    &eventstore.Reply{Stream: order7, CommandID: "c-1", Data: []byte("reply"), Time: base},
		})
		data := func() []string {
			var out []string
			for _, page := range [][]event.Envelope{f.stream(order7), f.lane(orders), f.everything(10)} {
				for i := range page {
					out = append(out, page[i].ID+string(page[i].Data))
				}
			}
			return append(out, string(f.snapshot(order7).Data), string(f.reply(order7, "c-1").Data))
		}
		want := data()
		for _, page := range [][]event.Envelope{f.stream(order7), f.lane(orders), f.everything(10)} {
			second := string(page[1].Data)
			_ = append(page[0].Data, '!')
			f.same("the next event", string(page[1].Data), second)
			for i := range page {
				page[i].ID, page[i].Data[0] = "changed", 'X'
			}
		}
		f.snapshot(order7).Data[0], f.reply(order7, "c-1").Data[0] = 'X', 'X'
		f.same("data", data(), want)
	}},
	{"a stream that does not exist is empty", func(f *fixture) {
		f.same("stream", f.stream(order7), []event.Envelope{})
	}},
	{"pages of a stream continue after a version", func(f *fixture) {
		f.emit(order7, 0, f.events("order", "client-1", 5)...)
		all := f.stream(order7)
		for _, page := range []struct {
			after    uint64
			limit    int
			from, to int
		}{{0, 2, 0, 2}, {2, 2, 2, 4}, {4, 2, 4, 5}, {5, 2, 5, 5}, {9, 2, 5, 5}, {0, 5, 0, 5}} {
			got, err := f.store.ReadStream(f.ctx, order7, page.after, page.limit)
			f.must(err)
			f.same("page", got, all[page.from:page.to])
		}
	}},
	{"kind and id both tell streams apart", func(f *fixture) {
		for _, s := range []event.Stream{{Kind: "a", ID: "b/c"}, {Kind: "a/b", ID: "c"}, {Kind: "a", ID: "b"}, {Kind: "b", ID: "b/c"}} {
			f.emit(s, 0, f.event("order", "client-1"))
			if got := f.stream(s); len(got) != 1 || got[0].Stream != s {
				f.Fatalf("stream %+v holds %+v", s, got)
			}
		}
	}},
	{"a wrong expected version is a conflict that names both versions", func(f *fixture) {
		f.emit(order7, 0, f.events("order", "client-1", 2)...)
		for _, expected := range []uint64{0, 1, 3} {
			err := f.refused(eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Expected: expected, Events: f.events("order", "client-1", 1)}}}, eventstore.ErrVersionConflict)
			var conflict *eventstore.VersionError
			if !errors.As(err, &conflict) {
				f.Fatalf("%v is no *VersionError", err)
			}
			f.same("conflict", *conflict, eventstore.VersionError{Stream: order7, Expected: expected, Actual: 2})
		}
	}},
	{"a stream expected but missing is a conflict at version 0", func(f *fixture) {
		err := f.refused(eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Expected: 1, Events: f.events("order", "client-1", 1)}}}, eventstore.ErrVersionConflict)
		var conflict *eventstore.VersionError
		if !errors.As(err, &conflict) || conflict.Actual != 0 {
			f.Fatalf("got %v", err)
		}
	}},
	{"a conflict leaves nothing of the unit of work", func(f *fixture) {
		f.emit(order7, 0, f.event("order", "client-1"))
		other, unit := event.Stream{Kind: "order", ID: "8"}, event.Unit{Name: "shipping", Key: "client-1"}
		f.refused(eventstore.Changes{
			Fence: eventstore.Fence{Unit: unit},
			Append: []eventstore.Append{
				{Stream: other, Events: f.events("order", "client-1", 2)},
				{Stream: order7, Expected: 0, Events: f.events("order", "client-1", 1)},
			},
			Publish:  f.events("audit", "client-1", 1),
			Advance:  []eventstore.Advance{{Lane: lane("order", "client-1"), To: 1}},
			Snapshot: &eventstore.Snapshot{Stream: other, Version: 2, StateVersion: 1},
			Reply:    &eventstore.Reply{Stream: other, CommandID: "c-1", Time: base},
			Halt:     &eventstore.Halt{Unit: unit, Lane: lane("order", "client-1"), Sequence: 2, Since: base},
			Dead:     []eventstore.Dead{{Unit: unit, Lane: lane("order", "client-1"), Sequence: 1, Time: base}},
		}, eventstore.ErrVersionConflict)
		f.nothingOf(unit, other)
		f.same("tail", f.tail(lane("order", "client-1")), event.Sequence(1))
		f.same("tail", f.tail(lane("audit", "client-1")), event.Sequence(0))
		f.same("next", f.publish(f.events("order", "client-1", 1)...).Tails[0].First, event.Sequence(2))
	}},
	{"several streams in one unit of work", func(f *fixture) {
		other := event.Stream{Kind: "order", ID: "8"}
		f.emit(order7, 0, f.event("order", "client-1"))
		done := f.commit(eventstore.Changes{Append: []eventstore.Append{
			{Stream: other, Events: f.events("order", "client-1", 2)},
			{Stream: order7, Expected: 1, Events: f.events("order", "client-1", 1)},
		}})
		f.same("versions", done.Versions, []uint64{2, 2})
		f.same("lane", sequences(f.lane(lane("order", "client-1"))), upTo(4))
	}},
	{"of writers at one expected version one wins", func(f *fixture) {
		const writers = 8
		var (
			group sync.WaitGroup
			won   = make(chan string, writers)
		)
		for range writers {
			e := f.event("order", "client-1")
			group.Go(func() {
				switch _, err := f.try(eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Events: []event.Envelope{e}}}}); {
				case err == nil:
					won <- e.ID
				case !errors.Is(err, eventstore.ErrVersionConflict):
					f.Errorf("commit: %v", err)
				}
			})
		}
		group.Wait()
		close(won)
		f.same("stream", ids(f.stream(order7)), []string{<-won})
		if more, open := <-won; open {
			f.Fatalf("%s won too", more)
		}
		f.same("tail", f.tail(lane("order", "client-1")), event.Sequence(1))
	}},
	{"a reply is found by its command, as it was", func(f *fixture) {
		reply := eventstore.Reply{
			Stream: order7, CommandID: "c-1", Command: "order.place", Type: "order.placed_reply", Version: 3,
			Encoding: event.Proto, Data: []byte{0, 1, 0xff}, Time: base,
		}
		rejected := eventstore.Reply{Stream: order7, CommandID: "c-2", Command: "order.place", Rejected: "already placed", Time: base}
		f.commit(eventstore.Changes{Reply: &reply, Append: []eventstore.Append{{Stream: order7, Events: f.events("order", "client-1", 1)}}})
		f.commit(eventstore.Changes{Reply: &rejected})
		f.same("reply", f.reply(order7, "c-1"), &reply)
		f.same("reply", f.reply(order7, "c-2"), &rejected)
		f.same("reply", f.reply(order7, "c-3"), (*eventstore.Reply)(nil))
		f.same("reply", f.reply(event.Stream{Kind: "order", ID: "8"}, "c-1"), (*eventstore.Reply)(nil))
	}},
	{"the first reply to a command stays", func(f *fixture) {
		f.commit(eventstore.Changes{Reply: &eventstore.Reply{Stream: order7, CommandID: "c-1", Data: []byte("first"), Time: base}})
		f.commit(eventstore.Changes{Reply: &eventstore.Reply{Stream: order7, CommandID: "c-1", Data: []byte("second"), Time: base}})
		f.same("reply", string(f.reply(order7, "c-1").Data), "first")
	}},
	{"the newest snapshot wins", func(f *fixture) {
		f.same("snapshot", f.snapshot(order7), (*eventstore.Snapshot)(nil))
		snapshot := func(version uint64, stateVersion int) *eventstore.Snapshot {
			return &eventstore.Snapshot{Stream: order7, Version: version, StateVersion: stateVersion, Data: []byte{byte(version)}, Encoding: event.JSON}
		}
		for _, step := range []struct{ save, want *eventstore.Snapshot }{
			{snapshot(5, 1), snapshot(5, 1)},
			{snapshot(3, 2), snapshot(5, 1)},
			{snapshot(5, 2), snapshot(5, 2)},
			{snapshot(8, 1), snapshot(8, 1)},
		} {
			f.commit(eventstore.Changes{Snapshot: step.save})
			f.same("snapshot", f.snapshot(order7), step.want)
		}
	}},
}

// nothingOf checks that no trace of a unit nor of a stream is there.
func (f *fixture) nothingOf(u event.Unit, s event.Stream) {
	f.Helper()
	l := lane("order", u.Key)
	f.same("unit", f.recover(u, l), eventstore.Recovered{Unit: u, Checkpoints: []event.Position{{Lane: l}}})
	f.same("stream", f.stream(s), []event.Envelope{})
	f.same("snapshot", f.snapshot(s), (*eventstore.Snapshot)(nil))
	f.same("reply", f.reply(s, "c-1"), (*eventstore.Reply)(nil))
	dead, err := f.store.ListDead(f.ctx, u.Name, event.Position{}, 10)
	f.must(err)
	f.same("dead letters", dead, []eventstore.Dead{})
}

func (f *fixture) reply(s event.Stream, id string) *eventstore.Reply {
	f.Helper()
	got, err := f.store.ReadReply(f.ctx, s, id)
	f.must(err)
	return got
}

func (f *fixture) snapshot(s event.Stream) *eventstore.Snapshot {
	f.Helper()
	got, err := f.store.ReadSnapshot(f.ctx, s)
	f.must(err)
	return got
}
