package keyholdtest

import (
	"reflect"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/keyhold/keyhold"
)

// comparison is how values are compared: all fields, protobuf messages by what they say, and an empty list is as good as none.
var comparison = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	protocmp.Transform(),
	cmpopts.EquateEmpty(),
	cmpopts.EquateNaNs(),
}

// stateComparison also leaves out what has no value to compare.
var stateComparison = cmp.Options{comparison, cmp.FilterPath(func(p cmp.Path) bool {
	t := p.Last().Type()
	return t != nil && (t.Kind() == reflect.Func || t.Kind() == reflect.Chan)
}, cmp.Ignore())}

func diff(want, got any) string { return cmp.Diff(want, got, comparison) }

// plain gives a value in the form in which it is compared: structs as such, protobuf messages by pointer.
func plain(v any) any {
	switch v := v.(type) {
	case keyhold.Backfilled:
		return keyhold.Backfilled{Event: plain(v.Unwrapped())}
	case keyhold.Keyed:
		return plain(v.Event)
	case proto.Message:
		return v
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && !r.IsNil() {
		return r.Elem().Interface()
	}
	return v
}

func plains(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = plain(v)
	}
	return out
}
