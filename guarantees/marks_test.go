package guarantees

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// marks are where behaviors of all nodes say that they enter and leave, in a Redis of its own that no fault touches. It judges at once, one
// script for each enter, so that what it says does not depend on anybody's clock.
type marks struct{ client *redis.Client }

func openMarks(addr string) *marks {
	return &marks{redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true, Protocol: 2, PoolSize: 64})}
}

func (m *marks) close() { m.client.Close() }

// errLate: a newer owner has entered the unit already. Who gets it is inside all the same: that is what is counted.
var errLate = errors.New("a newer owner has entered this unit already")

// enterScript judges one enter. A unit has the highest generation that entered, and the events that are open at it.
//
//   - late: below the highest generation. It is refused. An owner that was frozen between its last look at its lease and the behavior does
//     so, once.
//   - overlapping: another event is open at the same generation.
//   - backwards: below the last sequence that entered in this lane, whoever entered it. One event is in doubt after a crash, the last; those
//     before it are done.
//   - skipped: more than one above the last sequence of the lane.
//   - overtaking: at a higher generation, while another node is inside. That is how a node that stands still, or was killed, is replaced; where
//     none was, two nodes are inside one unit at once.
var enterScript = redis.NewScript(`
local unit, open, counts, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local generation, sequence, id, lane, node = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local function note(what)
	redis.call('HINCRBY', counts, what, 1)
	redis.call('XADD', log, '*', 'what', what, 'unit', unit, 'lane', lane, 'generation', ARGV[1], 'sequence', ARGV[2], 'id', id, 'node', node)
end
local highest = tonumber(redis.call('HGET', unit, 'generation') or '0')
if generation < highest then
	note('late')
	return 'late'
end
if generation > highest then
	for _, other in ipairs(redis.call('HVALS', open)) do
		if other ~= node then note('overtaking') end
	end
	redis.call('HSET', unit, 'generation', ARGV[1])
	redis.call('DEL', open)
end
local last = tonumber(redis.call('HGET', unit, 'last ' .. lane) or '0')
if sequence < last then note('backwards') end
if sequence > last + 1 then note('skipped') end
if sequence > last then redis.call('HSET', unit, 'last ' .. lane, ARGV[2]) end
for _, other in ipairs(redis.call('HKEYS', open)) do
	if other ~= id then note('overlapping') end
end
redis.call('HSET', open, id, node)
note('enter')
return 'ok'
`)

// leaveScript closes what was entered at the highest generation; who was overtaken has nothing open.
var leaveScript = redis.NewScript(`
local unit, open, counts, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local what = 'leave'
if ARGV[1] == redis.call('HGET', unit, 'generation') then redis.call('HDEL', open, ARGV[3]) else what = 'leave, overtaken' end
redis.call('HINCRBY', counts, what, 1)
redis.call('XADD', log, '*', 'what', what, 'unit', unit, 'lane', ARGV[4], 'generation', ARGV[1], 'sequence', ARGV[2], 'id', ARGV[3], 'node', ARGV[5])
return what
`)

// mark is one enter.
type mark struct {
	unit       event.Unit
	generation event.Generation
	lane       string // category and lane
	sequence   event.Sequence
	id         string // of the event
	node       string
}

func (k mark) keys() []string {
	return []string{"unit:" + k.unit.String(), "open:" + k.unit.String(), "counts", "log"}
}

func (k mark) args() []any {
	return []any{uint64(k.generation), uint64(k.sequence), k.id, k.lane, k.node}
}

// enter gives [errLate] where the script says so. leave is to be called whatever it gives.
func (m *marks) enter(k mark) (leave func(), err error) {
	ctx := context.Background() // whatever becomes of the attempt, it has entered
	answer, err := enterScript.Run(ctx, m.client, k.keys(), k.args()...).Text()
	if err != nil {
		panic(fmt.Sprint("marks: ", err)) // no fault touches them
	}
	if answer == "late" {
		err = errLate
	}
	return func() {
		if err := leaveScript.Run(ctx, m.client, k.keys(), k.args()...).Err(); err != nil {
			panic(fmt.Sprint("marks: ", err))
		}
	}, err
}

// Gates hold behaviors. Where one is shut, a behavior of that key waits until it is opened.
const (
	before     = "before"     // before the first statement of the transaction; gives up when its context ends
	inside     = "inside"     // with the transaction open and written to; gives up likewise
	regardless = "regardless" // before the first statement, whatever becomes of its context: so a behavior that ignores it
)

// gate is that of a key on all nodes, or on one.
func gate(key string, node *node) string {
	if node == nil {
		return "gate:" + key
	}
	return "gate:" + key + "@" + node.spec.Name
}

