package keyhold

import "github.com/keyhold/keyhold/codec"

// Type gives a plain struct its wire name, which is what is stored: the Go name may change, the wire name may not. Declare
// it beside the struct:
//
//	var _ = keyhold.Type[OrderPlaced]("order.placed", 1)
//
// Protobuf messages need no declaration: they go by their full name. What is wrong with a declaration is reported by
// [App.Start].
func Type[T any](name string, version int) codec.Declaration { return codec.Declare[T](name, version) }
