package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var appends = []check{
	{"Where the broker has nothing of the lane it begins with what is to start it", func(s *suite) {
		s.start(orders, 7, 9)
		s.same("the stream", s.entries(orders, 7, 9), s.read(orders, 6))
	}},
	{"Without Start nothing begins, and the answer is empty", func(s *suite) {
		s.same("append", told(transport.AppendEmpty, orders, 0), s.run(orders, 1, 3))
		s.same("the stream", s.entries(orders, 1, 0), s.read(orders, 0))
	}},
	{"The run after the newest is appended", func(s *suite) {
		s.start(orders, 1, 2)
		s.same("append", told(transport.AppendOK, orders, 5), s.run(orders, 3, 5))
		s.same("the stream", s.entries(orders, 1, 5), s.read(orders, 0))
	}},
	{"Start means nothing where the broker has something", func(s *suite) {
		s.start(orders, 1, 2)
		got := s.append(transport.Append{Lane: orders, Entries: s.entries(orders, 5, 6), Start: true})
		s.same("append", told(transport.AppendGap, orders, 2), got)
		s.start(orders, 3, 4)
		s.same("the stream", s.entries(orders, 1, 4), s.read(orders, 0))
	}},
	{"A run beyond the next is a gap, and nothing is appended", func(s *suite) {
		s.start(orders, 1, 2)
		s.same("append", told(transport.AppendGap, orders, 2), s.run(orders, 4, 6))
		s.same("the stream", s.entries(orders, 1, 2), s.read(orders, 0))
	}},
	{"An append is idempotent", func(s *suite) {
		s.start(orders, 1, 3)
		s.start(orders, 1, 3)
		s.same("append", told(transport.AppendOK, orders, 5), s.run(orders, 4, 5))
		s.same("append", told(transport.AppendOK, orders, 5), s.run(orders, 4, 5))
		s.same("the stream", s.entries(orders, 1, 5), s.read(orders, 0))
	}},
	{"Of a run that holds the very newest entry, what follows is appended", func(s *suite) {
		s.start(orders, 1, 4)
		s.same("append", told(transport.AppendOK, orders, 6), s.run(orders, 2, 6))
		s.same("the stream", s.entries(orders, 1, 6), s.read(orders, 0))
	}},
	{"A run that ends below the newest is dup", func(s *suite) {
		s.start(orders, 1, 5)
		s.same("append", told(transport.AppendDup, orders, 5), s.run(orders, 2, 4))
		s.same("the stream", s.entries(orders, 1, 5), s.read(orders, 0))
	}},
	{"A run with another entry at the newest sequence is dup, and nothing is appended", func(s *suite) {
		s.start(orders, 1, 3)
		run := s.entries(orders, 2, 5)
		run[1].ID = "another"
		s.same("append", told(transport.AppendDup, orders, 3), s.append(transport.Append{Lane: orders, Entries: run, Start: true}))
		s.same("the stream", s.entries(orders, 1, 3), s.read(orders, 0))
	}},
	{"Voids are carried as they are", func(s *suite) {
		run := s.entries(orders, 1, 2)
		run[0] = event.Envelope{ID: run[0].ID, Category: orders.Category, Key: orders.Key, Time: run[0].Time, Sequence: 1, StoreID: s.id.StoreID}
		s.append(transport.Append{Lane: orders, Entries: run, Start: true})
		s.same("the stream", run, s.read(orders, 0))
	}},
	{"The result has one element for each run, in that order", func(s *suite) {
		s.start(orders, 1, 1)
		s.start(payments, 1, 4)
		got := s.Broker.Append(s.Context(), []transport.Append{
			{Lane: others, Entries: s.entries(others, 1, 2), Start: true},
			{Lane: payments, Entries: s.entries(payments, 2, 3)},
			{Lane: backfill(orders), Entries: s.entries(backfill(orders), 1, 1)},
			{Lane: orders, Entries: s.entries(orders, 3, 3)},
			{Lane: backfill(others), Entries: s.entries(backfill(others), 3, 3), Start: true},
			{Lane: event.LaneRef{Category: "order", Key: "k-3"}},
		})
		s.same("answers", []transport.Appended{
			told(transport.AppendOK, others, 2), told(transport.AppendDup, payments, 4), told(transport.AppendEmpty, orders, 0),
			told(transport.AppendGap, orders, 1), told(transport.AppendOK, backfill(others), 3), told(transport.AppendEmpty, orders, 0),
		}, got)
		if got := s.Broker.Append(s.Context(), nil); len(got) != 0 {
			s.Errorf("no runs: %v", got)
		}
	}},
	{"Both lanes of a key are streams of their own", func(s *suite) {
		s.start(orders, 1, 2)
		s.start(backfill(orders), 5, 6)
		s.same("primary", s.entries(orders, 1, 2), s.read(orders, 0))
		s.same("backfill", s.entries(backfill(orders), 5, 6), s.read(backfill(orders), 4))
	}},
	{"Keys are marked busy for the subscribers named, whatever the outcome", func(s *suite) {
		s.start(others, 1, 3)
		s.append(transport.Append{Lane: orders, Entries: s.entries(orders, 1, 1), Start: true, Subscribers: []string{"shipping", "billing"}})
		s.append(transport.Append{Lane: others, Entries: s.entries(others, 1, 2), Subscribers: []string{"shipping"}})
		s.append(transport.Append{Lane: others, Entries: s.entries(others, 9, 9), Subscribers: []string{"gap"}})
		s.append(transport.Append{Lane: others, Subscribers: []string{"none"}})
		for name, want := range map[string][]string{"shipping": {"k-1", "k-2"}, "billing": {"k-1"}, "gap": {"k-2"}, "none": {"k-2"}, "stranger": nil} {
			s.same("busy of "+name, want, s.busy(name))
		}
	}},
	{"Many nodes that append one lane at once make one run", func(s *suite) {
		nodes := []Leasing{s.Broker, s.other(), s.other()}
		var wg sync.WaitGroup
		for _, b := range nodes {
			wg.Go(func() {
				for seq := event.Sequence(1); seq <= 40; seq++ {
					got := b.Append(s.Context(), []transport.Append{{Lane: orders, Entries: s.entries(orders, seq, seq), Start: seq == 1}})[0]
					if got.Err != nil || got.Outcome != transport.AppendOK && got.Outcome != transport.AppendDup {
						s.Errorf("append %d: %+v", seq, got)
					}
				}
			})
		}
		wg.Wait()
		s.same("the stream", s.entries(orders, 1, 40), s.read(orders, 0))
	}},
	{"A stream keeps MaxAhead entries, the newest", func(s *suite) {
		if s.MaxAhead == 0 {
			s.Skip("this harness does not say how many that is")
		}
		last := event.Sequence(s.MaxAhead)
		s.start(orders, 1, last)
		s.same("all are kept", event.Sequence(1), s.read(orders, 0)[0].Sequence)
		s.same("append", told(transport.AppendOK, orders, last+5), s.run(orders, last+1, last+5))
		if got := s.read(orders, 0); len(got) > 0 {
			s.Errorf("entries below what is kept: %v", got[0].Sequence)
		}
		s.same("kept", s.MaxAhead, len(s.read(orders, 5)))
	}},
	{"Out of memory is said for each run that has entries, and ends", func(s *suite) {
		if s.Fill == nil {
			s.Skip("this broker is never full")
		}
		s.start(orders, 1, 1)
		s.Fill(s.T, true)
		got := s.Broker.Append(s.Context(), []transport.Append{{Lane: orders, Entries: s.entries(orders, 2, 2)}, {Lane: payments, Entries: s.entries(payments, 1, 1), Start: true}})
		for i := range got {
			if !errors.Is(got[i].Err, transport.ErrFull) {
				s.Errorf("run %d: got %+v, want ErrFull", i, got[i])
			}
		}
		s.same("the stream", s.entries(orders, 1, 1), s.read(orders, 0))
		s.Fill(s.T, false)
		s.same("afterwards", told(transport.AppendOK, orders, 2), s.run(orders, 2, 2))
	}},
	{"A cancelled context ends a call", func(s *suite) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		for i, a := range s.Broker.Append(ctx, []transport.Append{{Lane: orders, Entries: s.entries(orders, 1, 1), Start: true}, {Lane: others}}) {
			if !errors.Is(a.Err, context.Canceled) {
				s.Errorf("append %d: %v", i, a.Err)
			}
		}
		s.each("trim", s.Broker.Trim(ctx, []transport.Trim{{Lane: orders}}), context.Canceled)
		s.each("retire", s.Broker.Retire(ctx, []transport.Retire{{Lane: orders}}), context.Canceled)
	}},
}

