package actors

import (
	"reflect"
	"testing"
	"time"
)

func TestStatesThatShareMemoryAreKnown(t *testing.T) {
	t.Parallel()
	type inner struct{ M map[string]int }
	for want, list := range map[bool][]any{
		false: {struct{}{}, struct {
			A string
			T time.Time
			U [16]byte
			N struct{ X float64 }
		}{}, [3]int{}},
		true: {&struct{}{}, struct{ S []byte }{}, inner{}, struct{ I inner }{}, [2]*int{}, struct{ F func() }{}, struct{ V any }{}, struct{ t []time.Time }{}},
	} {
		for _, v := range list {
			if got := sharesMemory(reflect.TypeOf(v)); got != want {
				t.Errorf("%T: got %v, want %v", v, got, want)
			}
		}
	}
}

func TestWhatASnapshotWouldLoseIsKnown(t *testing.T) {
	t.Parallel()
	type nested struct {
		Fine int
		lost string
	}
	type list struct{ Next *list }
	for _, tt := range []struct {
		state any
		want  int
	}{
		{struct{ A int }{}, 0},
		{struct{ T time.Time }{}, 0},
		{list{}, 0},
		{struct{ nested }{}, 1},
		{struct{ M map[string][]*nested }{}, 1},
		{struct {
			A int `json:"-"`
			B any
			C chan int
		}{}, 3},
	} {
		f := faults{of: "x"}
		f.snapshot(reflect.TypeOf(tt.state))
		if len(f.list) != tt.want {
			t.Errorf("%T: %d faults, want %d: %v", tt.state, len(f.list), tt.want, f.list)
		}
	}
	_ = nested{lost: ""}
}
