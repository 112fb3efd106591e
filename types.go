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

// Upcast has stored values of type Old read as values of type New, the next version of it or any later one. Declare it beside the types:
//
//	var (
//		_ = keyhold.Type[OrderPlacedV1]("order.placed", 1)
//		_ = keyhold.Type[OrderPlaced]("order.placed", 2)
//		_ = keyhold.Upcast(func(o OrderPlacedV1) OrderPlaced { return OrderPlaced{OrderID: o.OrderID, Cents: 100 * o.Total} })
//	)
//
// Entities, handlers and tests then see the newest version alone; upcasters of one version after the other form a chain. Nothing stored
// is changed, and an event keeps the key that it was stored with. up must depend on nothing but its argument. If it panics, the event is poison:
// its key halts, or it is set aside, as the handler's OnPoison says.
//
// Old and New may be of two wire names: the event was renamed. That is also how a protobuf message is taken over by another. Both are then
// pointers: func(*orderv1.Placed) *orderv2.Placed.
func Upcast[Old, New any](up func(Old) New) codec.Declaration {
	if up == nil {
		return TryUpcast[Old, New](nil)
	}
	return TryUpcast(func(o Old) (New, error) { return up(o), nil })
}

// TryUpcast is [Upcast] with a func that may find no meaning in a value. Its error is what a panic is: the event is poison.
func TryUpcast[Old, New any](up func(Old) (New, error)) codec.Declaration {
	return codec.Add(codec.UpcastOf(up))
}

// UpcastJSON is [TryUpcast] for a version whose Go type is not kept: edit changes the fields of a stored value into those of the next version,
// which is the next one that is declared, or edited itself.
//
//	var _ = keyhold.UpcastJSON("order.placed", 1, func(fields map[string]any) error {
//		fields["client_id"] = fields["customer"]
//		return nil
//	})
//
// The fields are a copy, by their JSON names. Their numbers are of type [encoding/json.Number], which keeps all digits.
func UpcastJSON(name string, version int, edit func(fields map[string]any) error) codec.Declaration {
	return codec.Add(codec.UpcastJSONOf(name, version, edit))
}