var newest = []check{
	{"A run without entries tells the newest", func(s *suite) {
		s.start(orders, 1, 3)
		s.same("asked", told(transport.AppendOK, orders, 3), s.ask(orders))
		s.same("of an empty lane", told(transport.AppendEmpty, orders, 0), s.ask(others))
		s.same("of an empty lane, to start it", told(transport.AppendEmpty, orders, 0), s.append(transport.Append{Lane: others, Start: true}))
	}},
	{"After a loss of memory every lane is empty", func(s *suite) {
		s.start(orders, 1, 3)
		s.Forget(s.T)
		s.same("asked", told(transport.AppendEmpty, orders, 0), s.ask(orders))
		s.same("append", told(transport.AppendEmpty, orders, 0), s.run(orders, 4, 4))
		s.start(orders, 3, 4)
	}},
	{"A stream that was deleted is empty", func(s *suite) {
		if s.Delete == nil {
			s.Skip("this harness deletes no stream")
		}
		s.start(orders, 1, 3)
		s.Delete(s.T, orders)
		s.same("append", told(transport.AppendEmpty, orders, 0), s.run(orders, 4, 4))
		s.start(orders, 2, 4)
		s.same("the stream", s.entries(orders, 2, 4), s.read(orders, 1))
	}},
	{"A stream that lost its tail tells what it has", func(s *suite) {
		if s.LoseTail == nil {
			s.Skip("this harness loses no tail")
		}
		s.start(orders, 1, 5)
		s.LoseTail(s.T, orders, 2)
		s.same("append", told(transport.AppendGap, orders, 3), s.run(orders, 6, 6))
		s.same("asked", told(transport.AppendOK, orders, 3), s.ask(orders))
		s.same("append", told(transport.AppendOK, orders, 6), s.run(orders, 4, 6))
		s.same("the stream", s.entries(orders, 1, 6), s.read(orders, 0))
	}},
	{"Many lanes go in one call", func(s *suite) {
		const n = 300
		runs := make([]transport.Append, n)
		for i := range runs {
			lane := event.LaneRef{Category: "order", Key: fmt.Sprintf("m-%d", i)}
			runs[i] = transport.Append{Lane: lane, Entries: s.entries(lane, 1, 2), Start: true, Subscribers: []string{"shipping"}}
		}
		for i, got := range s.Broker.Append(s.Context(), runs) {
			s.same(fmt.Sprint("answer ", i), told(transport.AppendOK, runs[i].Lane, 2), got)
		}
		s.same("busy", n, len(s.busy("shipping")))
		live, err := s.Broker.Partitions(s.Context(), "order")
		if err != nil || live != n {
			s.Errorf("%d keys are live, %v; want %d", live, err, n)
		}
	}},
}
