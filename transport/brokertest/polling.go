package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// Producer is a program that writes streams and knows nothing of Keyhold.
type Producer struct {
	// Write appends an entry with one field, and gives its id: that given, or with "" one of the broker's.
	Write func(t *testing.T, source, key, id, value string) string
	// Index puts a key into the index; Text makes something of a stream's name that is none.
	Index func(t *testing.T, source, key string)
	Text  func(t *testing.T, source, key string)
	// Shorten takes all but the newest n entries, Drop the stream.
	Shorten func(t *testing.T, source, key string, n int)
	Drop    func(t *testing.T, source, key string)
}

func (s *suite) indexed() []string {
	s.Helper()
	return s.paged(func(cursor uint64) ([]string, uint64, error) { return s.Broker.Sources(s.Context(), "crm", cursor) })
}

// found has the broker look through everything once, and gives what is indexed then.
func (s *suite) found() []string {
	s.Helper()
	for from, n := "", 0; ; n++ {
		next, err := s.Broker.FindSources(s.Context(), "crm", from)
		s.must("find sources", err)
		if from = next; from == "" {
			return s.indexed()
		}
		if n == 1000 {
			s.Fatal("a round has no end")
		}
	}
}

// write writes numbers to a stream.
func (s *suite) write(key string, first, last int) (ids []string) {
	s.Helper()
	for n := first; n <= last; n++ {
		ids = append(ids, s.Producer.Write(s.T, "crm", key, "", fmt.Sprint(n)))
	}
	return ids
}

func (s *suite) readSource(key, above string, most int) transport.SourceRead {
	s.Helper()
	got := s.Broker.ReadSources(s.Context(), "crm", []transport.SourceAt{{Key: key, Entry: above}}, most)
	if len(got) != 1 {
		s.Fatalf("%d answers to one question", len(got))
	}
	return got[0]
}

// written gives ids and values of what was read.
func written(r transport.SourceRead) (ids, values []string) {
	for _, e := range r.Entries {
		ids = append(ids, e.ID)
		for _, f := range e.Fields {
			values = append(values, f.Value)
		}
	}
	return ids, values
}

func (s *suite) news(at ...transport.SourceAt) []bool {
	s.Helper()
	got, err := s.Broker.News(s.Context(), "crm", at)
	s.must("news", err)
	return got
}

