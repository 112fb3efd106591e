package eventstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
)

// The rules of projections, as functions of what a store knows: adapters read a [Projection], have it changed here, and write it back in the
// same transaction. So all of them decide alike.

// ProjectionTurn is what an adapter has to do with tables when a projection has changed.
type ProjectionTurn struct {
	Gone []ProjectionBuild // their tables are to be dropped
	// Show is the build whose tables readers are to see from now on, Hide the one whose they saw; nil when nothing is to be done.
	Show, Hide *ProjectionBuild
}

// Declare makes p what a program declares. The error is of categories that changed where the version did not.
func (p *Projection) Declare(d ProjectionDeclared, now time.Time) (turn ProjectionTurn, err error) {
	known := p.Name != ""
	if known && p.Version == d.Version && !slices.Equal(p.Categories, d.Categories) {
		return turn, fmt.Errorf("projection %q: its Categories are %q in the store and %q in this program, and its Version is %d in both: set Version to %d, so that it is built anew",
			d.Name, p.Categories, d.Categories, d.Version, d.Version+1)
	}
	if !known {
		p.Since = now
	}
	p.ProjectionDeclared, p.Declared = d, true
	if !known {
		p.begin(BuildCurrent, now)
		return turn, nil
	}
	current := p.In(BuildCurrent)
	if making := p.In(BuildMaking); making != nil && making.Version != d.Version {
		turn.Gone = append(turn.Gone, p.remove(making.Number))
		current = p.In(BuildCurrent)
	}
	if current.Version != d.Version && p.In(BuildMaking) == nil {
		p.begin(BuildMaking, now)
	}
	return turn, nil
}

// begin adds a build of the present version.
func (p *Projection) begin(state BuildState, now time.Time) *ProjectionBuild {
	p.Last++
	p.Builds = append(p.Builds, ProjectionBuild{Number: p.Last, Version: p.Version, State: state, Began: now})
	return &p.Builds[len(p.Builds)-1]
}

// Forget removes a build.
func (p *Projection) Forget(number int) { p.remove(number) }

// ProjectionNameTaken is the error of a projection that has the name of something else.
func ProjectionNameTaken(name string, kind HandlerKind) error {
	return fmt.Errorf("projection %q: the store knows a %s of that name, and they share one name space: rename the projection", name, kind)
}

func (p *Projection) remove(number int) (gone ProjectionBuild) {
	p.Builds = slices.DeleteFunc(slices.Clone(p.Builds), func(b ProjectionBuild) bool {
		if b.Number == number {
			gone = b
		}
		return b.Number == number
	})
	return gone
}

