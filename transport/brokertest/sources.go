package brokertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// source is a stream that another program writes.
type source struct {
	entries []transport.SourceEntry
	last    string
	added   uint64
	text    bool // it is no stream at all
}

// sourceName is the name of one: what stands before the key, and the key.
type sourceName struct{ source, key string }

// Write appends an entry to a stream as a program does that knows nothing of Keyhold. Its id is that given, or, with "", one above the last. It gives the id.
func (s *Server) Write(name, key, id string, fields ...transport.SourceField) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := sourceName{name, key}
	st := s.mu.sources[at]
	if st == nil {
		st = &source{last: "0-0"}
		s.mu.sources[at] = st
	}
	if id == "" {
		id = fmt.Sprint(1_764_000_000_000+s.mu.written, "-0")
		s.mu.written++
	}
	st.entries = append(st.entries, transport.SourceEntry{ID: id, Fields: fields})
	st.last = id
	st.added++
	return id
}

// Index puts a key into the index of a source, as a program does that wants its stream to be found at once.
func (s *Server) Index(name, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(s.mu.index, name, key)
}

// Text makes something of the name of such a stream that is none.
func (s *Server) Text(name, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sources[sourceName{name, key}] = &source{text: true}
}

// Shorten takes all but the newest n entries off such a stream.
func (s *Server) Shorten(name, key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.sources[sourceName{name, key}]; st != nil {
		st.entries = slices.Clone(st.entries[max(0, len(st.entries)-n):])
	}
}

// Drop takes such a stream.
func (s *Server) Drop(name, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.sources, sourceName{name, key})
}

// Sources gives the index in one page.
func (b *Broker) Sources(ctx context.Context, name string, _ uint64) (keys []string, next uint64, err error) {
	err = b.do(ctx, Call{Op: "sources"}, func() error {
		keys = slices.Sorted(maps.Keys(b.mu.index[name]))
		return nil
	})
	return keys, 0, err
}

// FindSources looks through everything at once.
func (b *Broker) FindSources(ctx context.Context, name, _ string) (string, error) {
	return "", b.do(ctx, Call{Op: "find sources"}, func() error {
		for at := range b.mu.sources {
			if at.source == name && !b.mu.sources[at].text && (event.KeyRules{}).Check(at.key) == nil {
				add(b.mu.index, name, at.key)
			}
		}
		return nil
	})
}

// News looks at each.
func (b *Broker) News(ctx context.Context, name string, at []transport.SourceAt) (news []bool, err error) {
	err = b.do(ctx, Call{Op: "news"}, func() error {
		for _, a := range at {
			st := b.mu.sources[sourceName{name, a.Key}]
			news = append(news, st != nil && (st.text || len(st.above(a.Entry)) > 0))
		}
		return nil
	})
	return news, err
}

// ReadSources reads each.
func (b *Broker) ReadSources(ctx context.Context, name string, at []transport.SourceAt, most int) []transport.SourceRead {
	reads := make([]transport.SourceRead, len(at))
	for i, a := range at {
		reads[i].Err = b.do(ctx, Call{Op: "read source", Lane: event.LaneRef{Category: name, Key: a.Key}}, func() error {
			switch st := b.mu.sources[sourceName{name, a.Key}]; {
			case st != nil && st.text:
				return errors.New("it is no stream")
			case st != nil:
				above := st.above(a.Entry)
				n := fitting(above, most)
				reads[i] = transport.SourceRead{Entries: slices.Clone(above[:n]), More: n < len(above) || n == most, Last: st.last, Length: uint64(len(st.entries)), Added: st.added}
			}
			return nil
		})
	}
	return reads
}

// fitting is how many entries are read together: no more than have a MiB, but for the last.
func fitting(entries []transport.SourceEntry, most int) int {
	n := 0
	for room := 1 << 20; n < min(most, len(entries)) && room > 0; n++ {
		for _, f := range entries[n].Fields {
			room -= len(f.Name) + len(f.Value)
		}
	}
	return n
}

func (st *source) above(id string) []transport.SourceEntry {
	for i := range st.entries {
		if id == "" || transport.CompareEntries(st.entries[i].ID, id) > 0 {
			return st.entries[i:]
		}
	}
	return nil
}
