package intake

import (
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// reading is what was read of one stream, and what follows for the place in it.
type reading struct {
	to   event.SourcePlace
	lost uint64 // entries that were gone before they were read, besides those told before
	anew bool   // the stream is another one than the place is of: it is to be read from its beginning
	more bool
}

// decide tells where a stream is read up to. from is the place so far, first that it was never read before; r was read above from.Entry.
//
// A stream counts the entries that it was ever given, so what is missing between two readings is known exactly: whatever was added and neither read nor left to read. A stream that
// was deleted begins to count anew, and so is known, whatever its ids; where the broker does not count, by ids that went back.
func decide(from event.SourcePlace, first bool, r *transport.SourceRead) reading {
	n := uint64(len(r.Entries))
	d := reading{to: from, more: r.More}
	if n > 0 {
		d.to.Entry = r.Entries[n-1].ID
	}
	switch {
	case r.Last == "": // there is no stream: the next one to be there begins to count at 0
		return d
	case first: // what was gone before anybody looked was not to be had
		d.to.Added = r.Added - min(r.Added, r.Length) + n
		if r.Added == 0 {
			d.to.Added = 0
		}
		return d
	case transport.CompareEntries(r.Last, from.Entry) < 0, r.Added > 0 && r.Added < from.Added+n:
		d.anew = true
		return d
	case r.Added == 0 || from.Added == 0 && from.Entry != "": // it is not, or was not, counted
		d.to.Added = 0
		if r.Added > 0 && !r.More {
			d.to.Added = r.Added
		}
		return d
	}
	if gone := r.Added - min(r.Added, r.Length); r.More { // what is left may have holes: that is seen at its end
		d.lost = gone - min(gone, from.Added)
	} else {
		d.lost = r.Added - from.Added - n
	}
	d.to.Added = from.Added + d.lost + n
	return d
}

// beginning is where a stream that is another than the place is of is read from: before its first entry. But where ids are times, those up to the old place that are older than
// what is remembered of event ids are passed over: it is the old stream, of which the broker lost the end, and they were taken in.
func beginning(from event.SourcePlace, r *transport.SourceRead, remembered time.Time) event.SourcePlace {
	if !isTime(from.Entry) || !isTime(r.Last) {
		return event.SourcePlace{}
	}
	least := strconv.FormatInt(remembered.UnixMilli(), 10) + "-0"
	for _, id := range []string{from.Entry, r.Last} {
		if transport.CompareEntries(id, least) < 0 {
			least = id
		}
	}
	return event.SourcePlace{Entry: least}
}

// isTime reports whether an id is one that a broker makes, which begins with the time: later than the year 2000.
func isTime(id string) bool {
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	return err == nil && ms >= 946684800000
}
