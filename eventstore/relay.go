package eventstore

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Relays is what a relay needs of a store: which lanes have records that the broker does not have yet, what those are, and which lanes
// are to be looked at again because somebody may not have passed what was published. A store keeps this only when it was started with
// [StartOptions].Relayed; else nothing is found, and whatever is noted gives [ErrNotRelayed].
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
	// its look. The error is [ErrStale] when a part is not at its generation, or a lane is of none of the parts: nothing is noted then.
	NotePublished(ctx context.Context, held []PartFence, notes []Published) error
	// DueLooks gives looks of these parts that are due, the earliest first, up to limit.
	DueLooks(ctx context.Context, parts []event.Part, now time.Time, limit int) ([]Look, error)
	// SetLooks replaces looks, and deletes those whose Due is zero. Fenced as NotePublished is. It changes nothing of a lane of which more was noted as
	// published than Look.Published: somebody may count on the look that this made.
	SetLooks(ctx context.Context, held []PartFence, looks []Look) error
	// AllLooksDue makes every look of these parts due: the broker lost its memory.
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
}

// Published says that the broker has everything of a lane up to Through.
type Published struct {
	Lane    event.LaneRef
	Through event.Sequence
	// Look is when the lane is to be looked at, if no look is set that is earlier; a look that was to retire the lane is replaced. Zero sets none:
	// nobody subscribes to the category.
	Look time.Time
}

// Look is a lane that is to be looked at: have all subscribers passed what was published, or can it be retired from the broker?
type Look struct {
	Lane      event.LaneRef
	Published event.Sequence
	Due       time.Time     // not before
	Gap       time.Duration // between the last look and this one; who looks doubles it
	Retire    bool          // everything was passed: take the lane off the broker if that is still so
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

// Divergences are lanes of which the broker has something that the store has not: a store that went back in time (a backup that was
// restored, a failover without the last commits) drew sequences a second time. Nothing of such a lane is published until a person
// decides: the two histories would be mixed without a word.
type Divergences interface {
	// Diverge notes a divergence. The first one of a lane stays. Fenced as [Relays].NotePublished is.
	Diverge(ctx context.Context, held []PartFence, d Divergence) error
	// ListDiverged gives divergences in lane order after the lane given, up to limit.
	ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]Divergence, error)
	// Adopt ends the divergence of a lane: its records above what both have in common get sequences above what the broker has, and voids take the place of
	// what the broker has alone, so that no reader meets a gap. It is compare-and-act: no such divergence is [ErrNotFound]. It is an act, and leaves a row.
	Adopt(ctx context.Context, lane event.LaneRef, actor, reason string) (ActRecord, error)
}

// Divergence is a lane of which store and broker tell different histories.
type Divergence struct {
	Lane          event.LaneRef
	Sequence      event.Sequence // the newest entry of the broker
	EventID       string         // its event
	StoredEventID string         // what the store has at that sequence, "" for nothing
	Since         time.Time
}
