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
	}{
		{0, []eventstore.Owner{one, two}, ones, "", 0}, // it starts
		{9 * time.Second, []eventstore.Owner{one, two}, ones, "", 0},
		{10 * time.Second, []eventstore.Owner{one, two}, ones, "two", 0},
		{11 * time.Second, []eventstore.Owner{one, said}, ones, "", 0}, // it tells of that by itself
		{12 * time.Second, []eventstore.Owner{one, two}, both, "", 0},
		{13 * time.Second, []eventstore.Owner{one, two}, ones, "", 0}, // it stops
		{23 * time.Second, []eventstore.Owner{one, two}, ones, "two", 13 * time.Second},
		{24 * time.Second, []eventstore.Owner{one}, ones, "", 0},
	} {
		o, since := p.compare(c.present, c.members, began.Add(c.after), patience)
		name := ""
		if o != nil {
			name = o.Node
		}
		if name != c.absent || o != nil && !since.Equal(began.Add(c.since)) {
			t.Errorf("step %d: %q since %v, want %q since %v", i, name, since.Sub(began), c.absent, c.since)
		}
	}
}
