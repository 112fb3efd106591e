package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Projection is a read model, and how it stands.
type Projection struct {
	Name       string            `json:"name"`
	Version    int               `json:"version"`              // of the code that declared it last
	Categories []string          `json:"categories,omitempty"` // none = all
	Since      time.Time         `json:"since"`
	Declared   bool              `json:"declared"` // the program that started last has it
	State      string            `json:"state"`    // "current", "behind", "trying", "halted", "paused", "absent"
	Pause      *Pause            `json:"pause,omitempty"`
	Builds     []ProjectionBuild `json:"builds"` // in order of number
	Words      string            `json:"words"`  // "3 behind, the oldest for 2 s; build 2 is being made, 400 behind"
}

// ProjectionBuild is one making of a read model from the first event.
type ProjectionBuild struct {
	Number    int             `json:"number"`
	Version   int             `json:"version"`
	State     string          `json:"state"`            // "current", "making", "old"
	Moves     bool            `json:"moves"`            // of the program's version: false = its tables stay as they are
	Tables    []string        `json:"tables,omitempty"` // as readers call them
	Position  string          `json:"position"`         // opaque
	EventID   string          `json:"event_id,omitempty"`
	EventTime time.Time       `json:"event_time,omitzero"` // of the last event that it is through with
	Moved     time.Time       `json:"moved,omitzero"`
	Applied   uint64          `json:"applied"`
	Passed    uint64          `json:"passed"` // not handled
	Skipped   uint64          `json:"skipped"`
	Began     time.Time       `json:"began"`
	Behind    uint64          `json:"behind"`         // events, exactly; of one that does not move 0
	Delay     float64         `json:"delay_seconds"`  // age of the first event behind; 0 when there is none
	Rate      float64         `json:"rate,omitempty"` // events per second lately; known in the process that runs it
	Stopped   *ProjectionStop `json:"stopped,omitempty"`
}

// ProjectionStop is the event at which a build is halted or that it tries again.
type ProjectionStop struct {
	Halted   bool      `json:"halted"`
	EventID  string    `json:"event_id,omitempty"` // "" = in Setup
	Type     string    `json:"type,omitempty"`
	At       *Place    `json:"at,omitempty"`
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason,omitempty"`
	Error    string    `json:"error"`
	Since    time.Time `json:"since"`
	Again    time.Time `json:"again,omitzero"` // when it is tried next
	Words    string    `json:"words"`
}

// ProjectionFigures are what only the process knows that runs a build.
type ProjectionFigures struct {
	Behind uint64
	First  time.Time // when the first event was emitted that is behind; zero when there is none
	Rate   float64
}

// ProjectionRequest is what a person wants done to a projection.
type ProjectionRequest struct {
	Kind eventstore.ActKind `json:"kind"` // pause, resume, retry, skip, rebuild, cancel rebuild, drop build, remove
	Name string             `json:"name"`
	// Build is the one that is halted, for retry and skip; 0 = the only one that is.
	Build int `json:"build,omitempty"`
	// Event is the id of the event that the person saw it halted at; nil = act on what the desk reads now. "" is a halt in Setup.
	Event  *string `json:"event,omitempty"`
	Actor  string  `json:"actor,omitempty"`  // "" = [Options.Actor]
	Reason string  `json:"reason,omitempty"` // required for skip and remove
}