var polled = []check{
	{"The index names keys, and only those of the source", func(s *suite) {
		s.same("of nothing", []string{}, s.indexed())
		s.Producer.Index(s.T, "crm", "a")
		s.Producer.Index(s.T, "crm", "b:odd") // whatever its producer wrote
		s.Producer.Index(s.T, "shop", "c")
		s.same("indexed", []string{"a", "b:odd"}, s.indexed())
	}},
	{"A stream that nobody put into the index is found", func(s *suite) {
		for i := range 40 {
			s.write(fmt.Sprint("k-", i), 1, 1)
		}
		s.Producer.Write(s.T, "crm2", "other", "", "1")
		s.Producer.Text(s.T, "crm", "text")
		s.start(event.LaneRef{Category: "order", Key: "k-1"}, 1, 1)
		s.Producer.Index(s.T, "crm", "k-7")
		want := []string{}
		for i := range 40 {
			want = append(want, fmt.Sprint("k-", i))
		}
		slices.Sort(want)
		s.same("indexed", want, s.found())
		s.same("of the other source", 0, len(s.paged(func(cursor uint64) ([]string, uint64, error) { return s.Broker.Sources(s.Context(), "crm2", cursor) })))
	}},
	{"A source whose name has signs of a pattern is taken by its word", func(s *suite) {
		const odd = "c[r]?"
		s.write("a", 1, 1)
		s.Producer.Write(s.T, odd, "b", "", "1")
		next, err := s.Broker.FindSources(s.Context(), odd, "")
		for err == nil && next != "" {
			next, err = s.Broker.FindSources(s.Context(), odd, next)
		}
		s.must("find sources", err)
		s.same("found", []string{"b"}, s.paged(func(cursor uint64) ([]string, uint64, error) { return s.Broker.Sources(s.Context(), odd, cursor) }))
	}},
	{"News are told stream by stream", func(s *suite) {
		a, b := s.write("a", 1, 2), s.write("b", 1, 1)
		s.same("news", []bool{true, false, false}, s.news(transport.SourceAt{Key: "a", Entry: a[0]}, transport.SourceAt{Key: "none"}, transport.SourceAt{Key: "b", Entry: b[0]}))
		s.same("from the beginning", []bool{true, true}, s.news(transport.SourceAt{Key: "b"}, transport.SourceAt{Key: "a"}))
		s.Producer.Text(s.T, "crm", "text")
		s.same("beside what is no stream", []bool{true, false, true}, s.news(
			transport.SourceAt{Key: "a"}, transport.SourceAt{Key: "b", Entry: b[0]}, transport.SourceAt{Key: "text"}))
	}},
	{"News of very many streams are told", func(s *suite) {
		var at []transport.SourceAt
		var want []bool
		for i := range 700 {
			key := fmt.Sprint("k-", i)
			if i%3 == 0 {
				s.write(key, 1, 1)
			}
			at, want = append(at, transport.SourceAt{Key: key}), append(want, i%3 == 0)
		}
		s.same("news", want, s.news(at...))
	}},
	{"A stream is read above an entry, in its order", func(s *suite) {
		wrote := s.write("a", 1, 50)
		got := s.readSource("a", "", 100)
		s.must("read", got.Err)
		ids, _ := written(got)
		s.same("all", wrote, ids)
		got = s.readSource("a", wrote[46], 100)
		ids, values := written(got)
		s.same("the rest", wrote[47:], ids)
		s.same("values", []string{"48", "49", "50"}, values)
		s.same("more", false, got.More)
		s.same("counts", transport.SourceRead{Last: wrote[49], Length: 50, Added: 50}, transport.SourceRead{Last: got.Last, Length: got.Length, Added: got.Added})
		got = s.readSource("a", wrote[9], 20)
		ids, _ = written(got)
		s.same("a part", wrote[10:30], ids)
		s.same("more of it", true, got.More)
	}},
	{"Ids are ordered by number", func(s *suite) {
		for _, id := range []string{"9-9", "9-10", "10-0"} {
			s.Producer.Write(s.T, "crm", "a", id, id)
		}
		ids, _ := written(s.readSource("a", "9-9", 10))
		s.same("above", []string{"9-10", "10-0"}, ids)
	}},
	{"Large entries are read a few at a time, one at least", func(s *suite) {
		for range 6 {
			s.Producer.Write(s.T, "crm", "a", "", strings.Repeat("x", 900_000))
		}
		read, above := 0, ""
		for read < 6 {
			got := s.readSource("a", above, 100)
			s.must("read", got.Err)
			if n := len(got.Entries); n == 0 || n > 3 {
				s.Fatalf("%d entries after %d", n, read)
			}
			if read += len(got.Entries); read < 6 && !got.More {
				s.Errorf("after %d there is no more", read)
			}
			above = got.Entries[len(got.Entries)-1].ID
		}
	}},
	{"What is gone is counted", func(s *suite) {
		wrote := s.write("a", 1, 10)
		s.Producer.Shorten(s.T, "crm", "a", 3)
		got := s.readSource("a", wrote[1], 100)
		ids, _ := written(got)
		s.same("left", wrote[7:], ids)
		s.same("counts", []uint64{3, 10}, []uint64{got.Length, got.Added})
		s.Producer.Shorten(s.T, "crm", "a", 0)
		got = s.readSource("a", wrote[1], 100)
		s.same("of nothing", transport.SourceRead{Last: wrote[9], Added: 10}, got)
	}},
	{"A stream that was made anew counts anew", func(s *suite) {
		wrote := s.write("a", 1, 10)
		s.Producer.Drop(s.T, "crm", "a")
		s.same("of none", transport.SourceRead{}, s.readSource("a", wrote[1], 100))
		s.Producer.Write(s.T, "crm", "a", "5-0", "again")
		got := s.readSource("a", wrote[9], 100)
		s.same("above the old one", transport.SourceRead{Last: "5-0", Length: 1, Added: 1}, got)
	}},
	{"What cannot be read fails nothing else", func(s *suite) {
		s.write("a", 1, 1)
		s.Producer.Text(s.T, "crm", "text")
		got := s.Broker.ReadSources(s.Context(), "crm", []transport.SourceAt{{Key: "text"}, {Key: "a"}, {Key: "none"}}, 10)
		if got[0].Err == nil || got[1].Err != nil || len(got[1].Entries) != 1 || got[2].Err != nil {
			s.Errorf("got %+v", got)
		}
	}},
	{"Nothing is written to a stream", func(s *suite) {
		wrote := s.write("a", 1, 3)
		for range 2 {
			s.readSource("a", "", 2)
			s.news(transport.SourceAt{Key: "a"})
		}
		ids, _ := written(s.readSource("a", "", 10))
		s.same("entries", wrote, ids)
	}},
	{"Who polls a source and who produces a category of its name contradict each other", func(s *suite) {
		polls := transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "crm", KeyField: "client", StoreID: transport.PolledStore}}}
		s.must("one", s.Broker.Declare(s.Context(), polls))
		polls.StoreID = "c"
		s.must("another", s.other().Declare(s.Context(), polls))
		s.refused(transport.Declared{StoreID: "d", Categories: []transport.Produced{{Category: "crm", KeyField: "client", StoreID: "d"}}}, 1)
		s.refused(transport.Declared{StoreID: "d", Categories: []transport.Produced{{Category: "crm", KeyField: "client"}}}, 1)
		s.must("a producer", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "client_id", StoreID: transport.PolledStore}}}, 1)
	}},
}
