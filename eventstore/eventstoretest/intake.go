package eventstoretest

import (
	"fmt"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// sale is a stream that another program writes.
func sale(key string) eventstore.SourceRef {
	return eventstore.SourceRef{Category: "sale", Key: key, Source: "crm"}
}

// take takes events in, and moves the place from a revision to an entry.
func (f *fixture) take(of eventstore.SourceRef, revision uint64, entry string, added uint64, events ...event.Envelope) eventstore.Changes {
	t := eventstore.Take{SourceRef: of, Revision: revision, To: event.SourcePlace{Entry: entry, Added: added}, Time: base}
	for i := range events {
		t.IDs = append(t.IDs, events[i].ID)
	}
	return eventstore.Changes{Publish: events, Take: []eventstore.Take{t}}
}

func (f *fixture) taken(of eventstore.SourceRef, ids ...string) eventstore.Taken {
	f.Helper()
	got, err := f.store.Taken(f.ctx, []eventstore.TakenAsk{{SourceRef: of, IDs: ids}})
	f.must(err)
	if len(got) != 1 {
		f.Fatalf("%d answers to one question", len(got))
	}
	return got[0]
}

var intakes = []check{
	{"of what was never taken in nothing is known", func(f *fixture) {
		f.same("taken", f.taken(sale("a"), "e-1"), eventstore.Taken{Known: []bool{false}})
	}},
	{"the place moves and the events are there in one commit", func(f *fixture) {
		events := f.events("sale", "a", 2)
		f.commit(f.take(sale("a"), 0, "17-0", 2, events...))
		f.same("lane", f.lane(lane("sale", "a")), f.placed(1, events...))
		f.same("taken", f.taken(sale("a"), events[1].ID, "other", events[0].ID),
			eventstore.Taken{Place: event.SourcePlace{Entry: "17-0", Added: 2}, Revision: 1, Known: []bool{true, false, true}})
	}},
	{"a place that another has moved is not moved, and nothing is committed", func(f *fixture) {
		f.commit(f.take(sale("a"), 0, "17-0", 1, f.event("sale", "a")))
		for _, revision := range []uint64{0, 2} {
			f.refused(f.take(sale("a"), revision, "18-0", 2, f.event("sale", "a")), eventstore.ErrTakenMoved)
		}
		f.same("tail", f.tail(lane("sale", "a")), event.Sequence(1))
		f.same("taken", f.taken(sale("a")), eventstore.Taken{Place: event.SourcePlace{Entry: "17-0", Added: 1}, Revision: 1})
		f.refused(f.take(sale("b"), 1, "18-0", 2), eventstore.ErrTakenMoved)
	}},
	{"of many that take in the same at once one does", func(f *fixture) {
		for revision := range uint64(3) {
			var wg sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				c := f.take(sale("a"), revision, fmt.Sprint(revision+1, "-0"), revision+1, f.event("sale", "a"))
				wg.Go(func() { _, errs[i] = f.try(c) })
			}
			wg.Wait()
			done := 0
			for _, err := range errs {
				if err == nil {
					done++
					continue
				}
				f.is(err, eventstore.ErrTakenMoved)
			}
			f.same("done", done, 1)
			f.same("tail", f.tail(lane("sale", "a")), event.Sequence(revision+1))
		}
	}},
	{"a place may go back, for the stream may be another", func(f *fixture) {
		f.commit(f.take(sale("a"), 0, "17-0", 9))
		f.commit(f.take(sale("a"), 1, "3-0", 1))
		f.same("taken", f.taken(sale("a")), eventstore.Taken{Place: event.SourcePlace{Entry: "3-0", Added: 1}, Revision: 2})
	}},
	{"sources have places of their own, and keys event ids", func(f *fixture) {
		other := sale("a")
		other.Source = "shop"
		e := f.event("sale", "a")
		f.commit(f.take(sale("a"), 0, "17-0", 1, e))
		f.same("of the other source", f.taken(other, e.ID), eventstore.Taken{Known: []bool{true}})
		f.same("of another key", f.taken(sale("b"), e.ID), eventstore.Taken{Known: []bool{false}})
	}},
	{"several streams are taken in together, or not at all", func(f *fixture) {
		a, b := f.take(sale("a"), 0, "17-0", 1, f.event("sale", "a")), f.take(sale("b"), 0, "18-0", 1, f.event("sale", "b"))
		both := eventstore.Changes{Publish: append(a.Publish, b.Publish...), Take: append(b.Take, a.Take...)}
		f.commit(both)
		both.Take[0].Revision = 1
		f.refused(both, eventstore.ErrTakenMoved)
		got, err := f.store.Taken(f.ctx, []eventstore.TakenAsk{{SourceRef: sale("b")}, {SourceRef: sale("c")}, {SourceRef: sale("a"), IDs: a.Take[0].IDs}})
		f.must(err)
		f.same("taken", got, []eventstore.Taken{
			{Place: event.SourcePlace{Entry: "18-0", Added: 1}, Revision: 1}, {},
			{Place: event.SourcePlace{Entry: "17-0", Added: 1}, Revision: 1, Known: []bool{true}},
		})
	}},
	{"a stream must be named, once, and so must events", func(f *fixture) {
		twice := f.take(sale("a"), 0, "17-0", 1)
		twice.Take = append(twice.Take, twice.Take[0])
		nameless := f.take(sale("a"), 0, "17-0", 1)
		nameless.Take[0].IDs = []string{""}
		for _, c := range []eventstore.Changes{twice, nameless, f.take(eventstore.SourceRef{Category: "sale", Key: "a"}, 0, "17-0", 1), f.take(sale(""), 0, "17-0", 1)} {
			if _, err := f.try(c); err == nil {
				f.Errorf("committed %+v", c.Take)
			}
		}
	}},
	{"purge forgets event ids that are old, in batches, and no place", func(f *fixture) {
		old := f.take(sale("a"), 0, "17-0", 3)
		old.Take[0].IDs = []string{"x", "y", "z"}
		young := f.take(sale("a"), 1, "18-0", 4)
		young.Take[0].IDs, young.Take[0].Time = []string{"x", "v"}, base.Add(time.Hour) // x keeps its time
		f.commit(old)
		f.commit(young)
		f.same("at the time itself", f.purgeAll(base), 0)
		f.same("a batch", f.purge(base.Add(time.Minute), 2), 2)
		f.same("the rest", f.purgeAll(base.Add(time.Minute)), 1)
		f.same("taken", f.taken(sale("a"), "x", "y", "z", "v"),
			eventstore.Taken{Place: event.SourcePlace{Entry: "18-0", Added: 4}, Revision: 2, Known: []bool{false, false, false, true}})
	}},
	{"an overview tells what was gone before it was taken in", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Categories: []eventstore.Category{{Name: "order", KeyField: "id"}, {Name: "sale", KeyField: "client"}}}, nil))
		lose := func(key string, revision, n uint64, at time.Time) {
			c := f.take(sale(key), revision, "17-0", 3)
			c.Take[0].Lost, c.Take[0].Time = n, at
			f.commit(c)
		}
		lose("a", 0, 2, base)
		lose("a", 1, 3, base.Add(time.Minute))
		lose("a", 2, 0, base.Add(time.Hour))
		lose("b", 0, 1, base)
		f.same("of the stream", f.taken(sale("a")).Lost, uint64(5))
		o, err := f.store.Overview(f.ctx)
		f.must(err)
		f.same("of order", o.Categories[0].Lost, uint64(0))
		f.same("of sale", o.Categories[1].Lost, uint64(6))
		f.same("when", o.Categories[1].LostAt, base.Add(time.Minute))
	}},
	{"what was taken in is known to the next start", func(f *fixture) {
		e := f.event("sale", "a")
		f.commit(f.take(sale("a"), 0, "17-0", 1, e))
		f.restart(f.crash)
		f.same("taken", f.taken(sale("a"), e.ID), eventstore.Taken{Place: event.SourcePlace{Entry: "17-0", Added: 1}, Revision: 1, Known: []bool{true}})
	}},
}
