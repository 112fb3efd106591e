package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Divergences are lanes of which the broker has something that the store has not: a store that went back in time (a backup that was
// restored, a failover without the last commits) drew sequences a second time. Nothing of such a lane is published until a person
// decides: the two histories would be mixed without a word.
type Divergences interface {
	// Diverge notes a divergence. The first one of a lane stays. Fenced as [Relays].NotePublished is.
	Diverge(ctx context.Context, held []PartFence, d Divergence) error
	// ListDiverged gives divergences in lane order after the lane given, up to limit.
	ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]Divergence, error)
	// Adopt ends the divergence of a lane: its records above what both have in common get sequences above what the broker has, and voids take the place of
	// what the broker has alone, so that no reader meets a gap. It is compare-and-act: seen is the broker's event that the person decided on, as
	// [Divergence.Position] gives it. A lane that did not diverge is [ErrNotFound], one that diverged at another event [ErrStateMoved]. It is an act, and
	// leaves a row; actor and reason are required. It is done whether the store was started for a relay or not.
	//
	// In common is what was noted as published, and beyond it what a handler of this store has applied in the store's version, if none has applied the
	// broker's. What follows a record by its
	// sequence and event id follows it to its new place: halts, attempts, dead letters, parked and abandoned events. What names an event that only the broker
	// has stays where it is. Afterwards the lane counts as published up to the newest entry that the broker had, its records above that are unpublished,
	// and it is due to be looked at. A broker that is ahead by more than ten million has an entry that nobody published: then nothing is renumbered, and the lane counts as
	// published as far as it did.
	//
	// Checkpoints: one at or below what is in common stays: its handler reads on through the broker's history, or the voids where the broker has lost that,
	// to the renumbered records. One above it whose event is the store's own record there goes with that record, because its handler has applied
	// that and everything below. Any other one above it stands in the broker's history: it stays, its handler goes on in that, and then to the renumbered
	// records. So nothing is skipped, and nothing is applied twice but for this: records that were published, of which neither a note nor a checkpoint
	// came through the loss, cannot be told from those that were not. They are published again, above, under the ids that they had.
	Adopt(ctx context.Context, seen event.Position, actor, reason string) (ActRecord, error)
}

// Divergence is a lane of which store and broker tell different histories.
type Divergence struct {
	Lane          event.LaneRef
	Sequence      event.Sequence // the newest entry of the broker
	EventID       string         // its event
	StoredEventID string         // what the store has at that sequence, "" for nothing
	Since         time.Time
}

// Position names the divergence: by the newest event that the broker has.
func (d *Divergence) Position() event.Position {
	return event.Position{Lane: d.Lane, Sequence: d.Sequence, EventID: d.EventID}
}

// Adopts reports, as an error, that it is not the one that somebody saw.
func (d *Divergence) Adopts(seen event.Position) error {
	if d.Position() == seen {
		return nil
	}
	return fmt.Errorf("adopt %s: it diverged at #%d (event %s) since %s: look again, then decide: %w", d.Lane, d.Sequence, d.EventID, stamp(d.Since), ErrStateMoved)
}

// Diverged is how a lane that is to be adopted stands in the store.
type Diverged struct {
	Divergence
	Published event.Sequence // noted
	Tail      event.Sequence
	First     event.Sequence // first record kept, 0 when none is
	// Applied are the checkpoints above Published, of any name, in no particular order. One whose event is not known may be left out.
	Applied []AppliedAt
}

// AppliedAt is a checkpoint in a lane that diverged.
type AppliedAt struct {
	Sequence event.Sequence
	Stored   bool // its event is the store's record there
}

// Adoption is what an adoption changes in a lane.
type Adoption struct {
	Common event.Sequence // up to here everything stays
	// Shift is added to the sequence of each record above Common, and to that of whatever follows it; records of the sequences from Common+1 to
	// Divergence.Sequence are voids then, the last of which has the id of the broker's event. 0: nothing collides, and nothing is changed.
	Shift     event.Sequence
	Published event.Sequence // to be noted, though it may be less than before
	Tail      event.Sequence
	Detail    string // for [ActRecord]
}

// mostVoids is how many places a broker may be ahead: no store loses more of a lane. Whoever adds an entry to a stream by hand has Redis number it, by the time in
// milliseconds, which lies far beyond.
const mostVoids = 10_000_000

// Adopt decides how a lane is brought in line with what the broker has.
func (d *Diverged) Adopt() Adoption {
	newest := d.Sequence
	common := min(max(d.Published, d.applied()), newest-1, d.Tail)
	gone := d.Tail // the last of what was purged
	if d.First > 0 {
		gone = d.First - 1
	}
	// What was purged has been passed by all; a void in its place would have a hole behind it.
	common = max(common, gone)
	if newest > common+mostVoids {
		return Adoption{Common: max(common, d.Tail), Published: min(d.Published, d.Tail), Tail: d.Tail, Detail: fmt.Sprintf(
			"diverged at #%d, which is no place of a lane that has #%d: nothing is renumbered; remove that entry from the stream (XDEL %d-0), or the lane diverges again", newest, d.Tail, newest)}
	}
	a := Adoption{Common: common, Published: newest, Tail: d.Tail}
	if common >= newest {
		a.Detail = fmt.Sprintf("diverged at #%d; the records that were in the way are purged, and nothing is renumbered", newest)
		return a
	}
	a.Shift = newest - common
	a.Tail += a.Shift
	if a.Tail == newest {
		a.Detail = fmt.Sprintf("diverged at #%d; voids from #%d to #%d", newest, common+1, newest)
		return a
	}
	a.Detail = fmt.Sprintf("diverged at #%d; voids from #%d to #%d, and records from #%d to #%d now have sequences from #%d to #%d",
		newest, common+1, newest, common+1, d.Tail, newest+1, a.Tail)
	return a
}

// applied gives the highest checkpoint that shows that both have the same up to there. Where one stands in the broker's history none does: whoever stands
// there has passed over what the store has in its place, if that is another record, and must get it above.
func (d *Diverged) applied() (highest event.Sequence) {
	for _, at := range d.Applied {
		switch {
		case at.Sequence <= d.Published || at.Sequence >= d.Sequence && at.Stored:
		case !at.Stored:
			return 0
		default:
			highest = max(highest, at.Sequence)
		}
	}
	return highest
}

// Record is the row of the act.
func (d *Diverged) Record(a Adoption, actor, reason string, at time.Time) ActRecord {
	return ActRecord{
		Kind: ActAdopt, Event: event.Position{Lane: d.Lane, Sequence: d.Sequence, EventID: d.EventID},
		Actor: actor, Reason: reason, Detail: a.Detail, Time: at,
	}
}

// CheckAdopt reports what is missing of an adoption, all at once.
func CheckAdopt(lane event.LaneRef, actor, reason string) error {
	var errs []error
	if actor == "" {
		errs = append(errs, fmt.Errorf("adopt %s: no actor: say who does it", lane))
	}
	if reason == "" {
		errs = append(errs, fmt.Errorf("adopt %s: no reason: say why", lane))
	}
	return errors.Join(errs...)
}