// Projections gives all in order of name.
func (d *Desk) Projections(ctx context.Context) ([]Projection, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	stored, err := d.store.ListProjections(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Projection, len(stored))
	for i := range stored {
		if all[i], err = d.projection(ctx, &stored[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Projection gives one of them; [*NotFoundError] names those there are.
func (d *Desk) Projection(ctx context.Context, name string) (Projection, error) {
	if err := d.ready(); err != nil {
		return Projection{}, err
	}
	stored, err := d.storedProjection(ctx, name)
	if err != nil {
		return Projection{}, err
	}
	return d.projection(ctx, &stored)
}

func (d *Desk) storedProjection(ctx context.Context, name string) (eventstore.Projection, error) {
	stored, err := d.store.ReadProjection(ctx, name)
	if !errors.Is(err, eventstore.ErrNotFound) {
		return stored, err
	}
	all, err := d.store.ListProjections(ctx)
	if err != nil {
		return stored, err
	}
	missing := &NotFoundError{What: "projection", Name: name}
	for i := range all {
		missing.Known = append(missing.Known, all[i].Name)
	}
	return stored, missing
}

func (d *Desk) projection(ctx context.Context, s *eventstore.Projection) (Projection, error) {
	p := Projection{Name: s.Name, Version: s.Version, Categories: s.Categories, Since: s.Since, Declared: s.Declared, State: "current", Builds: []ProjectionBuild{}}
	if s.Pause != nil {
		p.Pause = &Pause{Handler: s.Name, Actor: s.Pause.Actor, Reason: s.Pause.Reason, Since: s.Pause.Since}
	}
	for i := range s.Builds {
		b, err := d.projectionBuild(ctx, s, &s.Builds[i])
		if err != nil {
			return p, err
		}
		p.Builds = append(p.Builds, b)
	}
	p.State = d.projectionState(&p)
	p.Words = d.projectionWords(&p)
	return p, nil
}

func (d *Desk) projectionBuild(ctx context.Context, s *eventstore.Projection, b *eventstore.ProjectionBuild) (ProjectionBuild, error) {
	v := ProjectionBuild{
		Number: b.Number, Version: b.Version, State: string(b.State), Moves: s.Runs(b), Tables: b.Tables, Position: string(b.Position),
		EventID: b.EventID, EventTime: b.EventTime, Moved: b.Moved, Applied: b.Applied, Passed: b.Passed, Skipped: b.Skipped, Began: b.Began,
		Stopped: d.projectionStop(b),
	}
	if !v.Moves {
		return v, nil
	}
	f, err := d.projectionFigures(ctx, s, b)
	if err != nil {
		return v, err
	}
	v.Behind, v.Rate = f.Behind, f.Rate
	if !f.First.IsZero() {
		v.Delay = max(d.opts.Now().Sub(f.First).Seconds(), 0)
	}
	return v, nil
}

// projectionFigures asks the process that runs the build, where that is this one, and else counts.
func (d *Desk) projectionFigures(ctx context.Context, s *eventstore.Projection, b *eventstore.ProjectionBuild) (ProjectionFigures, error) {
	if d.opts.Live != nil && d.opts.Live.Projection != nil {
		if f, err := d.opts.Live.Projection(ctx, s.Name, b.Number); err != nil || f != nil {
			if err != nil {
				return ProjectionFigures{}, err
			}
			return *f, nil
		}
	}
	lag, err := d.store.ProjectionLag(ctx, b.Position, s.Categories)
	return ProjectionFigures{Behind: lag.Behind, First: lag.First}, err
}

func (d *Desk) projectionStop(b *eventstore.ProjectionBuild) *ProjectionStop {
	var v ProjectionStop
	var at eventstore.ProjectionEvent
	switch {
	case b.Halt != nil:
		at = b.Halt.Event
		v = ProjectionStop{Halted: true, Attempts: b.Halt.Attempts, Reason: b.Halt.Reason, Error: b.Halt.Error, Since: b.Halt.Since}
		v.Words = fmt.Sprintf("halted for %s at %s: %s", d.since(v.Since), at, because(v.Reason, v.Attempts, v.Error))
	case b.Tried != nil:
		at = b.Tried.Event
		v = ProjectionStop{Attempts: b.Tried.Attempts, Error: b.Tried.Error, Since: b.Tried.Time, Again: b.Tried.Again}
		v.Words = fmt.Sprintf("trying %s again: %s", at, because("failed", v.Attempts, v.Error))
		if v.Again.IsZero() {
			v.Words = fmt.Sprintf("at %s: %s", at, upTo(200, v.Error))
		}
	default:
		return nil
	}
	v.EventID, v.Type = at.ID, at.Type
	if at.ID != "" {
		place := placeOf(at.Place.Lane, at.Place.Sequence, at.ID)
		v.At = &place
	}
	return &v
}

func (d *Desk) projectionState(p *Projection) string {
	state := "current"
	for i := range p.Builds {
		b := &p.Builds[i]
		switch {
		case b.Moves && b.Stopped != nil && b.Stopped.Halted:
			return "halted"
		case p.Pause != nil:
			state = "paused"
		case !p.Declared:
			state = "absent"
		case state != "current" && state != "behind":
		case b.Moves && b.Stopped != nil:
			state = "trying"
		case b.Moves && b.Behind > 0, b.State == string(eventstore.BuildMaking):
			state = "behind"
		}
	}
	return state
}

func (d *Desk) projectionWords(p *Projection) string {
	words := ""
	add := func(format string, args ...any) {
		if words != "" {
			words += "; "
		}
		words += fmt.Sprintf(format, args...)
	}
	if p.Pause != nil {
		add("paused for %s by %s", d.since(p.Pause.Since), p.Pause.Actor)
	}
	if !p.Declared {
		add("the program that started last does not have it")
	}
	for i := range p.Builds {
		b := &p.Builds[i]
		of := ""
		if b.State == string(eventstore.BuildMaking) {
			of = fmt.Sprintf("build %d is being made: ", b.Number)
		}
		switch {
		case b.State == string(eventstore.BuildOld):
			add("old build %d is still there", b.Number)
		case !b.Moves:
			add("readers see build %d of version %d, which does not move", b.Number, b.Version)
		case b.Stopped != nil:
			add("%s%s, %s behind", of, b.Stopped.Words, ofMany(b.Behind, "event", "events"))
		case b.Behind > 0:
			add("%s%s behind, the first for %s", of, ofMany(b.Behind, "event", "events"), age(time.Duration(b.Delay*float64(time.Second))))
		default:
			add("%sup to date", of)
		}
	}
	return words
}

// ActOnProjection does it, or refuses: [*UsageError], [*NotFoundError], [*MovedError] when the projection is not in the state expected, or in
// none in which that can be done, [eventstore.ErrInUse] for the removal of one that the program has that started last.
func (d *Desk) ActOnProjection(ctx context.Context, r ProjectionRequest) (ActResult, error) {
	if r.Actor == "" {
		r.Actor = d.opts.Actor
	}
	act := eventstore.ProjectionAct{Kind: r.Kind, Name: r.Name, Build: r.Build, Actor: r.Actor, Reason: r.Reason, Time: d.opts.Now().UTC()}
	if err := d.ready(); err != nil {
		return ActResult{}, err
	}
	stored, err := d.storedProjection(ctx, r.Name)
	if err != nil {
		return ActResult{}, err
	}
	assumed := r.Event == nil && (r.Kind == eventstore.ActRetry || r.Kind == eventstore.ActSkip)
	if r.Event != nil {
		act.Event = *r.Event
	} else if assumed {
		for i := range stored.Builds {
			if b := &stored.Builds[i]; b.Halt != nil && (r.Build == 0 || b.Number == r.Build) {
				act.Event = b.Halt.Event.ID
			}
		}
		if act.Event == "" && r.Kind == eventstore.ActSkip {
			return ActResult{}, &MovedError{Act: fmt.Sprintf("%s projection %s", r.Kind, r.Name), Why: "it is not halted at an event"}
		}
	}
	if err := act.Validate(); err != nil {
		return ActResult{}, &UsageError{Faults: []string{err.Error()}}
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return ActResult{}, err
	}
	done, err := d.store.ActOnProjection(ctx, act)
	if moved, ok := errors.AsType[*eventstore.ProjectionMovedError](err); ok {
		now, _ := d.Projection(ctx, r.Name) // for words alone
		return ActResult{}, &MovedError{Act: fmt.Sprintf("%s projection %s", r.Kind, r.Name), Why: moved.Why, Projection: &now, err: err}
	}
	if errors.Is(err, eventstore.ErrInUse) && owner != nil {
		return ActResult{}, &inUseError{"projection", r.Name, owner}
	}
	if err != nil {
		return ActResult{}, err
	}
	d.acted(done)
	taken := "at once"
	if act.Kind != eventstore.ActRemove && act.Kind != eventstore.ActDropBuild { // which are done with the act itself
		taken = d.takenUp(act.Kind, owner)
	}
	return ActResult{Audit: auditOf(done), Assumed: assumed, Warnings: []string{}, TakenUp: taken}, nil
}

// projectionProblems finds what is wrong with projections, without counting what they are behind.
func (d *Desk) projectionProblems(ctx context.Context) (found []Problem, err error) {
	all, err := d.store.ListProjections(ctx)
	for i := range all {
		p := &all[i]
		show := d.command("projections show", nil, p.Name)
		for j := range p.Builds {
			b := &p.Builds[j]
			if b.Halt != nil && p.Runs(b) && p.Declared {
				found = append(found, Problem{Kind: ProblemHalted, Handler: p.Name, Count: 1, Oldest: b.Halt.Since,
					Words: fmt.Sprintf("projection %s, build %d: %s", p.Name, b.Number, d.projectionStop(b).Words), Command: show})
			}
		}
		switch {
		case !p.Declared:
			found = append(found, Problem{Kind: ProblemAbsent, Handler: p.Name, Note: true, Command: show,
				Words: fmt.Sprintf("projection %s is in the store and not in the program that started last; what it has not read is kept for it", p.Name)})
		case p.Pause != nil:
			found = append(found, Problem{Kind: ProblemPaused, Handler: p.Name, Count: 1, Oldest: p.Pause.Since, Command: show,
				Words: fmt.Sprintf("projection %s is paused for %s by %s", p.Name, d.since(p.Pause.Since), p.Pause.Actor)})
		}
	}
	return found, err
}
