package actors

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (e Entity[S]) compile() *program {
	p := &program{
		desc: e.Describe(), timers: e.OnTimer != nil, modes: modesOf(e.Modes), mailbox: e.Mailbox, every: e.snapshotEvery(),
		uses: map[reflect.Type]Use{}, replies: map[reflect.Type]reflect.Type{},
	}
	common := &entityCases[S]{
		of:       &e,
		shared:   sharesMemory(reflect.TypeFor[S]()),
		commands: newCases(e.Commands, e.Modes, func(c CommandCase[S]) reflect.Type { return c.in }),
		queries:  map[reflect.Type]QueryCase[S]{},
		foldings: map[reflect.Type]FoldCase[S]{},
		sharing:  map[reflect.Type]bool{},
	}
	for t, c := range common.commands.base {
		p.uses[t], p.replies[t] = UseCommand, c.out
	}
	for _, q := range e.Queries {
		common.queries[q.in] = q
		p.uses[q.in], p.replies[q.in] = UseQuery, q.out
	}
	for _, f := range e.Fold {
		common.foldings[f.in] = f
		common.sharing[f.in] = sharesMemory(f.in)
	}
	p.newState = func() state { return &entityState[S]{entityCases: common} }
	return p
}

func (e Entity[S]) snapshotEvery() int {
	if e.SnapshotEvery == 0 {
		return defaultSnapshotEvery
	}
	return max(e.SnapshotEvery, 0)
}

const defaultSnapshotEvery = 100

// entityCases is what all entities of a kind share.
type entityCases[S any] struct {
	of       *Entity[S]
	shared   bool // copies of an S share memory
	commands *cases[CommandCase[S]]
	queries  map[reflect.Type]QueryCase[S]
	foldings map[reflect.Type]FoldCase[S]
	sharing  map[reflect.Type]bool // of foldings: those whose copies share memory
}

// entityState is one S.
type entityState[S any] struct {
	*entityCases[S]
	s S
}

func (e *entityState[S]) reset(id string) {
	var zero S
	e.s = zero
	if e.of.New != nil {
		e.s = e.of.New(id)
	}
}

func (e *entityState[S]) shares() bool { return e.shared }

func (e *entityState[S]) folds(t reflect.Type) (ok, shared bool) {
	_, ok = e.foldings[t]
	return ok, e.sharing[t]
}

func (e *entityState[S]) fold(v any) error {
	t := structType(v)
	c, ok := e.foldings[t]
	if !ok {
		return fmt.Errorf("entity %q has no case in Fold for %s, which is among its events: add OnEvent(func(s, e %[2]s))", e.of.Kind, t)
	}
	return protect(func() error {
		e.s = c.fold(e.s, v)
		return nil
	})
}

func (e *entityState[S]) decide(c Command, mode string, in any) (any, error) {
	found, ok := e.commands.find(mode, structType(in))
	if !ok {
		return nil, fmt.Errorf("%w: entity %q has none for %T", ErrUnknownCommand, e.of.Kind, in)
	}
	return found.run(c, e.s, in)
}

func (e *entityState[S]) answer(q Query, in any) (any, error) {
	return e.queries[structType(in)].run(q, e.s, in)
}

func (e *entityState[S]) timer(c Command, name string) error { return e.of.OnTimer(c, e.s, name) }

func (e *entityState[S]) activate(ctx context.Context, id string) error {
	if e.of.OnActivate == nil {
		return nil
	}
	return e.of.OnActivate(ctx, id, e.s)
}

func (e *entityState[S]) passivate(ctx context.Context, id string) {
	if e.of.OnPassivate != nil {
		e.of.OnPassivate(ctx, id, e.s)
	}
}

// capture encodes the state: a type with a wire name as the registry does, any other as JSON.
func (e *entityState[S]) capture(types *codec.Registry) (codec.Encoded, error) {
	if _, named := types.Name(reflect.TypeFor[S]()); named {
		return types.Encode(e.s)
	}
	data, err := json.Marshal(e.s)
	return codec.Encoded{Encoding: event.JSON, Data: data}, err
}

// restore is the reverse of capture; on an error the state is as good as reset. A snapshot from which another would come out than it is, is of no
// use: the struct has other fields than when it was taken, and folding all events may fill them.
func (e *entityState[S]) restore(types *codec.Registry, s *eventstore.Snapshot) error {
	if err := e.read(types, s); err != nil {
		return err
	}
	now, err := e.capture(types)
	if err == nil && now.Encoding == event.JSON && !sameJSON(s.Data, now.Data) {
		err = fmt.Errorf("it was taken of a %s with other fields, of the same Version: raise the Version of entity %q when its state changes", reflect.TypeFor[S](), e.of.Kind)
	}
	return err
}

// sameJSON reports whether two texts mean the same, but for the order of fields.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	meaning := func(data []byte) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	one, err := meaning(a)
	other, errOther := meaning(b)
	return err == nil && errOther == nil && reflect.DeepEqual(one, other)
}

func (e *entityState[S]) read(types *codec.Registry, s *eventstore.Snapshot) error {
	name, version, err := types.NameOf(reflect.TypeFor[S]())
	if err == nil {
		v, err := types.Decode(codec.Encoded{Type: name, Version: version, Encoding: s.Encoding, Data: s.Data})
		if err == nil {
			e.s = valueOf[S](v)
		}
		return err
	}
	if s.Encoding != event.JSON {
		return fmt.Errorf("the snapshot is encoded as %s, not %s", s.Encoding, event.JSON)
	}
	var decoded S
	if err := json.Unmarshal(s.Data, &decoded); err != nil {
		return err
	}
	e.s = decoded
	return nil
}

// sharesMemory reports whether copies of a value of type t share memory that can be changed.
func sharesMemory(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	case reflect.Array:
		return sharesMemory(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() { // its pointer is to a location, which nobody changes
			return false
		}
		for f := range t.Fields() {
			if sharesMemory(f.Type) {
				return true
			}
		}
	}
	return false
}

// snapshot adds what a snapshot of a state of type t, as JSON, would lose without a word.
func (f *faults) snapshot(t reflect.Type) {
	loses(t, t.String(), map[reflect.Type]bool{}, func(path, why string) {
		f.addf("%s %s; change it, or set SnapshotEvery to -1", path, why)
	})
}

func loses(t reflect.Type, path string, seen map[reflect.Type]bool, report func(path, why string)) {
	if seen[t] || encodesItself(t) {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		loses(t.Elem(), path, seen, report)
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		report(path, fmt.Sprintf("is a %s: a snapshot cannot hold it", t))
	case reflect.Struct:
		for field := range t.Fields() {
			at := path + "." + field.Name
			switch {
			case !field.IsExported() && !field.Anonymous:
				report(at, "is not exported: a snapshot would lose it")
			case field.Tag.Get("json") == "-":
				report(at, `has the tag json:"-": a snapshot would lose it`)
			default:
				loses(field.Type, at, seen, report)
			}
		}
	}
}

// encodesItself reports whether a type looks after its own encoding; protobuf messages are encoded by the registry.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return isMessage(p) || p.Implements(reflect.TypeFor[json.Marshaler]()) && p.Implements(reflect.TypeFor[json.Unmarshaler]())
}
