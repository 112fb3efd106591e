package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// WhyQuery names what is to be explained: what becomes of the events of a key. Category may also be the name of a handler or entity kind,
// which then is what Handler is.
type WhyQuery struct {
	Category string
	Key      string
	Handler  string // "" = all that read the category
}

// Explanation says where the events of a key are and what keeps them there, one unit at a time, those that need a person first.
type Explanation struct {
	At         time.Time `json:"at"`
	Category   string    `json:"category,omitempty"`
	Key        string    `json:"key"`
	OwnerWords string    `json:"owner_words"`
	Units      []WhyUnit `json:"units"`
	// Projections are the read models of the category that are halted or paused, for all its keys alike.
	Projections []WhyProjection `json:"projections,omitempty"`
	// Divergences are lanes of the key of which the broker has events that the store has not.
	Divergences []Divergence `json:"divergences,omitempty"`
	Words       string       `json:"words"` // one line: "1 of 2 readers of order:client-17 is stopped"
}

// WhyProjection is a read model that shows nothing new.
type WhyProjection struct {
	Name  string `json:"name"`
	State string `json:"state"` // "halted" or "paused"
	Here  bool   `json:"here"`  // it is halted at an event of the key
	Words string `json:"words"` // "projection sales, build 1, stands at an event of this key: halted for 4 m at ..."
	Next  Step   `json:"next"`
}

// WhyUnit is one unit, explained.
type WhyUnit struct {
	Unit
	// Because is what is going on, in sentences, the reason first: "halted for 4 m at order:client-17 #5 (order.placed): retries
	// exhausted after 5 attempts: card declined".
	Because []string `json:"because"`
	// Behind is what waits, in words: "3 events wait behind it: order.placed (2 m), order.paid (1 m), order.placed (3 s)"; "" when nothing does.
	Behind string `json:"behind,omitempty"`
	// Next is what to do now, the most likely first; empty when there is nothing to do.
	Next []Step `json:"next"`
}

// Step is something that a person may do.
type Step struct {
	Command string `json:"command,omitempty"` // as typed: "keyhold partitions retry shipping client-17"; "" for what no command does
	Words   string `json:"words"`             // what it does: "try the event again, once the cause is mended"
}

// Why explains what becomes of the events of a key. A key that no event has is a [*NotFoundError].
func (d *Desk) Why(ctx context.Context, q WhyQuery) (Explanation, error) {
	var faults []string
	if q.Key == "" {
		faults = append(faults, "no key is named: give one")
	}
	if q.Category == "" && q.Handler == "" {
		faults = append(faults, "neither a category nor a handler is named: give one")
	}
	if err := d.begin(usage(faults)); err != nil {
		return Explanation{}, err
	}
	r, err := d.store.LoadRegistry(ctx)
	if err != nil {
		return Explanation{}, err
	}
	names, err := concerned(r, &q)
	if err != nil {
		return Explanation{}, d.orProjection(ctx, err)
	}
	by, err := d.runner(ctx)
	if err != nil {
		return Explanation{}, err
	}
	view, err := d.viewer(ctx, false)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{At: d.opts.Now().UTC(), Category: q.Category, Key: q.Key, OwnerWords: ownerWords(by.owner), Units: []WhyUnit{}}
	read := []string{q.Category}
	for _, h := range r.Handlers {
		if q.Category == "" && h.Name == q.Handler {
			read = h.Categories
		}
	}
	if x.Divergences, err = d.divergencesOf(ctx, read, q.Key); err != nil {
		return Explanation{}, err
	}
	for _, name := range names {
		s, err := d.unitState(ctx, event.Unit{Name: name, Key: q.Key})
		if err != nil {
			return Explanation{}, err
		}
		u, err := d.show(ctx, s, by, view, 0)
		if err != nil {
			return Explanation{}, err
		}
		if u.Activity == nil && atRest(s) && (q.Category != "" || d.known(ctx, s) != nil) {
			continue
		}
		x.Units = append(x.Units, WhyUnit{Unit: u, Because: d.reasons(&u), Behind: d.behind(&u), Next: d.steps(&u)})
		x.diverges(&x.Units[len(x.Units)-1])
	}
	if err := d.explained(ctx, r, &x, q); err != nil {
		return Explanation{}, err
	}
	slices.SortStableFunc(x.Units, func(a, b WhyUnit) int { return cmp.Compare(urgency(&a.Unit), urgency(&b.Unit)) })
	if x.Projections, err = d.stoppedProjections(ctx, q); err != nil {
		return Explanation{}, err
	}
	x.Words = x.words()
	return x, nil
}

// explained gives an error for a key of which there is nothing to explain.
func (d *Desk) explained(ctx context.Context, r eventstore.Registered, x *Explanation, q WhyQuery) error {
	if len(x.Units) > 0 || len(x.Divergences) > 0 {
		return nil
	}
	if q.Category == "" {
		s, err := d.unitState(ctx, event.Unit{Name: q.Handler, Key: q.Key})
		if err != nil {
			return err
		}
		return d.known(ctx, s)
	}
	for _, lane := range []event.Lane{event.Primary, event.Backfill} {
		tail, err := d.store.LaneTail(ctx, event.LaneRef{Category: q.Category, Key: q.Key, Lane: lane})
		if err != nil || tail > 0 { // nobody reads what is there
			return err
		}
	}
	missing, err := d.noKey(ctx, r, []string{q.Category}, q.Key)
	if err != nil {
		return err
	}
	return missing
}