func (m *marks) shut(t *testing.T, gate, where string) {
	t.Helper()
	if err := m.client.Set(t.Context(), gate, where, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func (m *marks) open(t *testing.T, gate string) {
	t.Helper()
	if err := m.client.Del(t.Context(), gate).Err(); err != nil {
		t.Fatal(err)
	}
}

// wait waits at a gate for one of the places, and says whether its context does not count. The process sends no signals, so it looks.
func (m *marks) wait(ctx context.Context, key, node string, at ...string) (stubborn bool, err error) {
	for {
		gates, err := m.client.MGet(context.Background(), "gate:"+key, "gate:"+key+"@"+node).Result()
		if err != nil {
			return stubborn, err
		}
		shut := false
		for _, where := range gates {
			stubborn = stubborn || where == regardless && slices.Contains(at, regardless)
			shut = shut || slices.ContainsFunc(at, func(place string) bool { return where == place })
		}
		switch {
		case !shut:
			return stubborn, nil
		case !stubborn && ctx.Err() != nil:
			return false, context.Cause(ctx)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// counts gives how often each thing was noted.
func (m *marks) counts(ctx context.Context) (map[string]int, error) {
	all, err := m.client.HGetAll(ctx, "counts").Result()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for what, n := range all {
		if counts[what], err = strconv.Atoi(n); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// noted is one line of the log, in the order in which they happened.
type noted struct {
	at                         time.Time // to the millisecond, by the clock of this machine
	what, unit, lane, id, node string
	generation                 event.Generation
	sequence                   event.Sequence
}

func (m *marks) log(ctx context.Context) (all []noted, err error) {
	entries, err := m.client.XRange(ctx, "log", "-", "+").Result()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text := func(name string) string { s, _ := e.Values[name].(string); return s }
		n := noted{what: text("what"), unit: text("unit"), lane: text("lane"), id: text("id"), node: text("node")}
		if _, err := fmt.Sscan(text("generation")+" "+text("sequence"), &n.generation, &n.sequence); err != nil {
			return nil, fmt.Errorf("log of marks: %v: %w", e.Values, err)
		}
		var ms int64
		if _, err := fmt.Sscanf(e.ID, "%d-", &ms); err != nil {
			return nil, fmt.Errorf("log of marks: entry %s: %w", e.ID, err)
		}
		n.at = time.UnixMilli(ms)
		all = append(all, n)
	}
	return all, nil
}

// inside gives the nodes that are inside a behavior of the unit at its highest generation, by event id.
func (m *marks) inside(ctx context.Context, u event.Unit) (map[string]string, error) {
	return m.client.HGetAll(ctx, "open:"+u.String()).Result()
}

func TestMarksCountWhatIsWrong(t *testing.T) {
	t.Parallel()
	type step struct {
		leave      bool
		node       string
		generation event.Generation
		sequence   event.Sequence
	}
	in := func(g event.Generation, s event.Sequence) step { return step{node: "n1", generation: g, sequence: s} }
	out := func(g event.Generation, s event.Sequence) step {
		return step{leave: true, node: "n1", generation: g, sequence: s}
	}
	elsewhere := func(s step) step { s.node = "n2"; return s }
	server := redisserver.Run(t, redisserver.Options{})
	m := openMarks(server.Addr())
	defer m.close()
	for name, c := range map[string]struct {
		steps                                             []step
		late, overlapping, backwards, skipped, overtaking int
	}{
		"all well":                        {steps: []step{in(1, 1), out(1, 1), in(1, 2), out(1, 2)}},
		"tried again":                     {steps: []step{in(1, 1), out(1, 1), in(1, 1), out(1, 1)}},
		"killed inside, again":            {steps: []step{in(1, 1), in(2, 1), out(2, 1), in(2, 2)}},
		"killed inside after its commit":  {steps: []step{in(1, 1), in(2, 2)}},
		"frozen inside":                   {steps: []step{in(1, 1), in(2, 1), out(2, 1), in(2, 2), out(1, 1), out(2, 2)}},
		"the frozen one goes on":          {steps: []step{in(1, 1), in(2, 1), out(2, 1), out(1, 1), in(1, 2)}, late: 1},
		"two events at once":              {steps: []step{in(1, 1), in(1, 2)}, overlapping: 1},
		"two at once after a takeover":    {steps: []step{in(1, 1), in(2, 2), in(2, 3)}, overlapping: 1},
		"one that was done":               {steps: []step{in(1, 1), out(1, 1), in(1, 2), out(1, 2), in(2, 1)}, backwards: 1},
		"one that nobody entered":         {steps: []step{in(1, 1), out(1, 1), in(2, 3)}, skipped: 1},
		"leaving twice takes nothing off": {steps: []step{in(1, 1), out(1, 1), out(1, 1), in(1, 2), out(1, 1), in(1, 3)}, overlapping: 1},
		"another node, in its turn":       {steps: []step{in(1, 1), out(1, 1), elsewhere(in(2, 2))}},
		"another node, before its turn":   {steps: []step{in(1, 1), elsewhere(in(2, 1)), out(1, 1)}, overtaking: 1},
	} {
		if err := server.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.steps {
			k := mark{event.Unit{Name: "runner", Key: "a"}, s.generation, "task primary", s.sequence, fmt.Sprint("e", s.sequence), s.node}
			if s.leave {
				if err := leaveScript.Run(t.Context(), m.client, k.keys(), k.args()...).Err(); err != nil {
					t.Fatal(err)
				}
			} else if _, err := m.enter(k); err != nil && (!errors.Is(err, errLate) || c.late == 0) {
				t.Errorf("%s: enter %d at %d: %v", name, s.sequence, s.generation, err)
			}
		}
		got, err := m.counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, want := range map[string]int{"late": c.late, "overlapping": c.overlapping, "backwards": c.backwards, "skipped": c.skipped, "overtaking": c.overtaking} {
			if got[what] != want {
				t.Errorf("%s: %d %s, want %d", name, got[what], what, want)
			}
		}
		if log, err := m.log(t.Context()); err != nil || len(log) < len(c.steps) {
			t.Errorf("%s: log has %d lines, %v", name, len(log), err)
		}
	}
}
