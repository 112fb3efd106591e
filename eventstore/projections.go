package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Projections tells how read models stand in the order of all events ([Streams.ReadAll]), and lets people act on them. It works beside
// the process that owns the store.
type Projections interface {
	// ListProjections gives all, in order of name.
	ListProjections(ctx context.Context) ([]Projection, error)
	// ReadProjection gives one; the error is of kind [ErrNotFound] when there is none of that name.
	ReadProjection(ctx context.Context, name string) (Projection, error)
	// ProjectionLag counts what lies after a position of what the categories named (none = all but those of commands) hold. Its cost
	// grows with what lies after the position, not with what there is.
	ProjectionLag(ctx context.Context, after Position, categories []string) (ProjectionLag, error)
	// ActOnProjection acts, and leaves a row among the [Acts]. Errors: what [ProjectionAct.Validate] says, [*ProjectionMovedError] when the
	// state is not what the act was decided on, [ErrNotFound], and [ErrInUse] for the removal of what the program that
	// started last declares.
	ActOnProjection(ctx context.Context, a ProjectionAct) (ActRecord, error)
}

// ProjectionBuilds is what the process that owns a store needs to run projections.
type ProjectionBuilds interface {
	// DeclareProjections says what the program declares, at its start, and gives the state of each in the order given. What is new
	// begins with build 1, which is current at once. Where Version is not that of the current build, another build takes the next
	// number and begins at the beginning, unless one of that version is being made already; one of any other version that
	// is being made is given up. Those not named are not declared any more. Categories that differ where Version does not
	// are an error, as is a name that a handler has.
	DeclareProjections(ctx context.Context, declared []ProjectionDeclared) ([]Projection, error)
	// ReadPlaced is [Streams.ReadAll] with the position of each event. db is nil, or what [Tx.SQL] gave: then it reads inside that unit of
	// work, which sees all that it would commit after, and to which nothing can be added while it holds the writer. The events are also
	// there where another unit of work of the same transaction committed them and nobody else sees them yet.
	ReadPlaced(ctx context.Context, db SQL, after Position, categories []string, limit int) ([]Placed, error)
	// Barren tells how far a build at a position may move without an event: to the end of what there is, where nothing of the categories is
	// after the position and the end is thousands of events away; else it gives the position itself. Its cost grows with what lies between.
	Barren(ctx context.Context, after Position, categories []string) (Position, error)
	// DropBuild forgets a build that is [BuildOld], its tables included. One that is not there is no error. Where the tables cannot be
	// dropped the build is forgotten nevertheless: they are [Projection].Left, and the error says why.
	DropBuild(ctx context.Context, name string, number int) error
	// DropLeft tries again to drop what was left of builds that are gone, also of projections that were removed. The error
	// says what is left still, and why.
	DropLeft(ctx context.Context) error
}

// Placed is an event with its place in the order of all.
type Placed struct {
	event.Envelope
	Position Position
}

// ErrNotShown is the kind of error of a step that gives readers the tables of another build, where the store cannot do that: a table or an
// index of the application's has taken a name, say. It is not the doing of the events in the step.
var ErrNotShown = errors.New("readers cannot be shown the tables of the build")

// ErrProjectionMoved is what a [*ProjectionMovedError] is.
var ErrProjectionMoved = errors.New("projection moved")

// ProjectionDeclared is a projection as a program declares it.
type ProjectionDeclared struct {
	Name       string
	Version    int      // of its code, 1 at least
	Categories []string // empty = all but those of commands
}

// Projection is what a store knows of a read model.
type Projection struct {
	ProjectionDeclared // by the program that declared it last
	Since              time.Time
	Declared           bool              // by the program that started last
	Pause              *Pause            // nil when its builds are to go on; the key of its unit is ""
	Builds             []ProjectionBuild // in order of number
	Last               int               // highest number that a build ever had
	Left               []LeftTables      // of builds that are gone, in order of number
}

// LeftTables are the tables of a build that is gone: they could not be dropped, such as where another table has a foreign key to them. Nothing
// else fails of that, and it is tried again at each start, and with [ActDropBuild].
type LeftTables struct {
	Build  int
	Tables []string // by the names that readers use
	Error  string   // why they are still there
}

