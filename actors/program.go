package actors

import (
	"context"
	"reflect"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// program is a definition made ready to run. What knows the types of the application is behind instance and state; all
// else is untyped. One program is shared by all units of its name.
type program struct {
	desc    Description
	modes   map[string]bool
	timers  bool                          // there is an OnTimer
	uses    map[reflect.Type]Use          // structs of the events, commands and queries that there is a case for
	replies map[reflect.Type]reflect.Type // by command and query
	mailbox int                           // 0 = the runtime's default
	every   int                           // events between two snapshots, 0 = none

	newInstance func() instance // of a handler
	newState    func() state    // of an entity; nil for a handler

	// Made by the runtime.
	config partitions.Config
	names  map[string]bool   // wire names that are handled
	known  map[wireType]bool // their versions that there is a case for
}

// wireType is one version of a type on the wire.
type wireType struct {
	name    string
	version int
}

func (p *program) entity() bool { return p.newState != nil }

// instance is the behavior of one unit of a handler: a B.
type instance interface {
	construct(key string)
	activate(c Context) error // nil where there is no hook
	activates() bool
	handle(c Context, mode string, e any) error
	timer(c Context, name string) error
	passivate()
}

// state is an entity in memory: an S.
type state interface {
	reset(id string)
	restore(types *codec.Registry, s *eventstore.Snapshot) error
	capture(types *codec.Registry) (codec.Encoded, error)
	shares() bool                           // its copies share memory, so a case could have changed it
	folds(t reflect.Type) (ok, shared bool) // shared: copies of a T share memory
	fold(e any) error
	activate(ctx context.Context, id string) error
	passivate(ctx context.Context, id string)
	decide(c Command, mode string, in any) (any, error)
	answer(q Query, in any) (any, error)
	timer(c Command, name string) error
}