// Step applies a step to p. atEnd tells whether nothing of the projection's categories is after s.To; it is asked for a switch alone.
func (p *Projection) Step(s *ProjectionStep, atEnd func() (bool, error)) (turn ProjectionTurn, err error) {
	b := p.Build(s.Build)
	refused := func(format string, args ...any) (ProjectionTurn, error) {
		return turn, &ProjectionMovedError{Name: s.Name, What: fmt.Sprintf("build %d moves", s.Build), Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case b == nil:
		return refused("there is no such build any more")
	case !p.Runs(b):
		return refused("it is %s, of version %d; the program has version %d", b.State, b.Version, p.Version)
	case p.Pause != nil:
		return refused("it is paused")
	case b.Halt != nil:
		return refused("it is halted")
	case b.Position != s.From:
		return refused("it is at position %q, not at %q", b.Position, s.From)
	}
	if s.To != s.From {
		b.Position, b.EventID, b.EventTime, b.Moved = s.To, s.Event, s.EventTime, s.Time
		b.Applied += uint64(s.Applied)
		b.Passed += uint64(s.Passed)
		b.Tried = nil
	}
	if s.Setup != nil {
		b.SetUp, b.Tables, b.Tried = true, s.Setup.Names, nil
		if b.State == BuildCurrent {
			turn.Show = b
		}
	}
	if s.Tried != nil {
		b.Tried = s.Tried
	}
	if s.Halt != nil {
		b.Halt, b.Tried = s.Halt, nil
	}
	if s.Switch && b.State == BuildMaking && b.SetUp && b.Halt == nil {
		end, err := atEnd()
		if err != nil || !end {
			return turn, err
		}
		old := p.In(BuildCurrent)
		old.State = BuildOld
		b.State, b.Switched, b.Tried = BuildCurrent, s.Time, nil
		turn.Show, turn.Hide = b, old
	}
	return turn, nil
}

// Act applies an act to p, which is known. It gives what changed in words, and the event concerned.
func (p *Projection) Act(a *ProjectionAct) (detail string, at event.Position, turn ProjectionTurn, err error) {
	refused := func(format string, args ...any) (string, event.Position, ProjectionTurn, error) {
		return "", event.Position{}, ProjectionTurn{}, &ProjectionMovedError{Name: a.Name, What: string(a.Kind), Why: fmt.Sprintf(format, args...)}
	}
	done := func(format string, args ...any) (string, event.Position, ProjectionTurn, error) {
		return fmt.Sprintf(format, args...), at, turn, nil
	}
	current, making := p.In(BuildCurrent), p.In(BuildMaking)
	switch a.Kind {
	case ActPause:
		if p.Pause != nil {
			return refused("it is paused already, by %s", p.Pause.Actor)
		}
		p.Pause = &Pause{Unit: event.Unit{Name: p.Name}, Actor: a.Actor, Reason: a.Reason, Since: a.Time}
		return done("paused")
	case ActResume:
		if p.Pause == nil {
			return refused("it is not paused")
		}
		since := p.Pause.Since
		p.Pause = nil
		return done("resumed; it was paused since %s", since.UTC().Format(time.RFC3339))
	case ActRetry, ActSkip:
		b, why := p.halted(a)
		if b == nil {
			return refused("%s", why)
		}
		h := b.Halt
		at, b.Halt, b.Tried = h.Event.Place, nil, nil
		if a.Kind == ActRetry {
			return done("build %d was halted at %s (%s), now tries it again", b.Number, h.Event, h.Reason)
		}
		b.Position, b.EventID, b.EventTime, b.Moved = h.Event.Position, h.Event.ID, h.Event.Time, a.Time
		b.Skipped++
		return done("build %d was halted at %s (%s: %s), passed it without applying it", b.Number, h.Event, h.Reason, h.Error)
	case ActRebuild:
		if making != nil {
			return refused("build %d is being made already: cancel it first", making.Number)
		}
		return done("build %d begins from the first event", p.begin(BuildMaking, a.Time).Number)
	case ActCancelRebuild:
		switch {
		case making == nil:
			return refused("no build is being made")
		case p.Declared && current.Version != p.Version:
			return refused("the program has version %d, and build %d is of version %d: nothing else could run", p.Version, current.Number, current.Version)
		}
		turn.Gone = append(turn.Gone, p.remove(making.Number))
		return done("gave build %d up", making.Number)
	case ActDropBuild:
		for old := p.In(BuildOld); old != nil; old = p.In(BuildOld) {
			turn.Gone = append(turn.Gone, p.remove(old.Number))
		}
		for _, l := range p.Left {
			turn.Gone = append(turn.Gone, ProjectionBuild{Number: l.Build, Tables: l.Tables, State: BuildOld})
		}
		if len(turn.Gone) == 0 {
			return refused("it has no old build")
		}
		return done("dropped %d old builds", len(turn.Gone))
	case ActRemove:
		if p.Declared {
			return "", at, turn, fmt.Errorf("remove projection %q: the program that started last has it: start one without it first: %w", p.Name, ErrInUse)
		}
		turn.Gone, turn.Hide = p.Builds, current
		p.Builds = nil
		return done("removed with all its tables")
	}
	return refused("that is not done to projections")
}

// halted finds the build that a retry or skip is about, or says why there is none.
func (p *Projection) halted(a *ProjectionAct) (found *ProjectionBuild, why string) {
	for i := range p.Builds {
		b := &p.Builds[i]
		if b.Halt == nil || a.Build != 0 && b.Number != a.Build {
			continue
		}
		if found != nil {
			return nil, fmt.Sprintf("builds %d and %d are halted: say which", found.Number, b.Number)
		}
		found = b
	}
	switch {
	case found == nil && a.Build != 0:
		return nil, fmt.Sprintf("build %d is not halted", a.Build)
	case found == nil:
		return nil, "it is not halted"
	case found.Halt.Event.ID != a.Event:
		return nil, fmt.Sprintf("build %d is halted at %s", found.Number, found.Halt.Event)
	}
	return found, ""
}

// String names the event for people.
func (e ProjectionEvent) String() string {
	switch {
	case e.ID == "" && e.Type == AtSwitch:
		return "the switch, in which it takes the place of the build before"
	case e.ID == "":
		return "Setup"
	}
	return fmt.Sprintf("event %s (%s, %s #%d)", e.ID, e.Type, e.Place.Lane, e.Place.Sequence)
}

// StartAfter tells a projection that is declared for the first time which number its builds go on from: tables that were left of one of that name
// have theirs.
func (p *Projection) StartAfter(left []LeftTables) {
	for _, l := range left {
		p.Last = max(p.Last, l.Build)
	}
}

// Clone gives a copy that can be changed without changing p. What its pointers point to is never changed.
func (p Projection) Clone() Projection {
	p.Builds = slices.Clone(p.Builds)
	return p
}
