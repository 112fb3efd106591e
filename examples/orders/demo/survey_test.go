package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport"
)

func TestRepliesAreHeldAgainstTheLog(t *testing.T) {
	t.Parallel()
	e := evidence{Placed: []placedEvent{{Order: "o-1", Client: "a", Cents: 100}}}
	says := func(process int, elsewhere bool, order, client string, cents int64, status orders.Status) reply {
		return reply{process, elsewhere, orders.View{OrderID: order, ClientID: client, Cents: cents, Status: status}}
	}
	good, paid := says(1, false, "o-1", "a", 100, orders.Placed), says(2, true, "o-1", "a", 100, orders.Paid)
	for name, c := range map[string]struct {
		replies                 []reply
		asked, elsewhere, wrong int
		says                    string
	}{
		"as it is":               {[]reply{good, paid, paid}, 3, 2, 0, ""},
		"another client":         {[]reply{good, says(2, true, "o-1", "b", 100, orders.Placed)}, 2, 1, 1, "process 2 says of order \"o-1\" that it is placed, of b for 100; the log has a for 100"},
		"another amount":         {[]reply{says(2, true, "o-1", "a", 1, orders.Placed)}, 1, 1, 1, "a for 1;"},
		"an order not placed":    {[]reply{says(2, true, "o-2", "a", 100, orders.Placed)}, 1, 1, 1, "o-2"},
		"nothing at all":         {[]reply{says(2, true, "", "", 0, "")}, 1, 1, 1, "process 2"},
		"an order that is open":  {[]reply{says(2, true, "o-1", "a", 100, orders.Open)}, 1, 1, 1, "process 2"},
		"older than one before":  {[]reply{good, paid, good}, 3, 1, 1, "process 1 says of order o-1 that it is placed, after another one had said that it is paid"},
		"nobody was asked":       {nil, 0, 0, 0, ""},
		"paid only for one more": {[]reply{paid, paid, good, good}, 4, 2, 2, "o-1"},
	} {
		asked, elsewhere, wrong, faults := compare(e, [][]reply{c.replies})
		if asked != c.asked || elsewhere != c.elsewhere || wrong != c.wrong || len(faults) != c.wrong || c.says != "" && !strings.Contains(faults[0], c.says) {
			t.Errorf("%s: asked %d, elsewhere %d, wrong %d, %q", name, asked, elsewhere, wrong, faults)
		}
	}
}

func TestWhoHearsAllOthersIsCounted(t *testing.T) {
	t.Parallel()
	all := map[string][]string{"process-1": {"process-2", "process-3"}, "process-2": {"process-1", "process-3"}, "process-3": {"process-1", "process-2"}}
	if n := wellHeard(all, 3); n != 3 {
		t.Errorf("all hear all: %d", n)
	}
	if n := wellHeard(all, 4); n != 0 {
		t.Errorf("nobody hears the fourth: %d", n)
	}
	all["process-2"] = []string{"process-3"}
	if n := wellHeard(all, 3); n != 2 {
		t.Errorf("the second does not hear the first: %d", n)
	}
	if n := wellHeard(nil, 3); n != 0 {
		t.Errorf("nobody said anything: %d", n)
	}
}

func TestNodesThatDoNotHearOrAskEachOtherAreAFault(t *testing.T) {
	t.Parallel()
	p := plan{Redis: true, Postgres: true, Nodes: 3}
	good := figures{Halted: 1, Resumed: 1, Processes: 4, Nodes: 4, Asked: 400, Elsewhere: 300}
	for says, f := range map[string]figures{
		"":                        good,
		"nodes is 3, not 4":       {Halted: 1, Resumed: 1, Processes: 4, Nodes: 3, Asked: 400, Elsewhere: 300},
		"of 400 asks 199":         {Halted: 1, Resumed: 1, Processes: 4, Nodes: 4, Asked: 400, Elsewhere: 199},
		"of 0 asks 0":             {Halted: 1, Resumed: 1, Processes: 4, Nodes: 4},
		"wrong is 1, not 0":       {Halted: 1, Resumed: 1, Processes: 4, Nodes: 4, Asked: 400, Elsewhere: 300, Wrong: 1},
		"processes is 3, not 4":   {Halted: 1, Resumed: 1, Processes: 3, Nodes: 4, Asked: 400, Elsewhere: 300},
		"overlapping is 1, not 0": {Halted: 1, Resumed: 1, Processes: 4, Nodes: 4, Asked: 400, Elsewhere: 300, Overlapping: 1},
	} {
		faults := f.faults(p)
		if (len(faults) == 0) != (says == "") || says != "" && !strings.Contains(faults[0], says) {
			t.Errorf("%q: %q", says, faults)
		}
	}
}

func TestEverybodyIsAskedForTheSameOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []int
		refusals := 2
		does := func(number int) func(c call) *answer {
			return func(c call) *answer {
				if number == 2 && refusals > 0 {
					refusals--
					return &answer{Error: "not yet", Again: true}
				}
				asked = append(asked, number)
				return &answer{View: orders.View{OrderID: c.Order.ID}, Elsewhere: number != 1}
			}
		}
		all := []*process{feigned(1, does(1)), feigned(2, does(2)), feigned(3, does(3))}
		replies, err := everybody(t.Context(), all, 4, order{ID: "o-7"})
		if err != nil || !slices.Equal(asked, []int{2, 3, 1}) || len(replies) != 3 {
			t.Fatalf("%v %v %v", asked, replies, err)
		}
		for _, r := range replies {
			if r.View.OrderID != "o-7" || r.Elsewhere != (r.Process != 1) {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestAnAskThatIsRefusedForGoodEndsTheSurvey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for says, answers := range map[string]func(call) *answer{
			"rejected: no":   func(call) *answer { return &answer{Error: "rejected: no"} },
			"held elsewhere": func(call) *answer { return &answer{Error: "held elsewhere", Again: true} },
		} {
			if _, err := everybody(t.Context(), []*process{feigned(1, answers)}, 0, order{ID: "o-7"}); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "process 1, asked for order o-7") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// answering is a node service that answers, or has no answer.
type answering struct {
	transport.Peers
	err error
}

func (a answering) Ask(context.Context, string, transport.PeerAsk) (transport.PeerReply, error) {
	return transport.PeerReply{}, a.err
}

// What counts is the last word: whoever was sent on in a circle, and decided here, was not answered elsewhere.
func TestAnAskNotesWhetherAnotherNodeAnswered(t *testing.T) {
	t.Parallel()
	var a trip
	if a.elsewhere.Load() {
		t.Error("nobody was asked")
	}
	for _, err := range []error{nil, errors.New("not the owner"), nil} {
		_, _ = counted{answering{err: err}}.Ask(a.of(t.Context()), "b:1", transport.PeerAsk{})
		if a.elsewhere.Load() != (err == nil) {
			t.Errorf("after %v: %v", err, a.elsewhere.Load())
		}
	}
	if _, err := (counted{answering{}}).Ask(t.Context(), "b:1", transport.PeerAsk{}); err != nil { // an ask that nobody follows
		t.Error(err)
	}
}
