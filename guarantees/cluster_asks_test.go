package guarantees

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

const (
	tills     = 12
	edgeName  = "edge"
	askPause  = 2 * time.Second
	quietLink = 6 * time.Second // after which a node service takes a link for broken on which nothing comes
)

// askBound is within what an ask ends that nobody bounds: its entity is looked for during two leases, and the last attempt may have gone to a node that is silent, by a link that has
// to be found broken. The rest is for a machine that does other things: as many seconds as for a takeover.
func (c *cluster) askBound() time.Duration { return 2*c.settings.ttl + quietLink + 20*time.Second }

// ask has nodes, or the client, ask tills, whoever has them.
func (c *cluster) ask(by ...*node) {
	c.t.Helper()
	for _, n := range by {
		n.must(c.t, "ask", asking{Tills: tills, Pause: askPause}, nil)
	}
}

// startEdge starts a client, on a host of its own if there are hosts. It knows the node services of these nodes alone.
func (c *cluster) startEdge(names ...string) {
	c.t.Helper()
	spec := c.spec(edgeName)
	for _, name := range names {
		var k known
		c.nodes[name].must(c.t, "members", nil, &k)
		spec.Edge = append(spec.Edge, k.Services[name])
	}
	c.edge = newNode(c.t, spec)
	c.edge.host = c.hosts[edgeName]
	c.edge.start(c.t)
	c.ask(c.edge)
}

// elsewhere waits until asks that began at or after a time were answered by another node than was asked.
func (c *cluster) elsewhere(after time.Time) {
	c.t.Helper()
	eventually(c.t, time.Minute, "asks are answered by other nodes than are asked", func() (bool, error) {
		return slices.ContainsFunc(c.attempts(), func(a attempt) bool { return a.Outcome == answered && a.Node != a.By && !a.Began.Before(after) }), nil
	})
}

// attempts reads the file of asks: the last line of each attempt.
func (c *cluster) attempts() []attempt {
	c.t.Helper()
	text, err := os.ReadFile(c.asks)
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := parseAttempts(string(text))
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

func parseAttempts(text string) (all []attempt, err error) {
	at := map[string]int{}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var a attempt
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		name := fmt.Sprint(a.Ask, " ", a.Attempt)
		if i, is := at[name]; is {
			all[i] = a
			continue
		}
		at[name] = len(all)
		all = append(all, a)
	}
	return all, nil
}

// done gives how often each ask was done, by the log of the store.
func (c *cluster) done() map[string]int {
	c.t.Helper()
	events, err := selected(c.fleet, pgx.RowTo[[]byte], `SELECT data FROM keyhold_log WHERE stream_kind = $1`, tillCategory)
	if err != nil {
		c.t.Fatal(err)
	}
	done := map[string]int{}
	for _, data := range events {
		var e putIn
		if err := json.Unmarshal(data, &e); err != nil {
			c.t.Fatal(err)
		}
		done[e.Ask]++
	}
	return done
}

// askVerdict is what the oracle found of asks. From Twice on everything must be 0, but Open, which may be what a killed process had under way.
type askVerdict struct {
	Asked, Answered, Elsewhere, Refused, Unknown, Repeated int           // attempts, but Asked, which is asks
	Longest                                                time.Duration // of those that ended, by whom did not stand still

	Twice   int // done more than once
	Gone    int // answered and not done
	Against int // done although each attempt was refused
	Denied  int // for good
	Untyped int
	Late    int // that took longer than the bound
	Open    int // that did not end
}

func (v askVerdict) String() string {
	return fmt.Sprintf("asked=%d answered=%d elsewhere=%d refused=%d unknown=%d repeated=%d longest=%v twice=%d answered-but-gone=%d refused-but-done=%d denied=%d untyped=%d late=%d open=%d",
		v.Asked, v.Answered, v.Elsewhere, v.Refused, v.Unknown, v.Repeated, v.Longest.Round(time.Millisecond), v.Twice, v.Gone, v.Against, v.Denied, v.Untyped, v.Late, v.Open)
}

func (v askVerdict) good(open int) bool {
	return v.Twice+v.Gone+v.Against+v.Denied+v.Untyped+v.Late == 0 && v.Open <= open
}

// judgeAsks compares what was said of asks with what was done. still is for how long somebody stood still who asked.
func judgeAsks(all []attempt, done map[string]int, bound time.Duration, still map[string]time.Duration) (v askVerdict) {
	type ask struct{ answered, doubt bool }
	of := map[string]ask{}
	for _, a := range all {
		k := of[a.Ask]
		if a.Attempt > 1 {
			v.Repeated++
		}
		switch a.Outcome {
		case answered:
			v.Answered++
			k.answered = true
			if a.Node != a.By {
				v.Elsewhere++
			}
		case refused:
			v.Refused++
		case unknown:
			v.Unknown++
			k.doubt = true
		case denied:
			v.Denied++
		case untyped:
			v.Untyped++
			k.doubt = true
		default:
			v.Open++
			k.doubt = true
		}
		if a.Took > bound+still[a.By] {
			v.Late++
		}
		if still[a.By] == 0 {
			v.Longest = max(v.Longest, a.Took)
		}
		of[a.Ask] = k
	}
	v.Asked = len(of)
	for name, k := range of {
		switch n := done[name]; {
		case n > 1:
			v.Twice++
		case n == 0 && k.answered:
			v.Gone++
		case n == 1 && !k.answered && !k.doubt:
			v.Against++
		}
	}
	return v
}

