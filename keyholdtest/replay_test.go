package keyholdtest_test

import (
	"encoding/json"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/keyholdtest"
)

// spoilt is a cart of which one thing is changed.
func spoilt(change func(*keyhold.Entity[cart])) keyhold.Entity[cart] {
	def := Cart()
	change(&def)
	return def
}

func TestCommandThatChangesTheStateItWasGivenFailsTheTest(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]error{"and commits": nil, "and is rejected": keyhold.Reject("no"), "and fails": errNothing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, func(t *fake) {
				def := spoilt(func(def *keyhold.Entity[cart]) {
					def.Commands[1] = keyhold.OnCommand(func(c keyhold.Command, s cart, in *Fill) (*Listed, error) {
						s.Items[in.Item]++
						c.Emit(Filled{Cart: c.ID(), Client: s.Client, Item: "tea"})
						return nil, outcome
					})
				})
				test := keyholdtest.Entity(t, def, "c-1").
					Given(Filled{Item: "tea"}).
					When(&Fill{Item: "jam"})
				if outcome != nil {
					test.ThenError(outcome)
				}
				test.When(&Open{}) // said once is enough
			}, "cart/c-1: *keyholdtest_test.Fill changed the state that it was given", `+ 		"jam": 1`)
		})
	}
}

func TestQueryThatChangesTheStateItWasGivenFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		def := spoilt(func(def *keyhold.Entity[cart]) {
			def.Queries[0] = keyhold.OnQuery(func(_ keyhold.Query, s cart, _ *Items) (*Listed, error) {
				delete(s.Items, "tea")
				return nil, nil
			})
		})
		keyholdtest.Entity(t, def, "c-1").Given(Filled{Item: "tea"}).When(&Items{})
	}, "*keyholdtest_test.Items changed the state that it was given", `- 	Items:  map[string]int{"tea": 1}`)
}

func TestFoldThatChangesTheStateItWasGivenFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		def := spoilt(func(def *keyhold.Entity[cart]) {
			def.New = func(string) cart { return cart{Items: map[string]int{}} }
			def.Fold[1] = keyhold.OnEvent(func(s cart, e Filled) cart {
				s.Items[e.Item]++
				return s
			})
		})
		keyholdtest.Entity(t, def, "c-1").Given(Filled{Item: "tea"}, Filled{Item: "tea"})
	}, "the fold of cart.filled changed the state that it was given", `"tea": 1`)
}

func TestFoldThatDependsOnMoreThanItsArgumentsFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		calls := 0
		def := spoilt(func(def *keyhold.Entity[cart]) {
			def.Fold[1] = keyhold.OnEvent(func(s cart, e Filled) cart {
				calls++
				return cart{Items: map[string]int{"calls": calls}}
			})
		})
		keyholdtest.Entity(t, def, "c-1").Given(Filled{Item: "tea"})
	}, "the fold of cart.filled made two states of the same event", "calls")
}

func TestEventThatCannotBeFoldedIsRefusedWhereItIsGiven(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		keyholdtest.Entity(t, Cart(), "c-1").Given(Foreign{})
		t.T.Error("the test goes on")
	}, "given to cart/c-1", "emit keyholdtest_test.Foreign", "no case in Fold")
}

func TestFoldThatPanicsFailsTheTest(t *testing.T) {
	t.Parallel()
	def := spoilt(func(def *keyhold.Entity[cart]) {
		def.Fold[1] = keyhold.OnEvent(func(cart, Filled) cart { panic("out of paper") })
	})
	fails(t, func(t *fake) {
		keyholdtest.Entity(t, def, "c-1").Given(Filled{Item: "tea"})
	}, "cart/c-1: after Given", "event 1", "behavior panicked: out of paper", "stack=replay_test.go:")
}

// Lossy is an event that is not stored as it was emitted.
type Lossy struct{ Kept, Lost string }

var _ = keyhold.Type[Lossy]("lossy", 1)

func (l Lossy) MarshalJSON() ([]byte, error)     { return json.Marshal(l.Kept) }
func (l *Lossy) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &l.Kept) }

func TestEventThatDoesNotSurviveBeingStoredFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		def := spoilt(func(def *keyhold.Entity[cart]) {
			def.Fold = append(def.Fold, keyhold.OnEvent(func(s cart, e Lossy) cart { return cart{Client: e.Kept + e.Lost} }))
		})
		keyholdtest.Entity(t, def, "c-1").Given(Lossy{"kept", "lost"})
	}, "after Given the state in memory is not what its events make of it", `"kept"`, `"keptlost"`)
}

// tally is a state that a snapshot does not hold.
type tally struct{ N int }

func (tally) MarshalJSON() ([]byte, error)  { return []byte("{}"), nil }
func (*tally) UnmarshalJSON(_ []byte) error { return nil }

func tallies(snapshots int) keyhold.Entity[tally] {
	return keyhold.Entity[tally]{
		Kind: "tally", Version: 1, SnapshotEvery: snapshots,
		Commands: keyhold.Commands[tally]{keyhold.OnCommand(func(keyhold.Command, tally, *Fill) (*Listed, error) { return nil, nil })},
		Fold:     keyhold.Fold[tally]{keyhold.OnEvent(func(s tally, _ Filled) tally { return tally{s.N + 1} })},
	}
}

func TestStateThatDoesNotSurviveASnapshotFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		keyholdtest.Entity(t, tallies(0), "t-1").Given(Filled{}).When(&Fill{})
	}, "tally/t-1: the state does not survive a snapshot")
	keyholdtest.Entity(t, tallies(-1), "t-1").Given(Filled{}, Filled{}).ThenState(tally{2})
}

// hidden is a state that nobody else can look into.
type hidden struct {
	n    int
	each func() // has no value to compare
}

func TestStatesAreComparedByAllTheirFields(t *testing.T) {
	t.Parallel()
	def := keyhold.Entity[hidden]{
		Kind: "hidden", SnapshotEvery: -1,
		New:      func(string) hidden { return hidden{each: func() {}} },
		Commands: keyhold.Commands[hidden]{keyhold.OnCommand(func(keyhold.Command, hidden, *Fill) (*Listed, error) { return nil, nil })},
		Fold:     keyhold.Fold[hidden]{keyhold.OnEvent(func(s hidden, _ Filled) hidden { return hidden{s.n + 1, s.each} })},
	}
	keyholdtest.Entity(t, def, "h-1").Given(Filled{}, Filled{}).When(&Fill{}).ThenReply(nil).ThenState(hidden{n: 2})
	fails(t, func(t *fake) {
		keyholdtest.Entity(t, def, "h-1").Given(Filled{}).ThenState(hidden{n: 2})
	}, "state of hidden/h-1")
}

func TestEntityIsReadBackFromItsSnapshot(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	k := keyholdtest.New(t, keyholdtest.On(store))
	c := keyholdtest.Entity(k, Cart(), "c-1").Given(Filled{Item: "tea"}, Filled{Item: "jam"}).When(&Fill{Item: "tea"})
	k.Restart()
	c.ThenState(cart{Items: map[string]int{"tea": 2, "jam": 1}})
	snapshot, err := store.ReadSnapshot(t.Context(), event.Stream{Kind: "cart", ID: "c-1"})
	if err != nil || snapshot == nil || snapshot.Version != 2 {
		t.Errorf("snapshot: %+v, %v", snapshot, err)
	}
}