// concerned gives the handlers that a question is about: those that read the category, and an entity kind of its name, whose commands go by
// its ids.
func concerned(r eventstore.Registered, q *WhyQuery) (names []string, err error) {
	if q.Handler == "" && !slices.Contains(categoryNames(r), q.Category) && slices.Contains(handlerNames(r), q.Category) {
		q.Handler, q.Category = q.Category, ""
	}
	if err := checkNames(r, q.Handler, q.Category); err != nil {
		if q.Handler == "" {
			known := append(categoryNames(r), handlerNames(r)...)
			slices.Sort(known)
			err = &NotFoundError{What: "category, handler or entity kind", Name: q.Category, Known: slices.Compact(known), Empty: isEmpty(r)}
		}
		return nil, err
	}
	if q.Handler != "" {
		return []string{q.Handler}, nil
	}
	for _, h := range r.Handlers {
		if slices.Contains(h.Categories, q.Category) || h.Name == q.Category {
			names = append(names, h.Name)
		}
	}
	return names, nil
}

// urgency orders units, those that need a person first.
func urgency(u *Unit) int {
	order := []string{"halted", "parking", "paused", stateWaiting, "trying", "behind"}
	if u.Absent && u.State == "behind" {
		return slices.Index(order, stateWaiting)
	}
	if i := slices.Index(order, u.State); i >= 0 {
		return i
	}
	return len(order)
}

func (x *Explanation) words() string {
	stopped := 0
	for i := range x.Units {
		if urgency(&x.Units[i].Unit) < urgency(&Unit{State: "trying"}) {
			stopped++
		}
	}
	what := x.Key
	if x.Category != "" {
		what = x.Category + ":" + x.Key
	}
	switch {
	case len(x.Units) == 0:
		return "no handler reads " + what + x.halts()
	case x.Category == "":
		u := &x.Units[0].Unit
		return u.Handler + " " + u.Key + ": " + u.Words + x.halts()
	case stopped == 0:
		return fmt.Sprintf("nothing stops %s at %s", ofMany(len(x.Units), "reader", "readers"), what) + x.halts()
	}
	return fmt.Sprintf("%d of %s of %s %s stopped", stopped, ofMany(len(x.Units), "reader", "readers"), what, are(stopped)) + x.halts()
}

// diverges says of a unit which of its events wait because their lane diverged.
func (x *Explanation) diverges(u *WhyUnit) {
	for _, v := range x.Divergences {
		for _, l := range u.Lanes {
			if l.Lag > 0 && l.Category == v.At.Category && l.Backfill == v.At.Backfill {
				u.Because[0] = strings.TrimSuffix(u.Because[0], notInTheWay)
				u.Because = append(u.Because, fmt.Sprintf("%s diverged: of what is not applied, nothing that was not published before comes until a person decides about the lane", v.At.lane()))
			}
		}
	}
}

// halts says which lanes of the key diverged, and which projections are halted at it.
func (x *Explanation) halts() (words string) {
	for _, v := range x.Divergences {
		words += "; " + v.At.lane().String() + " diverged"
	}
	for _, p := range x.Projections {
		if p.Here {
			words += "; projection " + p.Name + " is halted at it"
		}
	}
	return words
}

// stoppedProjections gives the read models of a category that are halted or paused.
func (d *Desk) stoppedProjections(ctx context.Context, q WhyQuery) (found []WhyProjection, err error) {
	if q.Category == "" {
		return nil, nil
	}
	all, err := d.store.ListProjections(ctx)
	for i := range all {
		p := &all[i]
		if !p.Declared || len(p.Categories) > 0 && !slices.Contains(p.Categories, q.Category) {
			continue
		}
		for j := range p.Builds {
			b := &p.Builds[j]
			if b.Halt == nil || !p.Runs(b) {
				continue
			}
			at := b.Halt.Event
			w := WhyProjection{Name: p.Name, State: "halted", Here: at.Place.Lane.Category == q.Category && at.Place.Lane.Key == q.Key}
			where := "stands at an event of another key, and applies none of this one either"
			switch {
			case w.Here:
				where = "stands at an event of this key"
			case at.ID == "":
				where = "stands before its first event"
			}
			w.Words = fmt.Sprintf("projection %s, build %d, %s: %s", p.Name, b.Number, where, d.projectionStop(b).Words)
			w.Next = Step{Command: d.command("projections retry", []string{"--expect", at.ID}, p.Name), Words: "try the event again, once the cause is mended"}
			found = append(found, w)
		}
		if p.Pause != nil {
			found = append(found, WhyProjection{Name: p.Name, State: "paused",
				Words: fmt.Sprintf("projection %s is paused for %s %s", p.Name, d.since(p.Pause.Since), by(p.Pause.Actor, p.Pause.Reason)),
				Next:  Step{Command: d.command("projections resume", nil, p.Name), Words: "have it go on"}})
		}
	}
	return found, err
}