// asked judges all asks, which have ended by now.
func (c *cluster) asked() askVerdict {
	c.t.Helper()
	all := c.attempts()
	v := judgeAsks(all, c.done(), c.askBound(), c.still)
	if !v.good(c.killed * tills) {
		c.t.Errorf("a promise to those who ask is broken (open may be %d, and each has to end within %v): %v", c.killed*tills, c.askBound(), v)
		shown := 0
		for _, a := range all {
			if bad := a.Outcome == denied || a.Outcome == untyped || a.Outcome == begun || a.Took > c.askBound()+c.still[a.By]; bad && shown < 10 {
				c.t.Logf("%+v", a)
				shown++
			}
		}
	}
	if v.Answered == 0 || v.Elsewhere == 0 {
		c.t.Errorf("nothing was answered, or nothing elsewhere, which shows little: %v", v)
	}
	errs := map[string]int{}
	for _, a := range all {
		if a.Error != "" {
			_, text, _ := strings.Cut(a.Error, ": ") // without who was asked
			errs[fmt.Sprint(a.By, ": ", a.Outcome, ": ", text[:min(len(text), 160)])]++
		}
	}
	var most []string
	for text := range errs {
		most = append(most, text)
	}
	slices.SortFunc(most, func(a, b string) int { return errs[b] - errs[a] })
	for _, text := range most[:min(len(most), 4)] {
		c.t.Logf("%d times: %s", errs[text], text)
	}
	return v
}

func TestOracleCountsWhatIsWrongWithAsks(t *testing.T) {
	t.Parallel()
	at := func(ask string, n int, o outcome, node string, took time.Duration) attempt {
		return attempt{Ask: ask, Attempt: n, By: "n1", Outcome: o, Node: node, Took: took}
	}
	for name, c := range map[string]struct {
		attempts []attempt
		done     map[string]int
		want     askVerdict
	}{
		"all well": {
			[]attempt{at("a", 1, answered, "n1", 1), at("b", 1, unknown, "", 2), at("b", 2, answered, "n2", 3), at("c", 1, refused, "", 4), at("d", 1, unknown, "", 5), at("e", 1, unknown, "", 5)},
			map[string]int{"a": 1, "b": 1, "d": 1}, askVerdict{Asked: 5, Answered: 2, Elsewhere: 1, Refused: 1, Unknown: 3, Repeated: 1, Longest: 5},
		},
		"twice":            {[]attempt{at("a", 1, answered, "n1", 1)}, map[string]int{"a": 2}, askVerdict{Asked: 1, Answered: 1, Longest: 1, Twice: 1}},
		"gone":             {[]attempt{at("a", 1, answered, "n1", 1)}, nil, askVerdict{Asked: 1, Answered: 1, Longest: 1, Gone: 1}},
		"refused and done": {[]attempt{at("a", 1, refused, "", 1), at("a", 2, refused, "", 1)}, map[string]int{"a": 1}, askVerdict{Asked: 1, Refused: 2, Repeated: 1, Longest: 1, Against: 1}},
		"denied and done":  {[]attempt{at("a", 1, denied, "", 1)}, map[string]int{"a": 1}, askVerdict{Asked: 1, Denied: 1, Longest: 1, Against: 1}},
		"untyped":          {[]attempt{at("a", 1, untyped, "", 1)}, map[string]int{"a": 1}, askVerdict{Asked: 1, Untyped: 1, Longest: 1}},
		"late":             {[]attempt{at("a", 1, refused, "", 11)}, nil, askVerdict{Asked: 1, Refused: 1, Longest: 11, Late: 1}},
		"open":             {[]attempt{at("a", 1, begun, "", 0)}, map[string]int{"a": 1}, askVerdict{Asked: 1, Open: 1}},
	} {
		got := judgeAsks(c.attempts, c.done, 10, nil)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
		if good := got.good(0); good != (name == "all well") {
			t.Errorf("%s: good is %t", name, good)
		}
	}
	if v := judgeAsks([]attempt{at("a", 1, refused, "", 11)}, nil, 10, map[string]time.Duration{"n1": 1}); v.Late > 0 {
		t.Errorf("who stood still is late: %v", v)
	}
	all, err := parseAttempts(`{"Ask":"a","Attempt":1,"Outcome":"begun"}
{"Ask":"a","Attempt":1,"Outcome":"refused"}
{"Ask":"a","Attempt":2,"Outcome":"begun"}
{"Ask":"b`)
	if err != nil || len(all) != 2 || all[0].Outcome != refused || all[1].Outcome != begun {
		t.Errorf("got %+v, %v", all, err)
	}
	if _, err := parseAttempts("nonsense\n"); err == nil {
		t.Error("nonsense was read as an attempt")
	}
}
