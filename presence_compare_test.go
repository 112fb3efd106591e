package keyhold

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

func TestAProcessIsAbsentThatTheBrokerDoesNotKnowForLong(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	one, two := eventstore.Owner{Node: "one", Generation: 1}, eventstore.Owner{Node: "two", Generation: 2}
	said := two
	said.Trouble = "no broker"
	ones, both := []transport.Member{{Node: "one", Start: 1}}, []transport.Member{{Node: "one", Start: 1}, {Node: "two", Start: 2}}
	began := time.Unix(1_000, 0)
	var p presence
	for i, c := range []struct {
		after   time.Duration
		present []eventstore.Owner
		members []transport.Member
		absent  string
		since   time.Duration
		fresh   int
		over    string
	}{
		{0, []eventstore.Owner{one, two}, ones, "", 0, 0, ""}, // it starts
		{9 * time.Second, []eventstore.Owner{one, two}, ones, "", 0, 0, ""},
		{10 * time.Second, []eventstore.Owner{one, two}, ones, "two", 0, 1, ""},
		{11 * time.Second, []eventstore.Owner{one, two}, ones, "two", 0, 0, ""}, // which was told
		{12 * time.Second, []eventstore.Owner{one, said}, ones, "", 0, 0, "says what keeps it from that by itself"},
		{13 * time.Second, []eventstore.Owner{one, two}, both, "", 0, 0, ""},
		{14 * time.Second, []eventstore.Owner{one, two}, ones, "", 0, 0, ""}, // it stops
		{23 * time.Second, []eventstore.Owner{one, two}, both, "", 0, 0, ""},
		{24 * time.Second, []eventstore.Owner{one, two}, ones, "", 0, 0, ""}, // it freezes
		{34 * time.Second, []eventstore.Owner{one, two}, ones, "two", 24 * time.Second, 1, ""},
		{35 * time.Second, []eventstore.Owner{one, two}, both, "", 0, 0, "is one of them again"},
		{36 * time.Second, []eventstore.Owner{one, two}, ones, "", 0, 0, ""},
		{46 * time.Second, []eventstore.Owner{one, two}, ones, "two", 36 * time.Second, 1, ""},
		{47 * time.Second, []eventstore.Owner{one}, ones, "", 0, 0, "has the store open no more"},
		{48 * time.Second, []eventstore.Owner{one}, ones, "", 0, 0, ""},
	} {
		a, fresh, over := p.compare(c.present, c.members, began.Add(c.after), patience)
		name, ended := "", ""
		if a != nil {
			name = a.owner.Node
		}
		if len(over) > 0 {
			ended = over[0].now
		}
		if name != c.absent || a != nil && !a.since.Equal(began.Add(c.since)) || len(fresh) != c.fresh || ended != c.over {
			t.Errorf("step %d: absent %+v, fresh %v, over %v", i, a, fresh, over)
		}
	}
}
