package actors

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Handler declares an event handler: one actor per key, which is given that key's events one at a time in commit order.
//
// B is the behavior, usually a pointer to a struct. An instance lives from the first event of its key until the key has been
// quiet for a while, or until an attempt fails: what it keeps in its fields is a cache, never the truth.
type Handler[B any] struct {
	Name       string   // also the name of its consumer group; unique among handlers and entity kinds
	Categories []string // subscribed
	// SequentialBy is the field that must be the key of every category in Categories: asks for one event at a time per value of
	// that field, and makes Halt the default of OnPoison. Registration fails where a category has another key.
	SequentialBy string
	StartFrom    Start         // required for a handler new to a category that has events
	OnPoison     Policy        // default: Halt with SequentialBy, else Release
	MaxParked    int           // with ParkSequence: events that a key parks, after which it halts; default 10,000
	Retry        RetryPolicy   // of events that fail
	Timeout      time.Duration // of one attempt, after which its context is cancelled; default 30 s, negative = none

	New func(key string) B // a new instance; required. It is called only while the unit is held

	On      Behavior[B]            // what is handled; types of its categories that are not here are passed over
	Modes   map[string]Behavior[B] // after Context.Become(name), these take the place of the cases in On for the same types
	OnTimer func(b B, ctx Context, name string) error

	// OnActivate runs on each new instance before its first event, in a unit of work of its own that commits only if it
	// did something. An error counts against the event at hand.
	OnActivate func(b B, ctx Context) error
	// OnPassivate runs on an instance that is put away in good state: its key is quiet, or the runtime stops. An instance
	// whose attempt failed is dropped without it.
	OnPassivate func(b B)
}

// Behavior is a list of cases, made with [On].
type Behavior[B any] []Case[B]

// Case handles one type of events. Make it with [On].
type Case[B any] struct {
	in  reflect.Type // the struct of the events
	err error
	run func(b B, ctx Context, e any) error
}

// On is the case for events of type E, a struct or a pointer to a protobuf message: On((*shipping).placed).
func On[B, E any](run func(b B, ctx Context, e E) error) Case[B] {
	in, err := eventOf(reflect.TypeFor[E]())
	if run == nil {
		err = errNoFunc
	}
	return Case[B]{in: in, err: err, run: func(b B, ctx Context, e any) error { return run(b, ctx, valueOf[E](e)) }}
}

func (c Case[B]) fault() caseFault {
	if c.run == nil && c.err == nil {
		return caseFault{err: errNoFunc}
	}
	return caseFault{in: c.in, err: c.err}
}

// Describe implements [Definition].
func (h Handler[B]) Describe() Description {
	d := Description{
		Name: h.Name, Kind: eventstore.EventHandler, Categories: slices.Clone(h.Categories), SequentialBy: h.SequentialBy,
		StartFrom: h.StartFrom, OnPoison: h.OnPoison, Retry: h.Retry.withDefaults(), Timeout: timeoutOrDefault(h.Timeout),
	}
	if d.OnPoison == 0 {
		d.OnPoison = Release
		if h.SequentialBy != "" {
			d.OnPoison = Halt
		}
	}
	if d.OnPoison == ParkSequence {
		d.MaxParked = cmp.Or(h.MaxParked, defaultMaxParked)
	}
	for _, c := range h.On {
		if c.fault().err == nil {
			d.Types = append(d.Types, TypeUse{Type: c.in, Use: UseEvent})
		}
	}
	return d
}

// Faults implements [Definition].
func (h Handler[B]) Faults() []error {
	f := &faults{of: fmt.Sprintf("handler %q", h.Name)}
	f.name("Name", h.Name)
	if len(h.Categories) == 0 {
		f.addf("Categories is empty: name the categories whose events it handles")
	}
	for i, c := range h.Categories {
		f.name(fmt.Sprintf("Categories[%d]", i), c)
		if slices.Contains(h.Categories[:i], c) {
			f.addf("Categories[%d]: %q is there twice", i, c)
		}
	}
	h.check(f)
	return f.list
}

// check finds what is wrong with what handlers of events and of commands have in common.
func (h Handler[B]) check(f *faults) {
	if h.New == nil {
		f.addf("New is nil: give it a func(key string) %s", reflect.TypeFor[B]())
	}
	if len(h.On) == 0 {
		f.addf("On is empty: add a case, such as On(func(b %s, ctx Context, e YourEvent) error)", reflect.TypeFor[B]())
	}
	f.common(h.StartFrom, h.OnPoison, h.Retry)
	f.parking(h.OnPoison, h.MaxParked, h.SequentialBy)
	known := f.cases("On", faultsOf(h.On))
	for name, mode := range sorted(h.Modes) {
		f.mode(name, known, f.cases(fmt.Sprintf("Modes[%q]", name), faultsOf(mode)), "On")
	}
}

const (
	defaultTimeout   = 30 * time.Second
	defaultMaxParked = 10_000
)

// parking checks what belongs to ParkSequence.
func (f *faults) parking(poison Policy, most int, sequentialBy string) {
	switch {
	case poison == ParkSequence && sequentialBy == "":
		f.addf("OnPoison is ParkSequence and SequentialBy is empty: parking keeps the order of a key, which nobody asked for here: " +
			"set SequentialBy, or set OnPoison to Release, which sets aside only what cannot be applied")
	case most != 0 && poison != ParkSequence:
		f.addf("MaxParked is %d and OnPoison is not ParkSequence: nothing is ever parked: set OnPoison to ParkSequence, or MaxParked to 0", most)
	}
	if most < 0 {
		f.addf("MaxParked is %d: set 1 or more, 0 for the default of %d", most, defaultMaxParked)
	}
}

func timeoutOrDefault(d time.Duration) time.Duration {
	if d == 0 {
		return defaultTimeout
	}
	return max(d, 0)
}
