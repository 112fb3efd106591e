package actors

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// Config is what a [Runtime] is made of. Fields without a default must be set.
type Config struct {
	Definitions []Definition // distinct names
	Store       eventstore.Store
	Port        partitions.Port
	Codec       Codec

	// Route makes an event ready for its lane: Type, Version, Encoding, Data, Category, Key and Lane are set, and the key is
	// checked. from is the entity that emits, zero for others. Called concurrently; must not block.
	Route func(ctx context.Context, from event.Stream, v any) (event.Envelope, error)
	// Committed is called after each commit that added to a lane, in the goroutine that committed; it may deliver there.
	// Its error is logged: what was committed is delivered in the end.
	Committed func(ctx context.Context, tails []event.Tail) error
	// Listed says which wire names the durable registration of a handler or entity kind lists. An event of a listed type
	// that this program does not know waits for a newer program instead of being passed over. Default: none.
	Listed map[string][]string

	Observer    Observer
	Logger      *slog.Logger     // default: discards
	Now         func() time.Time // default time.Now; stamps events
	NewID       func() string    // default: UUIDv7
	Concurrency int              // units in a behavior at once; default 256
	IdleAfter   time.Duration    // without work, until a unit is put away; default 30 s
	MailboxSize int              // asks waiting per entity; default 1024
}

// Codec turns values into bytes and back, by wire names. Called concurrently; does not block.
type Codec interface {
	// Encode gives the wire form of a struct, a pointer to one, or a protobuf message. The bytes are the caller's.
	Encode(v any) (Encoded, error)
	// Decode gives a pointer to a new value of the Go type that has this wire name, brought to its present version.
	Decode(e Encoded) (any, error)
	// Name gives the wire name of a struct type; false when it has none.
	Name(t reflect.Type) (string, bool)
}

// Encoded is a value on the wire.
type Encoded struct {
	Type     string
	Version  int
	Encoding event.Encoding
	Data     []byte
}

// Observer is told what happens to units. Each func may be nil, is called in the goroutine of the unit and must not block.
type Observer struct {
	Activated    func(event.Unit)
	Passivated   func(event.Unit)
	Applied      func(event.Unit, *event.Envelope)             // an event, or a command that came by stream
	Rejected     func(event.Unit, *event.Envelope, error)      // a command that came by stream said no
	Retried      func(event.Unit, *event.Envelope, int, error) // attempt that failed, counted from 1
	Halted       func(eventstore.Halt)                         // durably, before its event
	Resumed      func(event.Unit)                              // from a halt
	DeadLettered func(eventstore.Dead)                         // durably
	WaitsForType func(event.Unit, *event.Envelope)             // for a newer program
	CommitFailed func(event.Unit, error)                       // the activation is dropped and recovers
	Panicked     func(event.Unit, *PanicError)
	Overdue      func(event.Unit, time.Duration) // a behavior ignores its Timeout
}

// Runtime runs the units of its definitions. Methods other than Start may be called concurrently.
type Runtime struct{ cfg Config }

// NewRuntime checks cfg and the definitions, reporting all faults at once. It starts nothing.
func NewRuntime(cfg Config) (*Runtime, error) { return &Runtime{cfg: cfg}, nil }

// Start makes the runtime take work. The store and the port must be started. ctx bounds Start alone.
func (r *Runtime) Start(ctx context.Context, id eventstore.Identity) error { return nil }

// Stop takes no more work, lets the behaviors in hand finish and puts every unit away. When ctx ends first, the contexts of the
// behaviors still inside are cancelled; those that do not return even then are named in a [*StuckError]. Asks that wait
// get [ErrStopping]. Stop is idempotent.
func (r *Runtime) Stop(ctx context.Context) error { return nil }

// Wake says that there may be work for a unit. It never blocks; wakes are merged, none is lost. See [transport.Node].
func (r *Runtime) Wake(u event.Unit) {}

// Drive wakes a unit and returns when it has passed, or halted before, everything in lane up to seq, or ctx is done. See
// [transport.Node].
func (r *Runtime) Drive(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error {
	return nil
}

// Resume has a unit read its halt again, after it was lifted in the store.
func (r *Runtime) Resume(u event.Unit) {}

// Ask is the untyped form of the function [Ask].
func (r *Runtime) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	return nil, nil
}

// Tell has an entity decide a command some time soon, and does not wait for it: best effort, lost with the process. An error says
// that it was not even taken, such as [ErrMailboxFull].
func (r *Runtime) Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error { return nil }

// Send has an entity decide a command later, durably. On the context of a behavior or of [Runtime.Do] it is part of
// that unit of work; else it is committed when Send returns.
func (r *Runtime) Send(ctx context.Context, to Ref, command any) error { return nil }

// Do runs f in a unit of work of its own, which commits when f returns nil. It is fenced with the process alone.
func (r *Runtime) Do(ctx context.Context, f func(UnitOfWork) error) error { return nil }
