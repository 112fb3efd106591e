package cluster

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

func TestOnlyExceptionsAreRememberedAndWhileTheyCount(t *testing.T) {
	t.Parallel()
	u := inOrder(t, "a", "b", "c")
	start := time.Unix(100, 0)
	for _, c := range []struct {
		name    string
		do      func(o *owners, f *field)
		members string // when it is looked for; default those when it was learned
		after   time.Duration
		want    string
	}{
		{"another than the first", func(o *owners, f *field) { o.learn(u, ownerOf("b@4"), f, start, time.Second) }, "", 0, "b@4"},
		{"the first", func(o *owners, f *field) { o.learn(u, ownerOf("a@4"), f, start, time.Second) }, "", 0, "@0"},
		{"no member", func(o *owners, f *field) { o.learn(u, ownerOf("z@4"), f, start, time.Second) }, "", 0, "@0"},
		{"one that cannot be asked", func(o *owners, f *field) { o.learn(u, ownerOf("d@4"), f, start, time.Second) }, "", 0, "@0"},
		{"this process", func(o *owners, f *field) {
			o.learn(u, ownerOf("c@4"), &field{Placement: f.Placement, self: "c"}, start, time.Second)
		}, "", 0, "@0"},
		{"it lapses", func(o *owners, f *field) { o.learn(u, ownerOf("b@4"), f, start, time.Second) }, "", time.Second, "@0"},
		{"not before", func(o *owners, f *field) { o.learn(u, ownerOf("b@4"), f, start, time.Second) }, "", time.Second - 1, "b@4"},
		{"confirmed", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.learn(u, ownerOf("b@4"), f, start.Add(time.Second), time.Second)
		}, "", time.Second, "b@4"},
		{"it goes with its member", func(o *owners, f *field) { o.learn(u, ownerOf("b@4"), f, start, time.Second) }, "a c", 0, "@0"},
		{"it has become the first", func(o *owners, f *field) { o.learn(u, ownerOf("b@4"), f, start, time.Second) }, "b c", 0, "@0"},
		{"a higher generation", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.learn(u, ownerOf("c@5"), f, start, time.Second)
		}, "", 0, "c@5"},
		{"a lower one", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.learn(u, ownerOf("c@3"), f, start, time.Second)
		}, "", 0, "b@4"},
		{"the first, at a lower one", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.learn(u, ownerOf("a@3"), f, start, time.Second)
		}, "", 0, "b@4"},
		{"the first, at a higher one", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.learn(u, ownerOf("a@5"), f, start, time.Second)
		}, "", 0, "@0"},
		{"it has it no more", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.forget(u, ownerOf("b@4"))
		}, "", 0, "@0"},
		{"it had it no more, at an earlier one", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.forget(u, ownerOf("b@3"))
		}, "", 0, "b@4"},
		{"another one has it no more", func(o *owners, f *field) {
			o.learn(u, ownerOf("b@4"), f, start, time.Second)
			o.forget(u, ownerOf("c@9"))
		}, "", 0, "b@4"},
	} {
		o := newOwners(10)
		f := &field{Placement: NewPlacement(said("a b c d/mute"))}
		c.do(o, f)
		if c.members != "" {
			f = &field{Placement: NewPlacement(said(c.members))}
		}
		got := o.find(u, f, start.Add(c.after))
		if text := fmt.Sprintf("%s@%d", got.ID, got.Generation); text != c.want {
			t.Errorf("%s: %s is remembered, want %s", c.name, text, c.want)
		}
		if kept := o.used.Len(); kept != len(o.by) || c.want == "@0" && kept != 0 {
			t.Errorf("%s: %d entries, %d in order of use", c.name, len(o.by), kept)
		}
	}
}

func TestTheOneUsedLongestAgoMakesRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 4
		o := newOwners(most)
		var recent []int // as a model has it, the one used last in front
		f := &field{Placement: NewPlacement(said("a"))}
		for _, m := range []string{"x", "y"} { // neither runs the kind: always an exception
			f.members = append(f.members, placed{Member: transport.Member{ID: m, Address: m + ":1"}})
		}
		now := time.Unix(100, 0)
		for range 50 {
			i := rapid.IntRange(0, 7).Draw(t, "unit")
			u := event.Unit{Name: "order", Key: fmt.Sprint(i)}
			had := -1
			for at, other := range recent {
				if other == i {
					had = at
				}
			}
			if rapid.Bool().Draw(t, "find") {
				if got := o.find(u, f, now); (got.ID != "") != (had >= 0) {
					t.Fatalf("unit %d: %v, of %v", i, got, recent)
				}
				if had < 0 {
					continue
				}
			} else {
				o.learn(u, transport.PeerOwner{ID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "owner"), Generation: 1}, f, now, time.Hour)
			}
			if had >= 0 {
				recent = append(recent[:had:had], recent[had+1:]...)
			}
			recent = append([]int{i}, recent...)
			recent = recent[:min(len(recent), most)]
			if len(o.by) != len(recent) || o.used.Len() != len(recent) {
				t.Fatalf("%d entries, want %v", len(o.by), recent)
			}
		}
	})
}
