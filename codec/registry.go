package codec

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/keyhold/keyhold/event"
)

// protoVersion is the version of all protobuf messages: they evolve by rules of their own.
const protoVersion = 1

// Encoded is a value on the wire.
type Encoded struct {
	Type     string // wire name
	Version  int
	Encoding event.Encoding
	Data     []byte
}

// Registry knows the wire names of Go types: those of its declarations, and those of all protobuf messages linked into the
// program. It never changes, so it may be used concurrently. Where a [reflect.Type] is asked for, a struct and a pointer to
// it are the same.
type Registry struct {
	byType map[reflect.Type]*Declaration   // by the struct and by the pointer to it
	byName map[string]map[int]*Declaration // with chains, also versions that only an upcaster knows
	chains map[Version]*chain              // of old versions, those of messages among them
	older  map[reflect.Type][]Version      // by the struct that old versions become, in order
}

// NewRegistry makes a registry of declarations, in most programs those of [Declarations]. The error joins everything that
// is wrong with them. A declaration that is there twice counts once.
func NewRegistry(declarations []Declaration) (*Registry, error) {
	r := &Registry{
		byType: map[reflect.Type]*Declaration{}, byName: map[string]map[int]*Declaration{},
		chains: map[Version]*chain{}, older: map[reflect.Type][]Version{},
	}
	l := linker{r: r, broken: map[reflect.Type]bool{}}
	var faults []error
	var upcasters []*upcaster
	for _, d := range declarations {
		if d.upcast != nil {
			upcasters = append(upcasters, d.upcast)
			continue
		}
		if err := r.add(d); err != nil {
			faults = append(faults, fmt.Errorf("type %v, declared as %q version %d: %w", d.typ, d.name, d.version, err))
			l.broken[d.typ] = true
		}
	}
	if err := errors.Join(append(faults, l.link(upcasters))...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) add(d Declaration) error {
	if err := d.fault(); err != nil {
		return err
	}
	if other := r.byType[d.typ]; other != nil {
		if other.name == d.name && other.version == d.version {
			return nil
		}
		return fmt.Errorf("it is declared as %q version %d too: keep one", other.name, other.version)
	}
	if other := r.byName[d.name][d.version]; other != nil {
		return fmt.Errorf("so is %s: give one of them another name or version", other.typ)
	}
	if _, ok := findMessage(d.name); ok {
		return errors.New("that is the full name of a protobuf message: choose another")
	}
	r.byType[d.typ], r.byType[reflect.PointerTo(d.typ)] = &d, &d
	if r.byName[d.name] == nil {
		r.byName[d.name] = map[int]*Declaration{}
	}
	r.byName[d.name][d.version] = &d
	return nil
}

func (d Declaration) fault() error {
	if d.typ == nil {
		return errors.New("it is the zero Declaration: make it with Of or Declare")
	}
	switch t, message := messageOf(d.typ); {
	case message:
		return errors.New("it is a protobuf message, which goes by its full name: remove the declaration")
	case t.Kind() != reflect.Struct:
		return errors.New("it is no struct: declare a struct type")
	case t != d.typ:
		return fmt.Errorf("it is a pointer: declare the struct, %s", t)
	case d.version < 1 || d.version > math.MaxInt32:
		return errors.New("versions go from 1 to 2147483647: begin with 1")
	}
	if err := event.CheckName(d.name); err != nil {
		return err
	}
	return checkJSON(d.typ)
}

// messageOf gives the struct behind a type, and whether a pointer to it is a protobuf message.
func messageOf(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	m, ok := reflect.New(t).Interface().(proto.Message)
	return t, ok && isOwn(m)
}

// isOwn tells a message from a struct that only embeds one.
func isOwn(m proto.Message) bool {
	return reflect.TypeOf(m.ProtoReflect().Interface()) == reflect.TypeOf(m)
}

// descriptorOf gives the descriptor of a protobuf message by the struct behind it.
func descriptorOf(t reflect.Type) protoreflect.MessageDescriptor {
	return reflect.New(t).Interface().(proto.Message).ProtoReflect().Descriptor()
}

func findMessage(name string) (protoreflect.MessageType, bool) {
	m, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	return m, err == nil
}

// Encode gives the wire form of a struct, a pointer to one, or a protobuf message. The bytes belong to the caller. The error
// is an [*UndeclaredError], or what the encoding says.
func (r *Registry) Encode(v any) (Encoded, error) {
	if d := r.byType[reflect.TypeOf(v)]; d != nil {
		data, err := d.encode(v)
		if err != nil {
			return Encoded{}, fmt.Errorf("encode %q version %d: %w", d.name, d.version, err)
		}
		return Encoded{Type: d.name, Version: d.version, Encoding: event.JSON, Data: data}, nil
	}
	if m, ok := v.(proto.Message); ok && isOwn(m) {
		return encodeProto(m)
	}
	return Encoded{}, undeclared(reflect.TypeOf(v))
}

func encodeProto(m proto.Message) (Encoded, error) {
	reflected := m.ProtoReflect()
	name := string(reflected.Descriptor().FullName())
	if !reflected.IsValid() {
		return Encoded{}, fmt.Errorf("encode %q: the message is nil", name)
	}
	if known, ok := findMessage(name); !ok || known != reflected.Type() {
		return Encoded{}, fmt.Errorf("encode %q: %T is not the Go type generated for it: use that one", name, m)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return Encoded{}, fmt.Errorf("encode %q: %w", name, err)
	}
	return Encoded{Type: name, Version: protoVersion, Encoding: event.Proto, Data: data}, nil
}

// undeclared says why a type that is no protobuf message and has no declaration cannot be encoded.
func undeclared(t reflect.Type) error {
	if t == nil {
		return errors.New("nil has no wire name: use a struct, a pointer to one, or a protobuf message")
	}
	t, message := messageOf(t)
	switch {
	case message:
		return fmt.Errorf("%s is a protobuf message: use the pointer, *%s", t, t)
	case t.Kind() != reflect.Struct || t.Name() == "":
		return fmt.Errorf("%s has no wire name: use a struct type of its own, or a protobuf message", t)
	}
	return &UndeclaredError{Type: t}
}

// Decode gives a pointer to a new value of the Go type that has this wire name and version or, where an upcaster starts from that, of the
// newest type that upcasters lead to. It keeps nothing of e.Data, and changes nothing in it. The error is an [*UnknownTypeError], a [*VersionError]
// or a [*DecodeError], which may wrap an [*UpcastError].
//
// Versions of one wire name without an upcaster are Go types of their own. Whoever handles one of them must not pass over the others.
func (r *Registry) Decode(e Encoded) (any, error) {
	fail := func(err error) (any, error) {
		return nil, &DecodeError{Name: e.Type, Version: e.Version, Encoding: e.Encoding, Err: err}
	}
	d, message, err := r.find(e.Type, e.Version)
	switch {
	case err != nil:
		return nil, err
	case d != nil && e.Encoding != event.JSON:
		return fail(fmt.Errorf("%s is a plain struct, which is encoded as %s", d.reads(), event.JSON))
	case d != nil:
		decode := d.decode
		if d.chain != nil {
			decode = d.chain.decode
		}
		v, err := decode(e.Data)
		if err != nil {
			return fail(err)
		}
		return v, nil
	case e.Encoding != event.Proto:
		return fail(fmt.Errorf("it is a protobuf message, which is encoded as %s", event.Proto))
	}
	m := message.New().Interface()
	if err := proto.Unmarshal(e.Data, m); err != nil {
		return fail(err)
	}
	if c := r.chains[Version{e.Type, e.Version}]; c != nil {
		v, err := c.up(m)
		if err != nil {
			return fail(err)
		}
		return v, nil
	}
	return m, nil
}

// reads gives the Go type that bytes of this version are decoded as first.
func (d *Declaration) reads() reflect.Type {
	if d.typ == nil {
		return d.chain.read.typ
	}
	return d.typ
}

// Older gives the versions that are read as values of type t although they were stored otherwise, by upcasters: in order of names and
// versions. The caller must not change the slice.
func (r *Registry) Older(t reflect.Type) []Version {
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return r.older[t]
}

// Upcast gives the struct as which stored values of type t are read; false where they are read as what they are.
func (r *Registry) Upcast(t reflect.Type) (reflect.Type, bool) {
	name, version, err := r.NameOf(t)
	if err != nil {
		return nil, false
	}
	c := r.chains[Version{name, version}]
	if c == nil {
		return nil, false
	}
	return c.to, true
}

// find gives the declaration, or else the message, of a wire name and version.
func (r *Registry) find(name string, version int) (*Declaration, protoreflect.MessageType, error) {
	if versions, ok := r.byName[name]; ok {
		if d := versions[version]; d != nil {
			return d, nil, nil
		}
		return nil, nil, &VersionError{Name: name, Version: version, Known: slices.Sorted(maps.Keys(versions))}
	}
	m, ok := findMessage(name)
	switch {
	case !ok:
		return nil, nil, &UnknownTypeError{Name: name}
	case version != protoVersion:
		return nil, nil, &VersionError{Name: name, Version: version, Known: []int{protoVersion}}
	}
	return nil, m, nil
}

// Known reports whether this program has a Go type with that wire name, of any version.
func (r *Registry) Known(name string) bool {
	_, ok := r.byName[name]
	if !ok {
		_, ok = findMessage(name)
	}
	return ok
}

// NameOf gives the wire name and version of a type; [*UndeclaredError] for a struct that has none.
func (r *Registry) NameOf(t reflect.Type) (name string, version int, err error) {
	if d := r.byType[t]; d != nil {
		return d.name, d.version, nil
	}
	if t != nil {
		if s, message := messageOf(t); message {
			return string(descriptorOf(s).FullName()), protoVersion, nil
		}
	}
	return "", 0, undeclared(t)
}

// Name gives the wire name of a type; false when it has none.
func (r *Registry) Name(t reflect.Type) (string, bool) {
	name, _, err := r.NameOf(t)
	return name, err == nil
}

// TypeOf gives the struct as which values of this wire name and version are read; Decode gives pointers to it. The error is an
// [*UnknownTypeError] or a [*VersionError].
func (r *Registry) TypeOf(name string, version int) (reflect.Type, error) {
	if _, _, err := r.find(name, version); err != nil {
		return nil, err
	}
	if c := r.chains[Version{name, version}]; c != nil {
		return c.to, nil
	}
	return r.structOf(Version{name, version}), nil
}

// EncodingOf tells how data of a wire name and version is encoded; the error is as that of TypeOf.
func (r *Registry) EncodingOf(name string, version int) (event.Encoding, error) {
	switch d, _, err := r.find(name, version); {
	case err != nil:
		return "", err
	case d == nil:
		return event.Proto, nil
	}
	return event.JSON, nil
}

// structOf gives the struct that was declared with a wire name and version, or that a protobuf message of that name is.
func (r *Registry) structOf(v Version) reflect.Type {
	if d := r.byName[v.Name][v.Version]; d != nil {
		return d.typ
	}
	m, _ := findMessage(v.Name)
	return reflect.TypeOf(m.Zero().Interface()).Elem()
}

// StoredAs gives the struct that was declared with this wire name and version, whatever its values are read as; false where there is
// none, as of a version that an upcaster edits as JSON.
func (r *Registry) StoredAs(v Version) (reflect.Type, bool) {
	d, message, err := r.find(v.Name, v.Version)
	switch {
	case err != nil || d != nil && d.typ == nil:
		return nil, false
	case d != nil:
		return d.typ, true
	}
	return reflect.TypeOf(message.Zero().Interface()).Elem(), true
}
