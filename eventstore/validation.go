package eventstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
)

// MaxLimit is the largest page that a store gives.
const MaxLimit = 10_000

// CheckLimit reports a page size that is not 1 to [MaxLimit].
func CheckLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("limit is %d, it must be 1 to %d", limit, MaxLimit)
	}
	return nil
}

// Validate reports what no store may commit, whatever it holds: it is the part of the rules of [Changes] that needs no
// database, so that every adapter refuses the same things. It allocates nothing for changes that are good.
func (c *Changes) Validate() error {
	for _, err := range [...]error{
		c.Fence.validate(), c.validateAppends(), c.validateEvents(c.Publish, "publish"), c.validateAdvances(),
		c.validateState(), c.validateHalts(), c.validateDead(), c.validateParked(), c.validateSettle(), c.validateSuspect(), c.validateTried(), c.validateTakes(), c.Projection.validate(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f Fence) validate() error {
	switch {
	case f.Unit.IsZero() && f.Generation != 0:
		return fmt.Errorf("fence at generation %d names no unit", f.Generation)
	case !f.Unit.IsZero() && f.Unit.Name == "":
		return fmt.Errorf("fence: unit %q has no name", f.Unit)
	}
	return nil
}

func (c *Changes) validateAppends() error {
	for i := range c.Append {
		a := &c.Append[i]
		switch {
		case a.Stream.Kind == "" || a.Stream.ID == "":
			return fmt.Errorf("append stream %q: a stream needs a kind and an id", a.Stream)
		case len(a.Events) == 0:
			return fmt.Errorf("append stream %q: no events", a.Stream)
		}
		if err := c.validateEvents(a.Events, "append"); err != nil {
			return err
		}
	}
	if i := repeated(c.Append, func(a *Append) event.Stream { return a.Stream }); i >= 0 {
		return fmt.Errorf("append stream %q: twice in one unit of work", c.Append[i].Stream)
	}
	return nil
}

func (c *Changes) validateEvents(events []event.Envelope, what string) error {
	for i := range events {
		e := &events[i]
		switch {
		case e.ID == "":
			return fmt.Errorf("%s %q into %s: no id", what, e.Type, e.Ref())
		case e.Type == "":
			return fmt.Errorf("%s event %q: no type", what, e.ID)
		case e.Category == "":
			return fmt.Errorf("%s event %q: no category", what, e.ID)
		case e.Lane > event.Backfill:
			return fmt.Errorf("%s event %q: unknown lane %d", what, e.ID, uint8(e.Lane))
		case e.LaneID != "":
			return fmt.Errorf("%s event %q: lane id %q is of a sink lane, this is a broker lane", what, e.ID, e.LaneID)
		}
		if err := CheckLane(e.Ref()); err != nil { // it could not be named with whatever else is wrong
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, text := range [...]struct{ what, is string }{
			{"event id", e.ID}, {"type", e.Type}, {"tenant", e.Tenant}, {"correlation id", e.CorrelationID}, {"causation id", e.CausationID},
			{"traceparent", e.Trace.Parent}, {"tracestate", e.Trace.State},
		} {
			if err := event.CheckID(text.what, text.is); err != nil {
				return fmt.Errorf("%s %s: %w", what, e.Ref(), err)
			}
		}
	}
	return nil
}

func (c *Changes) validateAdvances() error {
	if len(c.Advance) == 0 {
		return nil
	}
	if c.Fence.Unit.IsZero() {
		return errors.New("advance: the fence must name the unit whose checkpoint moves")
	}
	for i := range c.Advance {
		if a := &c.Advance[i]; a.To <= a.From {
			return fmt.Errorf("advance %q on %s: from %d to %d is not forward", c.Fence.Unit.Name, a.Lane, a.From, a.To)
		}
	}
	if i := repeated(c.Advance, func(a *Advance) event.LaneRef { return a.Lane }); i >= 0 {
		return fmt.Errorf("advance %q on %s: twice in one unit of work", c.Fence.Unit.Name, c.Advance[i].Lane)
	}
	return nil
}

func (c *Changes) validateState() error {
	if s := c.Snapshot; s != nil && (s.Stream.IsZero() || s.Version == 0) {
		return fmt.Errorf("snapshot of stream %q at version %d: a snapshot needs a stream and a version", s.Stream, s.Version)
	}
	if r := c.Reply; r != nil && (r.Stream.IsZero() || r.CommandID == "") {
		return fmt.Errorf("reply to command %q of stream %q: a reply needs both", r.CommandID, r.Stream)
	} else if r != nil {
		if err := event.CheckID("command id", r.CommandID); err != nil {
			return fmt.Errorf("reply of stream %q: %w", r.Stream, err)
		}
	}
	return nil
}

func (c *Changes) validateHalts() error {
	switch h := c.Halt; {
	case h == nil:
		return nil
	case c.LiftHalt != nil:
		return fmt.Errorf("halt of unit %q: a unit of work halts or lifts a halt, not both", h.Unit)
	case h.Unit.IsZero() || h.Unit != c.Fence.Unit:
		return fmt.Errorf("halt of unit %q: the fence is for unit %q", h.Unit, c.Fence.Unit)
	case h.Sequence == 0:
		return fmt.Errorf("halt of unit %q: no sequence", h.Unit)
	}
	return nil
}

func (c *Changes) validateDead() error {
	for i := range c.Dead {
		switch d := &c.Dead[i]; {
		case d.Unit.IsZero() || d.Unit != c.Fence.Unit:
			return fmt.Errorf("dead letter of unit %q: the fence is for unit %q", d.Unit, c.Fence.Unit)
		case d.Sequence == 0:
			return fmt.Errorf("dead letter of unit %q: no sequence", d.Unit)
		}
	}
	return nil
}

func (c *Changes) validateParked() error {
	for i := range c.Park {
		switch p := &c.Park[i]; {
		case p.Unit.IsZero() || p.Unit != c.Fence.Unit:
			return fmt.Errorf("parked event of unit %q: the fence is for unit %q", p.Unit, c.Fence.Unit)
		case p.Sequence == 0:
			return fmt.Errorf("parked event of unit %q: no sequence", p.Unit)
		case p.Lane.Category == "":
			return fmt.Errorf("parked event of unit %q: no lane", p.Unit)
		}
	}
	if i := repeated(c.Park, func(p *Parked) HaltRef { return HaltRef{Lane: p.Lane, Sequence: p.Sequence} }); i >= 0 {
		return fmt.Errorf("parked event of unit %q: %s #%d is parked twice", c.Park[i].Unit, c.Park[i].Lane, c.Park[i].Sequence)
	}
	return nil
}

func (c *Changes) validateSettle() error {
	s := c.Settle
	switch {
	case s == nil:
		return nil
	case c.Fence.Unit.IsZero():
		return errors.New("settle: the fence must name the unit whose row it is")
	case s.Kind != AsideParked && s.Kind != AsideDead:
		return fmt.Errorf("settle of unit %q: neither a parked event nor a dead letter (kind %d)", c.Fence.Unit, uint8(s.Kind))
	case s.Sequence == 0:
		return fmt.Errorf("settle of unit %q: no sequence", c.Fence.Unit)
	case len(c.Park) > 0:
		return fmt.Errorf("settle of unit %q: a unit of work settles what was set aside or parks more, not both", c.Fence.Unit)
	}
	for i := range c.Advance {
		if c.Advance[i].Lane == s.Lane {
			return fmt.Errorf("settle of unit %q: the checkpoint of %s moves with its own events, not with what was set aside", c.Fence.Unit, s.Lane)
		}
	}
	return nil
}

func (c *Changes) validateSuspect() error {
	switch s := c.Suspect; {
	case s == nil:
		return nil
	case c.Fence.Unit.IsZero():
		return errors.New("suspect: the fence must name the unit whose row it is")
	case s.Kind != AsideParked && s.Kind != AsideDead:
		return fmt.Errorf("suspect of unit %q: neither a parked event nor a dead letter (kind %d)", c.Fence.Unit, uint8(s.Kind))
	case s.Sequence == 0 || s.Suspicions < 0:
		return fmt.Errorf("suspect of unit %q: sequence %d, suspicions %d", c.Fence.Unit, s.Sequence, s.Suspicions)
	case c.Settle != nil:
		return fmt.Errorf("suspect of unit %q: a unit of work counts an attempt at what was set aside or ends one, not both", c.Fence.Unit)
	}
	return nil
}

func (c *Changes) validateTried() error {
	switch t := c.Tried; {
	case t == nil && c.Untry && c.Fence.Unit.IsZero():
		return errors.New("untry: the fence must name the unit whose attempts are forgotten")
	case t == nil:
		return nil
	case c.Untry:
		return fmt.Errorf("attempts of unit %q: a unit of work notes or forgets them, not both", t.Unit)
	case t.Unit.IsZero() || t.Unit != c.Fence.Unit:
		return fmt.Errorf("attempts of unit %q: the fence is for unit %q", t.Unit, c.Fence.Unit)
	case t.Sequence == 0:
		return fmt.Errorf("attempts of unit %q: no sequence", t.Unit)
	}
	return nil
}

// Growth is how many events one lane gets from a commit.
type Growth struct {
	Lane  event.LaneRef
	Count int
}

// AppendGrowth adds to dst the lanes that grow, in the lane order in which their counters are drawn. Within one lane
// the events of Append come first, in their order, then those of Publish.
func (c *Changes) AppendGrowth(dst []Growth) []Growth {
	start := len(dst)
	count := func(events []event.Envelope) {
		for i := range events {
			ref := events[i].Ref()
			at, found := slices.BinarySearchFunc(dst[start:], ref, func(g Growth, ref event.LaneRef) int { return g.Lane.Compare(ref) })
			if !found {
				dst = slices.Insert(dst, start+at, Growth{Lane: ref})
			}
			dst[start+at].Count++
		}
	}
	for i := range c.Append {
		count(c.Append[i].Events)
	}
	count(c.Publish)
	return dst
}

// repeated gives the index of an item whose key an earlier one has too, or -1.
func repeated[T any, K comparable](items []T, key func(*T) K) int {
	const few = 16 // below this, comparing all pairs is cheaper than a map
	if len(items) <= few {
		for i := range items {
			for j := range i {
				if key(&items[i]) == key(&items[j]) {
					return i
				}
			}
		}
		return -1
	}
	seen := make(map[K]struct{}, len(items))
	for i := range items {
		k := key(&items[i])
		if _, found := seen[k]; found {
			return i
		}
		seen[k] = struct{}{}
	}
	return -1
}

// CheckUnit reports a unit that no store can have, however it was asked for: its error is an [*event.IDError]. An empty name or key is no fault here.
func CheckUnit(u event.Unit) error {
	if err := event.CheckID("name", u.Name); err != nil {
		return err
	}
	return event.CheckID("key", u.Key)
}

// CheckPage does the same for a page of what belongs to a handler, after a unit.
func CheckPage(name string, after event.Unit) error {
	if err := event.CheckID("name", name); err != nil {
		return err
	}
	return CheckUnit(after)
}

// CheckLane does the same for a lane. Only what got into a store past Keyhold, or before this was checked, may be in one: it is still found, to be abandoned.
func CheckLane(l event.LaneRef) error {
	if err := event.CheckID("category", l.Category); err != nil {
		return err
	}
	return event.CheckID("key", l.Key)
}

// CheckStream does the same for a stream.
func CheckStream(s event.Stream) error {
	if err := event.CheckID("kind", s.Kind); err != nil {
		return err
	}
	return event.CheckID("id", s.ID)
}
