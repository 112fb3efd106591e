package keyhold

import (
	"reflect"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
)

// Type gives a plain struct its wire name, which is what is stored: the Go name may change, the wire name may not. Declare
// it beside the struct:
//
//	var _ = keyhold.Type[OrderPlaced]("order.placed", 1)
//
// Protobuf messages need no declaration: they go by their full name. What is wrong with a declaration is reported by
// [App.Start].
func Type[T any](name string, version int) codec.Declaration { return codec.Declare[T](name, version) }

// wire lends the registry of types to the actors, which know no codec.
type wire struct{ types *codec.Registry }

func (w wire) Encode(v any) (actors.Encoded, error) {
	e, err := w.types.Encode(v)
	return actors.Encoded(e), err
}

func (w wire) Decode(e actors.Encoded) (any, error) { return w.types.Decode(codec.Encoded(e)) }

func (w wire) Name(t reflect.Type) (string, bool) { return w.types.Name(t) }
