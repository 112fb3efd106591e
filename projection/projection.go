package projection

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Projection declares a read model. B is the behavior, usually a pointer to a struct.
type Projection[B any] struct {
	Name       string   // unique among handlers, entity kinds and projections
	Categories []string // whose events it is given; none = all
	// Version is that of this code, 1 by default. Raise it with every change of what the tables hold: at the next start the projection is
	// built anew, while readers go on to see the tables of the code before.
	Version int
	// Setup makes the tables, by the names that Context.Table gives. It runs once for each build, in the build's first transaction. May be nil.
	Setup func(ctx Context) error
	New   func() B // a new instance; required
	On    Cases[B] // what is handled; other types are passed over

	Retry   actors.RetryPolicy // of events that fail; after it the build halts
	Batch   int                // events that one transaction holds at most; default 100
	Timeout time.Duration      // of one event, after which its context is cancelled; default 30 s, negative = none
	// KeepOld keeps the tables of the build before, after a rebuild, until a person drops them. Else they are dropped at once.
	KeepOld bool
}

const (
	defaultBatch   = 100
	defaultTimeout = 30 * time.Second
)

// Cases is a list of cases, made with [On].
type Cases[B any] []Case[B]

// Case handles one type of events. Make it with [On].
type Case[B any] struct {
	in  reflect.Type // the struct of the events
	err error
	run func(b B, ctx Context, e any) error
}

// On is the case for events of type E, a struct or a pointer to a protobuf message: On((*byDay).placed).
func On[B, E any](run func(b B, ctx Context, e E) error) Case[B] {
	in, err := actors.EventType(reflect.TypeFor[E]())
	if run == nil {
		return Case[B]{in: in, err: errNoFunc}
	}
	return Case[B]{in: in, err: err, run: func(b B, ctx Context, e any) error { return run(b, ctx, actors.EventValue[E](e)) }}
}

// Definition is a projection as it was declared. Asking it anything constructs nothing of the application's.
type Definition interface {
	// Describe says what the projection is and what it handles.
	Describe() Description
	// Faults gives everything that is wrong with the declaration; each names the projection and the field, and says what to do.
	Faults() []error

	compile() *program
}

// Description is what is known of a projection without running it.
type Description struct {
	eventstore.ProjectionDeclared
	Types   []reflect.Type // structs, in order of declaration
	Retry   actors.RetryPolicy
	Batch   int
	Timeout time.Duration // 0 = none
	KeepOld bool
}

// Describe implements [Definition].
func (p Projection[B]) Describe() Description {
	d := Description{
		ProjectionDeclared: eventstore.ProjectionDeclared{Name: p.Name, Version: p.Version, Categories: slices.Sorted(slices.Values(p.Categories))},
		Retry:              p.Retry.Filled(), Batch: p.Batch, Timeout: max(p.Timeout, 0), KeepOld: p.KeepOld,
	}
	if d.Version == 0 {
		d.Version = 1
	}
	if d.Batch == 0 {
		d.Batch = defaultBatch
	}
	if p.Timeout == 0 {
		d.Timeout = defaultTimeout
	}
	for _, c := range p.On {
		if c.fault() == nil {
			d.Types = append(d.Types, c.in)
		}
	}
	return d
}

// Faults implements [Definition].
func (p Projection[B]) Faults() (faults []error) {
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("projection %q: %w", p.Name, fmt.Errorf(format, args...)))
	}
	if p.Name == "" {
		add("Name is empty: give it a name")
	} else if err := event.CheckDeclaredName(p.Name); err != nil {
		add("Name: %w", err)
	}
	for i, c := range p.Categories {
		if err := event.CheckName(c); err != nil {
			add("Categories[%d]: %w", i, err)
		}
		if slices.Contains(p.Categories[:i], c) {
			add("Categories[%d]: %q is there twice", i, c)
		}
	}
	if p.Version < 0 {
		add("Version is %d: set 1 or more, 0 for 1", p.Version)
	}
	if p.New == nil {
		add("New is nil: give it a func() %s", reflect.TypeFor[B]())
	}
	if p.Batch < 0 || p.Batch > eventstore.MaxLimit {
		add("Batch is %d: set 1 to %d, 0 for the default of %d", p.Batch, eventstore.MaxLimit, defaultBatch)
	}
	if err := p.Retry.Fault(); err != nil {
		add("%w", err)
	}
	if len(p.On) == 0 {
		add("On is empty: add a case, such as On(func(b %s, ctx Context, e YourEvent) error)", reflect.TypeFor[B]())
	}
	var seen []reflect.Type
	for i, c := range p.On {
		switch err := c.fault(); {
		case err != nil:
			add("On[%d]: %w", i, err)
		case slices.Contains(seen, c.in):
			add("On[%d]: a second case for %s: keep one", i, c.in)
		default:
			seen = append(seen, c.in)
		}
	}
	return faults
}

var errNoFunc = fmt.Errorf("the case has no func: make it with On, of a func that is not nil")

func (c Case[B]) fault() error {
	if c.run == nil && c.err == nil {
		return errNoFunc
	}
	return c.err
}

// program is what a runtime needs of a declaration.
type program struct {
	desc  Description
	make  func() any
	setup func(Context) error // nil for none
	cases map[reflect.Type]func(b any, ctx Context, e any) error

	names map[string]bool   // wire names that it handles, in any version
	known map[wireType]bool // versions of them that it handles
}

type wireType struct {
	name    string
	version int
}

func (p Projection[B]) compile() *program {
	out := &program{desc: p.Describe(), make: func() any { return p.New() }, setup: p.Setup, cases: map[reflect.Type]func(any, Context, any) error{}}
	for _, c := range p.On {
		out.cases[c.in] = func(b any, ctx Context, e any) error {
			own, _ := b.(B) // only a B that is an interface can be nil
			return c.run(own, ctx, e)
		}
	}
	return out
}
