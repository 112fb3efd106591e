package orders_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// wireType is a type as a release declared it. What somebody may have sent or stored by then, a command under way or a
// reply that is kept, bears these names.
type wireType struct {
	Name     string            `json:"name"`
	Version  int               `json:"version"`
	Encoding event.Encoding    `json:"encoding"`
	Category string            `json:"category,omitempty"` // none of a reply
	Fields   map[string]string `json:"fields"`             // kinds by names on the wire
}

// typesOf gives the types that a store knows, and those of the replies that it keeps.
func typesOf(t *testing.T, store eventstore.Store, replies []reply) (all []wireType) {
	t.Helper()
	stored, err := store.LoadRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stored.Types {
		w := wireType{Name: s.Name, Version: s.Version, Encoding: s.Encoding, Category: s.Category, Fields: map[string]string{}}
		for _, f := range s.Fields {
			w.Fields[f.Name] = f.Kind
		}
		all = append(all, w)
	}
	types := declaredTypes(t)
	for _, r := range replies {
		if r.Type == "" || slices.ContainsFunc(all, func(w wireType) bool { return w.Name == r.Type }) {
			continue
		}
		now, err := described(types, r.Type, r.Version)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *now)
	}
	return all
}

func declaredTypes(t *testing.T) *codec.Registry {
	t.Helper()
	types, err := codec.NewRegistry(codec.Declarations())
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// described gives a version as this program has it; nil where only an upcaster knows it, which reads what it likes.
func described(types *codec.Registry, name string, version int) (*wireType, error) {
	if _, err := types.TypeOf(name, version); err != nil {
		return nil, err
	}
	as, ok := types.StoredAs(codec.Version{Name: name, Version: version})
	if !ok {
		return nil, nil
	}
	d, err := types.Describe(as)
	if err != nil {
		return nil, err
	}
	w := &wireType{Name: d.Name, Version: d.Version, Encoding: d.Encoding, Fields: map[string]string{}}
	for _, f := range d.Fields {
		w.Fields[f.Name] = f.Kind
	}
	return w, nil
}

// broken says what of a type is not as it was. A field more is nothing.
func broken(types *codec.Registry, was wireType) (all []string) {
	now, err := described(types, was.Name, was.Version)
	if err != nil {
		return []string{err.Error()}
	}
	if now == nil {
		return nil
	}
	if now.Encoding != was.Encoding {
		all = append(all, fmt.Sprintf("%s %d was encoded as %s, and is as %s", was.Name, was.Version, was.Encoding, now.Encoding))
	}
	for _, field := range slices.Sorted(maps.Keys(was.Fields)) {
		if kind, ok := now.Fields[field]; !ok || kind != was.Fields[field] {
			all = append(all, fmt.Sprintf("%s %d had the field %q of kind %s, and has kind %q", was.Name, was.Version, field, was.Fields[field], kind))
		}
	}
	return all
}

// Wire names, versions and fields of a release may be added to, and are never removed or changed.
func TestTheTypesOfEachReleaseAreThereAsTheyWere(t *testing.T) {
	t.Parallel()
	types := declaredTypes(t)
	eachRelease(t, func(t *testing.T, dir string) {
		was := readJSON[[]wireType](t, filepath.Join(dir, "types.json"))
		known := map[codec.Version]bool{}
		for _, w := range was {
			known[codec.Version{Name: w.Name, Version: w.Version}] = true
			for _, fault := range broken(types, w) {
				t.Error(fault)
			}
		}
		for _, s := range readJournal(t, dir) {
			if !known[codec.Version{Name: s.Type, Version: s.Version}] {
				t.Errorf("%s %d was stored, and is not in types.json", s.Type, s.Version)
			}
		}
	})
}

func TestWhatBreaksATypeIsFound(t *testing.T) {
	t.Parallel()
	type paid struct {
		Order string `json:"order"`
		Cents string `json:"cents"`
		More  int    `json:"more"`
	}
	types, err := codec.NewRegistry([]codec.Declaration{codec.Of[paid]("order.paid", 1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		was  wireType
		want string
	}{
		"a field renamed": {wireType{"order.paid", 1, event.JSON, "", map[string]string{"order_id": "string"}}, `had the field "order_id"`},
		"another kind":    {wireType{"order.paid", 1, event.JSON, "", map[string]string{"cents": "int64"}}, `"cents" of kind int64, and has kind "string"`},
		"another name":    {wireType{"order.payed", 1, event.JSON, "", nil}, `order.payed`},
		"version gone":    {wireType{"order.paid", 2, event.JSON, "", nil}, `order.paid`},
		"encoding":        {wireType{"order.paid", 1, event.Proto, "", nil}, `was encoded as proto`},
		"nothing":         {wireType{"order.paid", 1, event.JSON, "", map[string]string{"order": "string"}}, ``},
	} {
		if got := strings.Join(broken(types, c.was), "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
