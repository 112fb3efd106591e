package eventstore

import (
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Relays is what a relay needs of a store: which lanes have records that the broker does not have yet, what those are, and which lanes
// are to be looked at again because somebody may not have passed what was published. A store keeps this only when it was started with
// [StartOptions].Relayed; else nothing is unpublished or due, and whatever is noted gives [ErrNotRelayed]. Lanes are read all the same.
//
// Whatever changes something names the parts that the caller holds ([PartFence]). The store locks the rows of these units first and reads
// in the statements after that, so that two calls for one part come one after the other, also when they are made by one owner:
// a look that was deleted because everything was passed must not be one that a publication counts on.
type Relays interface {
	// Unpublished gives lanes of these parts that have records above what is noted as published, one entry for each lane, up to limit, in no particular order.
	// Lanes that diverged ([Divergences]) are left out. What is committed by others is found as soon as it is committed, whatever other transactions are
	// open. Its cost grows with what is unpublished, not with the number of lanes.
	Unpublished(ctx context.Context, parts []event.Part, limit int) ([]Unpublished, error)
	// ReadLanes reads several lanes at once, each as [Records].ReadLane does: one run for each one asked, in that order, empty where there is nothing.
	ReadLanes(ctx context.Context, asked []LaneRead) ([][]event.Envelope, error)
	// NotePublished notes what the broker has, lane by lane. What is noted only grows: one that is not above what is noted already changes nothing but
	// its look. The error is [ErrStale] when a part is not at its generation, or a lane is of none of the parts. A note above the last sequence drawn is an error
	// too: records that are still to come would count as published. With any error nothing is noted.
	NotePublished(ctx context.Context, held []PartFence, notes []Published) error
	// DueLooks gives looks of these parts that are due, the earliest first, up to limit.
	DueLooks(ctx context.Context, parts []event.Part, now time.Time, limit int) ([]Look, error)
	// SetLooks replaces looks, and deletes those whose Due is zero. Fenced as NotePublished is. It changes nothing of a lane of which more was noted as
	// published than Look.Published: somebody may count on the look that this made.
	SetLooks(ctx context.Context, held []PartFence, looks []Look) error
	// AllLooksDue makes every look of these parts due: the broker lost its memory. Fenced as NotePublished is.
	AllLooksDue(ctx context.Context, held []PartFence, now time.Time) error
	// Passing tells of lanes, in the order asked, how far each subscriber is.
	Passing(ctx context.Context, lanes []event.LaneRef) ([]Passing, error)
}

// PartFence is the check "do I still hold this part at this generation", made in the transaction it guards.
type PartFence struct {
	Part       event.Part
	Generation event.Generation // the row of the unit that stands for the part must be at exactly this
}

// Unpublished is a lane with records that the broker is not known to have.
type Unpublished struct {
	Lane      event.LaneRef
	Published event.Sequence // noted so far
	Tail      event.Sequence // last drawn, as far as this call saw
}

// LaneRead asks for up to Limit (1 to [MaxLimit]) records of a lane after a sequence.
type LaneRead struct {
	Lane  event.LaneRef
	After event.Sequence
	Limit int
	// Bytes is how much data they may have at most; the first one comes whatever it has. 0 = as much as they have.
	Bytes int
}

// Fits reports whether one more record, with that much data, belongs to what was read; size counts what they have.
func (a *LaneRead) Fits(read, data int, size *int) bool {
	*size += data
	return a.Bytes == 0 || read == 0 || *size <= a.Bytes
}

// Published says that the broker has everything of a lane up to Through.
type Published struct {
	Lane    event.LaneRef
	Through event.Sequence
	// Look is when the lane is to be looked at, if no look is set that is earlier; a look that was to retire the lane is replaced. What is set begins
	// with no Gap. Zero sets none: nobody subscribes to the category.
	Look time.Time
}

// Look is a lane that is to be looked at: have all subscribers passed what was published, or can it be retired from the broker?
type Look struct {
	Lane      event.LaneRef
	Published event.Sequence // noted so far; DueLooks tells it, SetLooks compares it
	Due       time.Time      // not before
	Gap       time.Duration  // between the last look and this one; who looks doubles it
	Retire    bool           // everything was passed: take the lane off the broker if that is still so
}

// Passing is how far the subscribers of a lane are.
type Passing struct {
	Lane      event.LaneRef
	Published event.Sequence // noted
	Tail      event.Sequence
	// First is the first record kept, 0 when none is. What lies below was purged.
	First       event.Sequence
	Subscribers []Passed // of the registered handlers and entity kinds of the category, in order of name
}

// Passed is how far one subscriber is with a lane.
type Passed struct {
	Name       string
	Foreign    bool // it keeps its checkpoints in another store: Checkpoint and Stopped say nothing
	Checkpoint event.Sequence
	Stopped    bool // its unit is halted or paused, for itself or with its handler
}

// Lowest is the lowest checkpoint of subscribers that keep them in this store; Tail where there is none.
func (p *Passing) Lowest() event.Sequence {
	low := p.Tail
	for _, s := range p.Subscribers {
		if !s.Foreign {
			low = min(low, s.Checkpoint)
		}
	}
	return low
}

// Holds reports whether the lane is of one of the parts.
func Holds(held []PartFence, lane event.LaneRef) bool {
	part := lane.Part()
	return slices.ContainsFunc(held, func(f PartFence) bool { return f.Part == part })
}
