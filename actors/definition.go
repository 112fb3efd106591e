package actors

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Definition is a behavior as it was declared: an [Entity] or a [Handler]. Asking it anything constructs nothing of the
// application's.
type Definition interface {
	// Describe says what the behavior is and what it handles.
	Describe() Description
	// Faults gives everything that is wrong with the declaration; each names the behavior, the type and the field, and says
	// what to do.
	Faults() []error

	compile() *program
}

// Description is what is known of a behavior without running it.
type Description struct {
	Name         string // of the handler, or the entity kind: one name space
	Kind         eventstore.HandlerKind
	Categories   []string  // subscribed; of an entity: its category of commands
	Types        []TypeUse // in order of declaration
	SequentialBy string    // field that must be the key of every category; "" = none asked for
	StartFrom    Start
	OnPoison     Policy // never zero
	MaxParked    int    // events that a unit parks, after which it halts; 0 unless OnPoison is ParkSequence
	Retry        RetryPolicy
	Timeout      time.Duration
	StateVersion int // of an entity's snapshots
}

// Use says what a behavior does with a type.
type Use uint8

const (
	UseEvent   Use = iota + 1 // handled from a category (handler), or folded (entity)
	UseCommand                // handled, by ask or from the category of commands
	UseQuery                  // answered without writing
	UseReply                  // what a command or query is answered
)

func (u Use) String() string {
	return [...]string{"nothing", "event", "command", "query", "reply"}[u]
}

// TypeUse is one Go type that a behavior handles.
type TypeUse struct {
	Type reflect.Type // the struct, without the pointer
	Use  Use
}

// Policy says what happens to an event that cannot be applied.
type Policy uint8

const (
	// Halt stops the unit before the event until a person decides. It is the default of handlers with SequentialBy, and what
	// an entity's commands always do.
	Halt Policy = iota + 1
	// Release sets the event aside as a dead letter and goes on. It is the default of handlers without SequentialBy.
	Release
	// ParkSequence sets the event aside, and behind it, in order, every later one of the same key and category, until a person has the
	// unit apply them or lets go of the first. Meanwhile the checkpoint moves on, and so do the unit's other categories. For handlers
	// with SequentialBy.
	ParkSequence
)

func (p Policy) String() string {
	switch p {
	case Halt:
		return "halt"
	case Release:
		return "release"
	case ParkSequence:
		return "park sequence"
	}
	return "default"
}

// Start says where a handler begins that is new to a category with events: [Oldest], [Now] or [Since].
type Start string

const (
	Oldest Start = "oldest" // with the first event kept
	Now    Start = "now"    // with the first event committed after the registration
)

// Since begins with the first event at or after t.
func Since(t time.Time) Start { return Start(t.UTC().Format(time.RFC3339Nano)) }

// Time gives the time of a [Since]; false for the others.
func (s Start) Time() (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, string(s))
	return t, err == nil
}

func (s Start) fault() error {
	if _, ok := s.Time(); ok || s == "" || s == Oldest || s == Now {
		return nil
	}
	return fmt.Errorf("StartFrom is %q: set Oldest, Now or Since(time)", string(s))
}

// RetryPolicy says how often and how fast a failed event is tried again. Zero fields take the default.
type RetryPolicy struct {
	Attempts int           // in all; default 5
	Min      time.Duration // before the second attempt; doubles from there; default 100 ms
	Max      time.Duration // between two attempts; default 30 s
	// If tells which errors are worth another attempt; nil = all that are neither [Reject] nor [Poison]. It is not asked
	// about panics and timeouts, which are tried again, nor about errors marked with [Retry].
	If func(error) bool
}

const (
	defaultAttempts = 5
	defaultMin      = 100 * time.Millisecond
	defaultMax      = 30 * time.Second
)

func (r RetryPolicy) withDefaults() RetryPolicy {
	if r.Attempts == 0 {
		r.Attempts = defaultAttempts
	}
	if r.Min == 0 {
		r.Min = defaultMin
	}
	if r.Max == 0 {
		r.Max = max(defaultMax, r.Min)
	}
	return r
}

