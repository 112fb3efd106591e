package transport

import (
	"cmp"
	"context"
	"strconv"
	"strings"
)

// Polling reads streams to which other programs append as they like: with ids that the broker gives them, without numbers, and without telling anybody. They are found by a source,
// which stands in their names where a category's name would, and by their key. Nothing is ever written to them, or trimmed, and no group is made in them: they are the
// producer's. What is written is the index, which names the keys of a source that have a stream; its producer may write it as well.
type Polling interface {
	// Sources pages through the index of a source, from cursor 0 until the next cursor is 0 again. Keys may come twice, and what is no partition key comes as it is.
	Sources(ctx context.Context, source string, cursor uint64) (keys []string, next uint64, err error)
	// FindSources looks through a bounded part of everything that the broker has for streams of a source that their producer did not put into the index, and does so. It begins at the
	// beginning with "", and goes on from what it gave; it gives "" at the end. It finds each stream that is there for a whole round.
	FindSources(ctx context.Context, source, from string) (next string, err error)
	// News tells which streams, each named once, have an entry above the id given, one answer for each in that order; true for what is no stream. It takes one call for many.
	News(ctx context.Context, source string, at []SourceAt) ([]bool, error)
	// ReadSources reads streams above the ids given, up to most entries of each and fewer where they are large, at least one where there is any.
	ReadSources(ctx context.Context, source string, at []SourceAt, most int) []SourceRead
}

// PolledStore stands for the producer, in what is declared of a source: programs that are no application's store.
const PolledStore = "polled"

// SourceAt is a place in one stream of a source.
type SourceAt struct {
	Key   string
	Entry string // id of the last entry read; "" = before all
}

// SourceRead is what was found in one stream, all at one moment.
type SourceRead struct {
	Entries []SourceEntry
	More    bool   // there may be more above them
	Last    string // id that the stream gave out last, also where its entry is gone; "" = there is no stream
	Length  uint64 // entries that are there
	Added   uint64 // entries that there ever were; 0 where the broker does not count
	Err     error
}

// SourceEntry is one entry as it was written.
type SourceEntry struct {
	ID     string
	Fields []SourceField
}

// SourceField is a field of an entry. Of two with one name the last one counts.
type SourceField struct{ Name, Value string }

// CompareEntries orders ids of entries: two numbers with a dash between. "" comes first, and what is no such id right behind it.
func CompareEntries(a, b string) int {
	one, two := entryNumbers(a), entryNumbers(b)
	return cmp.Or(cmp.Compare(one[0], two[0]), cmp.Compare(one[1], two[1]))
}

func entryNumbers(id string) (n [2]uint64) {
	for i, text := range strings.SplitN(id, "-", 2) {
		var err error
		if n[i], err = strconv.ParseUint(text, 10, 64); err != nil {
			return [2]uint64{}
		}
	}
	return n
}
