package outbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// TestCourses runs the scripts of testdata: what a course is told, and below the line what it needs next. go test ./outbox -run TestCourses -rewrite writes down
// what it needs now: commit that only if you can say for each changed line why it is right.
func TestCourses(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var c course
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			tell(t, &c, d)
			return needs(&c)
		})
	})
}

// tell reads one command:
//
//	lane noted=3 tail=6        a lane with unpublished records
//	offer 6                    the newest published record is offered
//	read 4-6 [5=other]         what the store has there; "read" = nothing. An event is named after its sequence, unless it is said how
//	ok 6 | dup 5 [id] | gap 3 [id] | empty | full | bad
//	asked tail=6 [first=1] [published=3] [shipping=2] [foreign]
//	replaced [busy | failed]
//	abandoned
//	skip
func tell(t *testing.T, c *course, d *datadriven.TestData) {
	t.Helper()
	lane := event.LaneRef{Category: "order", Key: "a"}
	switch d.Cmd {
	case "lane":
		*c = newCourse(lane, sequence(t, d, "noted"), sequence(t, d, "tail"))
	case "offer":
		*c = newOffer(lane, number(t, d.CmdArgs[0].Key))
	case "read":
		c.read(stored(t, d))
	case "ok":
		c.appended(answer(t, d, transport.AppendOK))
	case "dup":
		c.appended(answer(t, d, transport.AppendDup))
	case "gap":
		c.appended(answer(t, d, transport.AppendGap))
	case "empty":
		c.appended(transport.Appended{Outcome: transport.AppendEmpty})
	case "full":
		c.appended(transport.Appended{Err: transport.ErrFull})
	case "bad":
		c.appended(transport.Appended{Err: &event.KeyError{Key: "a:b", Reason: "has a colon"}})
	case "asked":
		p := eventstore.Passing{Tail: sequence(t, d, "tail"), First: sequence(t, d, "first"), Published: sequence(t, d, "published")}
		if d.HasArg("shipping") {
			p.Subscribers = append(p.Subscribers, eventstore.Passed{Name: "shipping", Checkpoint: sequence(t, d, "shipping")})
		}
		if d.HasArg("foreign") {
			p.Subscribers = append(p.Subscribers, eventstore.Passed{Name: "billing", Foreign: true})
		}
		c.asked(&p, 100)
	case "replaced":
		switch {
		case d.HasArg("busy"):
			c.replaced(fmt.Errorf("retire: %w", transport.ErrBusy))
		case d.HasArg("failed"):
			c.replaced(errors.New("connection refused"))
		default:
			c.replaced(nil)
		}
	case "abandoned":
		c.abandoned()
	case "skip":
		c.skip()
	default:
		t.Fatalf("%s: no such command %q", d.Pos, d.Cmd)
	}
}

func sequence(t *testing.T, d *datadriven.TestData, key string) event.Sequence {
	t.Helper()
	return number(t, value(d, key, "0"))
}

// value gives what an argument is said to be.
func value(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return otherwise
}

func number(t *testing.T, text string) event.Sequence {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return event.Sequence(n)
}

func answer(t *testing.T, d *datadriven.TestData, o transport.AppendOutcome) transport.Appended {
	t.Helper()
	id := d.CmdArgs[0].Key
	a := transport.Appended{Outcome: o, Newest: number(t, id), NewestID: id}
	if len(d.CmdArgs) > 1 {
		a.NewestID = d.CmdArgs[1].Key
	}
	return a
}

func stored(t *testing.T, d *datadriven.TestData) []event.Envelope {
	t.Helper()
	if len(d.CmdArgs) == 0 {
		return nil
	}
	from, to, _ := strings.Cut(d.CmdArgs[0].Key, "-")
	if to == "" {
		to = from
	}
	var run []event.Envelope
	for seq := number(t, from); seq <= number(t, to); seq++ {
		e := event.Envelope{ID: seq.String(), Sequence: seq}
		e.ID = value(d, e.ID, e.ID)
		run = append(run, e)
	}
	return run
}

// needs tells what a course needs.
func needs(c *course) string {
	var b strings.Builder
	runs := func() string {
		if len(c.run) == 0 {
			return "nothing"
		}
		return fmt.Sprintf("%d-%d", c.run[0].Sequence, c.run[len(c.run)-1].Sequence)
	}
	switch c.next {
	case stepRead:
		fmt.Fprintf(&b, "read above %d", c.reading())
		if c.newest.Sequence > 0 {
			fmt.Fprintf(&b, ", compare %d", c.newest.Sequence)
		}
	case stepAppend:
		b.WriteString("append " + runs())
		if c.start {
			b.WriteString(" to start")
		}
	case stepAsk:
		b.WriteString("ask who has passed")
	case stepReplace:
		fmt.Fprintf(&b, "retire through %d, for %s", c.has, runs())
	case stepDiverge:
		fmt.Fprintf(&b, "diverged at %d: broker %q, store %q", c.divergence.Sequence, c.divergence.EventID, c.divergence.StoredEventID)
	case stepAbandon:
		fmt.Fprintf(&b, "abandon %s: %v", runs(), c.err)
	case stepRest:
		fmt.Fprintf(&b, "rest: %v", c.err)
	case stepDone:
		b.WriteString("done")
	}
	fmt.Fprintf(&b, "\n= has %d of %d", c.has, c.tail)
	if c.has > c.noted {
		b.WriteString(", to be noted")
	}
	if c.mends {
		b.WriteString(", mends")
	}
	return b.String() + "\n"
}