// Build gives the build of a number, nil when there is none.
func (p *Projection) Build(number int) *ProjectionBuild {
	for i := range p.Builds {
		if p.Builds[i].Number == number {
			return &p.Builds[i]
		}
	}
	return nil
}

// In gives the newest build in a state, nil when there is none. There is one at most that is current, and one that is being made.
func (p *Projection) In(state BuildState) *ProjectionBuild {
	for i := len(p.Builds) - 1; i >= 0; i-- {
		if p.Builds[i].State == state {
			return &p.Builds[i]
		}
	}
	return nil
}

// Runs reports whether a build moves: it is current or being made, by the version of the code that there is.
func (p *Projection) Runs(b *ProjectionBuild) bool {
	return b.State != BuildOld && b.Version == p.Version
}

// BuildState says what a build is for.
type BuildState string

const (
	BuildCurrent BuildState = "current" // readers see its tables
	BuildMaking  BuildState = "making"  // takes the place of the current one when it has caught up
	BuildOld     BuildState = "old"     // was current; its tables are there until they are dropped
)

// ProjectionBuild is one making of a read model from the beginning.
type ProjectionBuild struct {
	Number  int // from 1
	Version int // of the code
	State   BuildState
	SetUp   bool     // Setup has run
	Tables  []string // by the names that readers use, in order

	Position  Position  // of the last event that was applied or passed over, or behind it where only events of other categories followed
	EventID   string    // of that event
	EventTime time.Time // of that event; zero before the first
	Moved     time.Time // when it last moved; zero = never
	Applied   uint64    // events that the behavior was given, and that committed
	Passed    uint64    // events that it does not handle
	Skipped   uint64    // events that a person skipped

	Began    time.Time
	Switched time.Time // when it became current; zero = it is not yet, or was from the beginning

	Halt  *ProjectionHalt  // nil when it is not halted
	Tried *ProjectionTried // of the next event; nil when none failed
}

// AtSwitch is the Type of a [ProjectionEvent] that is none: taking the place of the build before, behind all events. Its other fields are empty.
const AtSwitch = "switch"

// ProjectionEvent names the event that a build is at. Its zero value is Setup, which runs before all events.
type ProjectionEvent struct {
	ID       string
	Type     string
	Place    event.Position // category, key, lane and sequence; EventID is ID
	Position Position       // of the event itself, where a skip goes to
	Time     time.Time
}

// ProjectionHalt is why a build goes no further.
type ProjectionHalt struct {
	Event    ProjectionEvent
	Attempts int
	Reason   string // "retries exhausted", "poison", "undecodable", ...
	Error    string
	Since    time.Time
}

// ProjectionTried is what is known of attempts at the next event of a build that failed.
type ProjectionTried struct {
	Event    ProjectionEvent
	Attempts int
	Error    string
	Time     time.Time
	Again    time.Time // when the next attempt is due; zero = it waits for a newer program
	// Suspicions counts the times it was begun, with no other suspect beside it, after the process had not been stopped: it may be what
	// ended it. It is counted before, and goes back to 0 when the attempt returns.
	Suspicions int
}

// ProjectionStep is what one unit of work changes of one build. It is compare-and-set: the build must run, be at From and be neither
// halted nor paused, or the error is a [*ProjectionMovedError]. A store applies it with the checkpoints.
type ProjectionStep struct {
	Name  string
	Build int
	From  Position
	To    Position // = From where no event was applied

	Event     string    // id of the event at To; of the one before where To is [ProjectionBuilds].Barren, and no event is counted
	EventTime time.Time // of that event
	Applied   int
	Passed    int
	Time      time.Time // now

	// Setup is not nil when the unit of work ran Setup: the tables that the build has, which must be there. Those of a build that
	// is current at once get their views.
	Setup *BuildTables
	// Switch has a build that is being made become current if nothing of its categories is after To, what else is in this transaction
	// included; else it is left being made. Its views take the place of those of the build before, which is old from then on.
	Switch bool
	Halt   *ProjectionHalt
	Tried  *ProjectionTried // takes the place of what was known; a step that moves or sets up without it forgets
}

