package outbox

import (
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// step is what a course needs next.
type step uint8

const (
	stepRead    step = iota // what follows: course.reading says where
	stepAppend              // course.run
	stepAsk                 // how far subscribers are, because the broker has nothing of the lane
	stepReplace             // the stream, whose end and the records kept have a hole between them
	stepDiverge             // tell it: course.divergence
	stepAbandon             // what cannot be sent: course.run
	stepRest                // failed: try again later
	stepDone
)

// course is the way of one lane's records to the broker, from what was noted as published until the broker has everything. It is a pure function of what its
// calls answered; whoever makes the calls gives each answer to the method that is named after it.
type course struct {
	lane  event.LaneRef
	noted event.Sequence // as published, as far as is known
	has   event.Sequence // the broker has everything of the lane up to here that anybody may need
	tail  event.Sequence // the last record known of
	start bool           // the broker has nothing: what is appended begins the stream
	offer bool           // it begins with the newest record that was published, to see whether the broker still has it
	mends bool           // the broker had lost something
	none  bool           // the store has no record above has

	newest     event.Position // of the broker, unless its sequence is 0: the store must have the same event there
	run        []event.Envelope
	divergence eventstore.Divergence
	err        error // why it rests, or cannot be sent
	next       step
}

// newCourse is that of a lane whose records up to noted the broker is known to have.
func newCourse(lane event.LaneRef, noted, tail event.Sequence) course {
	return course{lane: lane, noted: noted, has: noted, tail: tail}
}

// newOffer is that of a lane of which everything up to noted was published.
func newOffer(lane event.LaneRef, noted event.Sequence) course {
	return course{lane: lane, noted: noted, has: noted - 1, tail: noted, offer: true}
}

// reading says above which sequence to read.
func (c *course) reading() event.Sequence {
	if c.newest.Sequence > 0 {
		return c.newest.Sequence - 1
	}
	return c.has
}

// read takes the run that the store has there.
func (c *course) read(run []event.Envelope) {
	if at := c.newest; at.Sequence > 0 {
		if len(run) == 0 {
			c.next = stepAsk // is everything purged, or was it never there?
			return
		}
		if run[0].Sequence == at.Sequence {
			if run[0].ID != at.EventID {
				c.diverge(run[0].ID)
				return
			}
			run = run[1:]
		}
		c.has, c.newest = at.Sequence, event.Position{}
		switch {
		case len(run) > 0 && run[0].Sequence > c.has+1:
			c.run, c.next = run, stepReplace // what lies between is purged
			return
		case len(run) == 0 && c.has < c.tail:
			c.next = stepRead // no more was read than the one to compare
			return
		}
	}
	c.run = run
	if len(run) > 0 {
		c.tail = max(c.tail, run[len(run)-1].Sequence)
		// A lane's very first records begin its stream, but not in front of many that may have been passed long ago, without a broker.
		c.start = c.start || c.has == 0 && run[0].Sequence == 1 && run[len(run)-1].Sequence == c.tail
	}
	switch {
	case len(run) > 0 || c.offer && c.has < c.noted:
		c.next = stepAppend
	case c.has < c.tail: // purged, or not there
		c.none, c.next = true, stepAsk
	default:
		c.next = stepDone
	}
}

var errNoRecords = errors.New("records that were committed are not there")

func (c *course) diverge(stored string) {
	c.divergence = eventstore.Divergence{Lane: c.lane, Sequence: c.newest.Sequence, EventID: c.newest.EventID, StoredEventID: stored}
	c.next = stepDiverge
}

// appended takes the answer of the broker.
func (c *course) appended(a transport.Appended) {
	run := c.run
	c.run = nil
	switch {
	case errors.Is(a.Err, event.ErrBadKey) || errors.Is(a.Err, event.ErrBadName):
		c.run, c.err, c.next = run, a.Err, stepAbandon
	case a.Err != nil:
		c.err, c.next = a.Err, stepRest
	case len(run) == 0: // it was only asked, and marked
		c.next = stepDone
	case a.Outcome == transport.AppendEmpty:
		c.mends, c.next = c.mends || c.offer, stepAsk
	case a.Outcome == transport.AppendOK:
		c.has, c.start = a.Newest, false
		c.next = stepDone
		if c.has < c.tail {
			c.next = stepRead
		}
	default: // dup or gap: somebody else has appended, or something was lost
		c.mends = c.mends || c.offer && a.Outcome == transport.AppendGap
		c.start, c.newest, c.next = false, event.Position{Lane: c.lane, Sequence: a.Newest, EventID: a.NewestID}, stepRead
	}
}

// asked takes how far the subscribers are. maxAhead is how many entries a stream may have.
func (c *course) asked(p *eventstore.Passing, maxAhead event.Sequence) {
	gone := p.Tail // the last that was purged
	if p.First > 0 {
		gone = p.First - 1
	}
	if c.newest.Sequence > 0 { // asked because there is no record at or above it
		switch {
		case c.newest.Sequence > p.Tail:
			c.diverge("")
		case p.First == 0: // purged, because all have passed it
			c.has, c.newest, c.next = p.Tail, event.Position{}, stepDone
		default: // committed since
			c.rest(errNoRecords)
		}
		return
	}
	if c.none {
		c.none = false
		if p.First > 0 || p.Tail < c.tail {
			c.rest(errNoRecords)
			return
		}
		c.has, c.next = p.Tail, stepDone // purged, because all had passed it without a broker
		return
	}
	from, unsent := p.Lowest(), min(c.noted, p.Published)
	if c.offer {
		unsent-- // it is told by the newest that there was more
	}
	for i := range p.Subscribers {
		if p.Subscribers[i].Foreign {
			from = min(from, unsent) // nobody here knows how far it is
		}
	}
	from = max(from, gone)
	if p.Tail > maxAhead {
		from = max(from, p.Tail-maxAhead)
	}
	c.tail, c.has = max(c.tail, p.Tail), from
	if c.has >= c.tail {
		c.next = stepDone
		return
	}
	c.start, c.next = true, stepRead
}

// replaced takes whether the stream is gone.
func (c *course) replaced(err error) {
	switch {
	case err == nil:
		c.start, c.has, c.next = true, c.run[0].Sequence-1, stepAppend
	case errors.Is(err, transport.ErrBusy): // somebody has appended, or has not read what would go
		c.rest(fmt.Errorf("what follows #%d on the broker is kept no longer, and the stream cannot begin anew: %w", c.has, err))
	default:
		c.rest(err)
	}
}

// abandoned takes that what could not be sent are voids now, and counts as published.
func (c *course) abandoned() {
	c.has, c.run, c.err = c.run[len(c.run)-1].Sequence, nil, nil
	c.next = stepDone
	if c.has < c.tail {
		c.next = stepRead
	}
}

// skip ends a course that nobody wants: its records count as published.
func (c *course) skip() { c.has, c.next = c.tail, stepDone }

// rest has it tried again later.
func (c *course) rest(err error) { c.run, c.err, c.next = nil, err, stepRest }

// over reports whether no call is left to make.
func (c *course) over() bool { return c.next >= stepRest }
