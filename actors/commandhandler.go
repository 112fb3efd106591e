package actors

import (
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// CommandHandler declares a handler of commands that are meant for no entity: one actor per key, which is given that key's commands one at a time, in the order in
// which they were dispatched. Its commands travel like events, through a category of its own, NAME.commands, and are durable from [UnitOfWork.Dispatch] on. Use an [Entity]
// where the commands change something that has events of its own.
//
// B is the behavior, as in [Handler].
type CommandHandler[B any] struct {
	Name string // also that of its consumer group; unique among handlers and entity kinds
	// SequentialBy is the field of every command that is the key: commands of one value are handled one at a time, in order. Required.
	SequentialBy string
	OnPoison     Policy        // default Halt
	MaxParked    int           // with ParkSequence; default 10,000
	Retry        RetryPolicy   // of commands that fail
	Timeout      time.Duration // of one attempt; default 30 s, negative = none

	New func(key string) B // a new instance; required

	On      Behavior[B]            // what is handled. One of another type waits for a program that handles it: it was meant for this handler
	Modes   map[string]Behavior[B] // as in [Handler], as are the next three
	OnTimer func(b B, ctx Context, name string) error

	OnActivate  func(b B, ctx Context) error
	OnPassivate func(b B)
}

// handler is the handler of events that works alike.
func (h CommandHandler[B]) handler() Handler[B] {
	return Handler[B]{
		Name: h.Name, Categories: []string{CommandCategory(h.Name)}, SequentialBy: h.SequentialBy, StartFrom: Oldest,
		OnPoison: h.OnPoison, MaxParked: h.MaxParked, Retry: h.Retry, Timeout: h.Timeout,
		New: h.New, On: h.On, Modes: h.Modes, OnTimer: h.OnTimer, OnActivate: h.OnActivate, OnPassivate: h.OnPassivate,
	}
}

// Describe implements [Definition].
func (h CommandHandler[B]) Describe() Description {
	d := h.handler().Describe()
	d.Kind = eventstore.CommandHandler
	for i := range d.Types {
		d.Types[i].Use = UseCommand
	}
	return d
}

// Faults implements [Definition].
func (h CommandHandler[B]) Faults() []error {
	f := &faults{of: fmt.Sprintf("command handler %q", h.Name)}
	f.name("Name", h.Name)
	if h.SequentialBy == "" {
		f.addf("SequentialBy is empty: name the field of its commands by which they are handled one at a time")
	}
	h.handler().check(f)
	return f.list
}

func (h CommandHandler[B]) compile() *program {
	p := h.handler().compile()
	p.desc = h.Describe()
	return p
}
