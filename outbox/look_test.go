package outbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestLooks(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	lane := event.LaneRef{Category: "order", Key: "a"}
	terms := terms{healAfter: 30 * time.Second, retireAfter: time.Hour}
	own := func(name string, at event.Sequence) eventstore.Passed {
		return eventstore.Passed{Name: name, Checkpoint: at}
	}
	stopped := func(name string, at event.Sequence) eventstore.Passed {
		return eventstore.Passed{Name: name, Checkpoint: at, Stopped: true}
	}
	foreign := func(name string) eventstore.Passed { return eventstore.Passed{Name: name, Foreign: true} }
	again := func(gap time.Duration) eventstore.Look {
		return eventstore.Look{Lane: lane, Published: 9, Due: now.Add(gap), Gap: gap}
	}
	leaves := eventstore.Look{Lane: lane, Published: 9, Due: now.Add(time.Hour), Gap: time.Hour, Retire: true}
	over := eventstore.Look{Lane: lane, Published: 9}
	for name, c := range map[string]struct {
		gap    time.Duration
		retire bool
		shown  bool
		passed []eventstore.Passed
		want   verdict
	}{
		"all have passed":            {0, false, false, []eventstore.Passed{own("a", 9), own("b", 12)}, verdict{look: leaves, trim: 9, names: []string{"a", "b"}}},
		"one has not":                {0, false, false, []eventstore.Passed{own("a", 9), own("b", 4)}, verdict{look: again(time.Second), trim: 4, offer: []string{"b"}, names: []string{"a", "b"}}},
		"nor has it the next time":   {time.Second, false, false, []eventstore.Passed{own("b", 4)}, verdict{look: again(2 * time.Second), trim: 4, offer: []string{"b"}, names: []string{"b"}}},
		"nor for long":               {20 * time.Second, false, false, []eventstore.Passed{own("b", 0)}, verdict{look: again(30 * time.Second), offer: []string{"b"}, names: []string{"b"}}},
		"who has not is stopped":     {0, false, false, []eventstore.Passed{own("a", 9), stopped("b", 4)}, verdict{look: again(time.Second), stopped: true, trim: 4, names: []string{"a", "b"}}},
		"one of two is":              {0, false, false, []eventstore.Passed{own("a", 3), stopped("b", 4)}, verdict{look: again(time.Second), trim: 3, offer: []string{"a"}, names: []string{"a", "b"}}},
		"one is elsewhere":           {0, false, false, []eventstore.Passed{own("a", 9), foreign("b")}, verdict{look: leaves, after: true, trim: 9, offer: []string{"b"}, names: []string{"a", "b"}, remote: []string{"b"}}},
		"one is, one has not":        {0, false, false, []eventstore.Passed{own("a", 3), foreign("b")}, verdict{look: again(time.Second), trim: 3, offer: []string{"a", "b"}, names: []string{"a", "b"}, remote: []string{"b"}}},
		"one is, one is stopped":     {0, false, true, []eventstore.Passed{stopped("a", 3), foreign("b")}, verdict{look: again(time.Second), stopped: true, trim: 3, names: []string{"a", "b"}, remote: []string{"b"}}},
		"one is, for the first time": {time.Minute, false, false, []eventstore.Passed{stopped("a", 3), foreign("b")}, verdict{look: again(30 * time.Second), stopped: true, after: true, trim: 3, offer: []string{"b"}, names: []string{"a", "b"}, remote: []string{"b"}}},
		"and nobody is elsewhere":    {time.Minute, false, false, []eventstore.Passed{stopped("a", 3)}, verdict{look: again(30 * time.Second), stopped: true, trim: 3, names: []string{"a"}}},
		"it is to leave":             {time.Hour, true, false, []eventstore.Passed{own("a", 9)}, verdict{look: over, trim: 9, retire: true, names: []string{"a"}}},
		"it was, and is read again":  {time.Hour, true, false, []eventstore.Passed{own("a", 3)}, verdict{look: again(30 * time.Second), trim: 3, offer: []string{"a"}, names: []string{"a"}}},
		"nobody subscribes":          {0, false, false, nil, verdict{look: over, retire: true}},
	} {
		p := eventstore.Passing{Lane: lane, Published: 9, Tail: 12, First: 1, Subscribers: c.passed}
		got := terms.judge(eventstore.Look{Lane: lane, Published: 9, Due: now, Gap: c.gap, Retire: c.retire}, &p, now, c.shown)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(verdict{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRestsGrow(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(0)
	var r rest
	if r.resting(now) {
		t.Error("rests from the beginning")
	}
	var gaps []time.Duration
	for range 4 {
		r = r.longer(now, time.Second, 5*time.Second)
		gaps = append(gaps, r.gap)
	}
	if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}, gaps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !r.resting(now.Add(5*time.Second-1)) || r.resting(now.Add(5*time.Second)) {
		t.Error("rests for another time than said")
	}
}
