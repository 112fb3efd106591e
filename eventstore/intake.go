package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Intake is what was taken in from streams that other programs write: how far each was read, and which events are in. It is written by [Changes].Take, in the transaction that
// appends what was taken in.
type Intake interface {
	// Taken tells how far streams were taken in: one answer for each, in the order asked; zero values where nothing was.
	Taken(ctx context.Context, asked []TakenAsk) ([]Taken, error)
}

// SourceRef names a stream that another program writes, and the partition into whose primary lane its entries go.
type SourceRef struct {
	Category string
	Key      string
	Source   string // what stands before the key in the name of the stream
}

func (r SourceRef) String() string { return r.Source + ":" + r.Key + " into " + r.Category }

// TakenAsk asks for one stream, and which of the event ids given are remembered of its partition, from whatever source.
type TakenAsk struct {
	SourceRef
	IDs []string
}

// Taken is how far a stream was taken in.
type Taken struct {
	Place    event.SourcePlace
	Revision uint64 // grows with every Take; 0 = there was none
	Lost     uint64 // entries that were gone before they were taken in, in all
	Known    []bool // of each id asked
}

// Take notes that a stream was taken in up to a place, by compare-and-set: from exactly Revision. Whoever takes in asks with [Intake].Taken first, and leaves out of Publish what is
// known already; since the revision is compared, nobody else has taken in meanwhile. Purge forgets event ids that were taken in before what it is given; places are kept.
type Take struct {
	SourceRef
	Revision uint64 // as read; 0 = there is none yet
	To       event.SourcePlace
	IDs      []string // of the events, to be remembered; those that are remembered already keep their time
	Time     time.Time
	Lost     uint64 // entries that were found to be gone, besides those noted before
}

// ErrTakenMoved is what a [*TakenError] is.
var ErrTakenMoved = errors.New("stream was taken in by somebody else")

// TakenError: a stream was not where whoever takes it in believed it.
type TakenError struct {
	Source   SourceRef
	Expected uint64
	Actual   uint64
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("take in %s: revision is %d, expected %d", e.Source, e.Actual, e.Expected)
}
func (e *TakenError) Is(target error) bool { return target == ErrTakenMoved }

func (c *Changes) validateTakes() error {
	for i := range c.Take {
		t := &c.Take[i]
		if t.Category == "" || t.Key == "" || t.Source == "" {
			return fmt.Errorf("take in %s: a category, a key and a source must be named", t.SourceRef)
		}
		for _, id := range t.IDs {
			if id == "" {
				return fmt.Errorf("take in %s: an event has no id", t.SourceRef)
			}
		}
	}
	if i := repeated(c.Take, func(t *Take) SourceRef { return t.SourceRef }); i >= 0 {
		return fmt.Errorf("take in %s: twice in one unit of work", c.Take[i].SourceRef)
	}
	return nil
}