// BuildTables are the names of tables that Setup made, as readers use them.
type BuildTables struct{ Names []string }

// TableOf is the name of a build's own table. Readers use the plain name, which is a view.
func TableOf(table string, build int) string { return fmt.Sprintf("%s__%d", table, build) }

// ProjectionLag is how far a position is behind.
type ProjectionLag struct {
	Behind uint64    // events after the position
	First  time.Time // of the first of them; zero when there is none
	End    Position  // of the last of them; the position asked for when there is none
}

// What is done to projections, beside [ActPause], [ActResume], [ActRetry], [ActSkip] and [ActRemove].
const (
	ActRebuild       ActKind = "rebuild"        // begins a build from the beginning, beside the current one
	ActCancelRebuild ActKind = "cancel rebuild" // gives the build up that is being made
	ActDropBuild     ActKind = "drop build"     // drops the tables of the old builds
)

// ProjectionAct is what a person does to a projection.
type ProjectionAct struct {
	Kind ActKind
	Name string
	// Build is the one that is halted, for retry and skip; 0 = the only one that is.
	Build int
	// Event is the id of the event that the person saw it halted at, for retry and skip; "" for retry is a halt in Setup.
	Event  string
	Actor  string    // who; required
	Reason string    // why; required for skip and remove
	Time   time.Time // zero = now
}

// Validate reports what is wrong with the act, whatever the store holds.
func (a *ProjectionAct) Validate() error {
	for _, text := range [...]struct{ what, is string }{{"name", a.Name}, {"event id", a.Event}} {
		if err := event.CheckID(text.what, text.is); err != nil { // it could not be named with whatever else is wrong
			return fmt.Errorf("%s: %w", a.Kind, err)
		}
	}
	var errs []error
	switch a.Kind {
	case ActPause, ActResume, ActRetry, ActRebuild, ActCancelRebuild, ActDropBuild:
	case ActSkip:
		if a.Event == "" {
			errs = append(errs, errors.New("no event: name the one that it is halted at"))
		}
		fallthrough
	case ActRemove:
		if a.Reason == "" {
			errs = append(errs, errors.New("no reason: say why"))
		}
	default:
		errs = append(errs, fmt.Errorf("kind %q is not done to projections", a.Kind))
	}
	if a.Name == "" {
		errs = append(errs, errors.New("no name: name the projection"))
	}
	if a.Actor == "" {
		errs = append(errs, errors.New("no actor: say who acts"))
	}
	if a.Build < 0 {
		errs = append(errs, fmt.Errorf("Build is %d: builds are numbered from 1", a.Build))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s projection %q: %w", a.Kind, a.Name, err)
	}
	return nil
}

// ProjectionMovedError: a projection is not in the state that a step or an act was decided on.
type ProjectionMovedError struct {
	Name string
	What string // "retry", "build 2 moves"
	Why  string // in words: "it is not halted"
}

func (e *ProjectionMovedError) Error() string {
	return fmt.Sprintf("projection %q: %s: %s", e.Name, e.What, e.Why)
}

// Is reports whether target is [ErrProjectionMoved], or [ErrStateMoved].
func (e *ProjectionMovedError) Is(target error) bool {
	return target == ErrProjectionMoved || target == ErrStateMoved
}

func (s *ProjectionStep) validate() error {
	switch {
	case s == nil:
		return nil
	case s.Name == "" || s.Build < 1:
		return fmt.Errorf("step of projection %q, build %d: it names no build", s.Name, s.Build)
	case s.Applied < 0 || s.Passed < 0:
		return fmt.Errorf("step of projection %q: it counts %d applied and %d passed", s.Name, s.Applied, s.Passed)
	case s.From == s.To && s.Applied+s.Passed > 0:
		return fmt.Errorf("step of projection %q: it counts events and does not move", s.Name)
	case s.From != s.To && (s.Setup != nil || s.Halt != nil || s.Tried != nil):
		return fmt.Errorf("step of projection %q: it moves, and tells of Setup, a halt or attempts", s.Name)
	}
	return nil
}