func (r RetryPolicy) fault() error {
	switch {
	case r.Attempts < 0:
		return fmt.Errorf("Retry.Attempts is %d: set 1 or more, 0 for the default of %d", r.Attempts, defaultAttempts)
	case r.Min < 0 || r.Max < 0:
		return fmt.Errorf("Retry.Min and Retry.Max are %v and %v: neither may be negative", r.Min, r.Max)
	case r.Max > 0 && r.Min > r.Max:
		return fmt.Errorf("Retry.Min is %v, above Retry.Max of %v", r.Min, r.Max)
	}
	return nil
}

// faults collects what is wrong with one definition.
type faults struct {
	of   string // `entity "order"`
	list []error
}

func (f *faults) add(err error) {
	if err != nil {
		f.list = append(f.list, fmt.Errorf("%s: %w", f.of, err))
	}
}

func (f *faults) addf(format string, args ...any) { f.add(fmt.Errorf(format, args...)) }

func (f *faults) name(field, name string) {
	if name == "" {
		f.addf("%s is empty: give it a name", field)
	} else if err := event.CheckDeclaredName(name); err != nil {
		f.addf("%s: %w", field, err)
	}
}

// cases checks the types of one list of cases: each set, each once. It returns the types seen.
func (f *faults) cases(field string, each []caseFault) []reflect.Type {
	var seen []reflect.Type
	for i, c := range each {
		switch {
		case c.err != nil:
			f.addf("%s[%d]: %w", field, i, c.err)
		case slices.Contains(seen, c.in):
			f.addf("%s[%d]: a second case for %s: keep one", field, i, c.in)
		default:
			seen = append(seen, c.in)
		}
	}
	return seen
}

// caseFault is a case as far as its faults go.
type caseFault struct {
	in  reflect.Type
	err error
}

var errNoFunc = errors.New("the case has no func: make it with OnCommand, OnQuery, OnEvent or On, of a func that is not nil")

// structOf gives the struct type of commands, queries and replies, and an error for types that cannot be one.
func structOf(t reflect.Type) (reflect.Type, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no struct: use a struct type or a protobuf message", t)
	}
	return t, nil
}

// eventOf gives the struct type behind a type of events: a struct as it is, a protobuf message by its pointer.
func eventOf(t reflect.Type) (reflect.Type, error) {
	if isMessage(t) {
		return t.Elem(), nil
	}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		return nil, fmt.Errorf("%s is a pointer: take the event by value, as %s; only protobuf messages are taken by pointer", t, t.Elem())
	}
	return structOf(t)
}

// isMessage reports whether t is a pointer to a protobuf message.
func isMessage(t reflect.Type) bool {
	_, message := t.MethodByName("ProtoReflect")
	return message && t.Kind() == reflect.Pointer
}

// common checks what entities and handlers share.
func (f *faults) common(start Start, poison Policy, retry RetryPolicy) {
	f.add(start.fault())
	f.add(retry.fault())
	if poison > ParkSequence {
		f.addf("OnPoison is %d: set Halt, Release or ParkSequence", poison)
	}
}

// mode checks the cases of one mode: each type must be among those of the base list, which is what the behavior is
// registered for.
func (f *faults) mode(name string, known, types []reflect.Type, base string) {
	if name == "" {
		f.addf("Modes[\"\"]: name the mode; Become(\"\") goes back to %s", base)
	}
	for _, t := range types {
		if !slices.Contains(known, t) {
			f.addf("Modes[%q]: %s is not in %s: add a case there, it says what the behavior handles", name, t, base)
		}
	}
}

func faultsOf[C interface{ fault() caseFault }](list []C) []caseFault {
	out := make([]caseFault, len(list))
	for i, c := range list {
		out[i] = c.fault()
	}
	return out
}

// sorted gives the entries of a map in order of their names, so that faults come in the same order every time.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
