package outbox

import (
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// settle is when a lane is looked at for the first time after something was published: most is passed by then.
const settle = 5 * time.Second

// shortest is the first distance between two looks at a lane that was not passed.
const shortest = time.Second

// terms are what looks go by.
type terms struct {
	healAfter   time.Duration
	retireAfter time.Duration
}

// verdict is what a look leads to.
type verdict struct {
	look    eventstore.Look // to be set; one without Due is deleted
	after   bool            // it is the last for long, and is set after the offer alone
	stopped bool            // somebody here has not passed it, and all who have not are stopped
	trim    event.Sequence  // of the stream, up to here; 0 = nothing
	offer   []string        // the newest record is offered to these
	retire  bool            // the lane, before the look is set; for these:
	names   []string        // everybody who subscribes
	remote  []string        // those of them that keep their checkpoints elsewhere
}

// judge tells what is to be done about a lane that was looked at. shown: while nobody who has not passed it went on here it was offered to those elsewhere, and the broker has not lost its memory since, as far
// as this process knows. Looks do not tell: they were set by the clock of whoever held the part then.
func (t terms) judge(l eventstore.Look, p *eventstore.Passing, now time.Time, shown bool) verdict {
	v := verdict{look: eventstore.Look{Lane: l.Lane, Published: l.Published}}
	behind, stopped := false, true
	for _, s := range p.Subscribers {
		v.names = append(v.names, s.Name)
		switch {
		case s.Foreign:
			v.remote = append(v.remote, s.Name)
		case s.Checkpoint < l.Published:
			behind = true
			if !s.Stopped {
				stopped = false
				v.offer = append(v.offer, s.Name)
			}
		}
	}
	if len(v.names) == 0 {
		v.retire = true // what may be there from earlier times, nobody will read
		return v
	}
	v.trim = min(p.Lowest(), l.Published) // what the groups of those elsewhere have not acknowledged stays
	switch {
	case !behind && l.Retire:
		v.retire = true
	case !behind:
		v.offer, v.after = v.remote, len(v.remote) > 0 && l.Published > 0 // nobody here knows whether they have passed
		v.look.Retire, v.look.Due, v.look.Gap = true, now.Add(t.retireAfter), t.retireAfter
	default:
		switch v.stopped = stopped; {
		case !stopped:
			v.offer = append(v.offer, v.remote...)
		case !shown: // whoever is stopped here stops nobody elsewhere. Once is enough: what they have not acknowledged is marked until they have
			v.offer, v.after = v.remote, len(v.remote) > 0 && l.Published > 0
		}
		v.look.Gap = min(max(shortest, 2*l.Gap), t.healAfter)
		v.look.Due = now.Add(v.look.Gap)
	}
	return v
}

// again is the look at a lane that could not be retired.
func (t terms) again(l eventstore.Look, now time.Time, after time.Duration) eventstore.Look {
	return eventstore.Look{Lane: l.Lane, Published: l.Published, Retire: true, Gap: after, Due: now.Add(after)}
}

// soon is the look at a lane that is at work now, or rests.
func (t terms) soon(l eventstore.Look, now time.Time) eventstore.Look {
	after := min(settle, t.healAfter)
	return eventstore.Look{Lane: l.Lane, Published: l.Published, Gap: l.Gap, Due: now.Add(after)}
}
