package guarantees

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// cluster is a fleet under load: each of its nodes deposits into accounts of all clients, tasks are published for all clients, and each node, and a client, asks tills
// wherever they are.
type cluster struct {
	*fleet
	clients []string
	traffic *traffic
	edge    *node                    // the client
	killed  int                      // nodes
	still   map[string]time.Duration // for how long a node was made to stand still
}

// startCluster starts nodes that gossip, on hosts of the grid if there is one, and has them under load.
func startCluster(t *testing.T, g *grid, s settings, names ...string) *cluster {
	t.Helper()
	s.cluster, s.grid = true, g
	c := &cluster{fleet: newFleet(t, s), clients: clientsOf(24), traffic: &traffic{}, still: map[string]time.Duration{}}
	c.join(names...)
	c.startEdge(names[:2]...)
	c.traffic.start(t, c.clients)
	c.agree(names...)
	c.served(time.Now(), func(string) bool { return true })
	return c
}

// join starts nodes, and has them deposit.
func (c *cluster) join(names ...string) {
	c.t.Helper()
	c.add(names...)
	for _, name := range names {
		c.nodes[name].must(c.t, "load", loading{Clients: c.clients, Pause: time.Second}, nil)
		c.ask(c.nodes[name])
	}
	c.traffic.through(c.running()...)
}

// besides gives the nodes that run, without some.
func (c *cluster) besides(names ...string) (others []*node) {
	for _, n := range c.running() {
		if !slices.Contains(names, n.spec.Name) {
			others = append(others, n)
		}
	}
	return others
}

// agree waits until each of these nodes has all of them as members and no others, and hears by gossip that they live. Without gossip it is
// the members alone that count.
func (c *cluster) agree(names ...string) {
	c.t.Helper()
	slices.Sort(names)
	for _, name := range names {
		eventually(c.t, time.Minute, fmt.Sprint(name, " has as members ", names), func() (bool, error) {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			var k known
			err := c.nodes[name].call(ctx, "members", nil, &k)
			living := 0
			for _, state := range k.Heard {
				if state == transport.HeardAlive {
					living++
				}
			}
			return err == nil && slices.Equal(k.Members, names) && living == len(names)-1, errors.Join(err, fmt.Errorf("it knows %+v", k))
		})
	}
}

// served waits until each client has been served by both handlers after a time, on nodes that count.
func (c *cluster) served(after time.Time, counts func(node string) bool) {
	c.t.Helper()
	eventually(c.t, time.Minute, "all clients are served", func() (bool, error) {
		rows, err := c.effects()
		have := map[event.Unit]bool{}
		for _, e := range rows {
			if e.committed.After(after) && counts(e.node) {
				have[e.unit()] = true
			}
		}
		var missing []string
		for _, u := range c.units() {
			if !have[u] {
				missing = append(missing, u.String())
			}
		}
		return len(missing) == 0, errors.Join(fmt.Errorf("not so: %s", strings.Join(missing, " ")), err)
	})
}

// takes waits until a node has some of the units.
func (c *cluster) takes(name string, after time.Time) {
	c.t.Helper()
	eventually(c.t, time.Minute, name+" has a unit", func() (bool, error) {
		rows, err := c.effects()
		return slices.ContainsFunc(rows, func(e effectRow) bool { return e.node == name && e.committed.After(after) }), err
	})
}

func (c *cluster) units() (all []event.Unit) {
	for _, client := range c.clients {
		all = append(all, event.Unit{Name: runnerName, Key: client}, event.Unit{Name: tellerName, Key: client})
	}
	return all
}

func (e effectRow) unit() event.Unit { return event.Unit{Name: e.handler, Key: e.client} }

// holding is who had a unit, and at which generation.
type holding struct {
	node       string
	generation event.Generation
}

// holdings gives who had each unit from one time to another, as far as it committed anything, in order.
func (c *cluster) holdings(from, to time.Time) map[event.Unit][]holding {
	c.t.Helper()
	rows, err := c.effects()
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[event.Unit][]holding{}
	for _, e := range rows {
		h := holding{e.node, e.generation}
		if had := all[e.unit()]; !e.committed.Before(from) && e.committed.Before(to) && (len(had) == 0 || had[len(had)-1] != h) {
			all[e.unit()] = append(had, h)
		}
	}
	return all
}

// generations gives those of all units that the store knows, entities among them.
func (c *cluster) generations() map[event.Unit]event.Generation {
	c.t.Helper()
	type row struct {
		unit       event.Unit
		generation event.Generation
	}
	rows, err := selected(c.fleet, func(r pgx.CollectableRow) (x row, err error) {
		return x, r.Scan(&x.unit.Name, &x.unit.Key, &x.generation)
	}, `SELECT name, key, generation FROM keyhold_units`)
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[event.Unit]event.Generation{}
	for _, x := range rows {
		all[x.unit] = x.generation
	}
	return all
}

// deposits gives when the deposits were committed that are in the store.
func (c *cluster) deposits() []time.Time {
	c.t.Helper()
	all, err := selected(c.fleet, pgx.RowTo[time.Time], `SELECT pg_xact_commit_timestamp(xmin) AS at FROM keyhold_log WHERE stream_kind = $1 ORDER BY at`, accountCategory)
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// end has the load end, and everything judged: one line tells what was found.
func (c *cluster) end(t *testing.T) {
	t.Helper()
	c.traffic.end()
	c.edge.stop(t)
	for _, n := range c.running() {
		n.must(t, "unask", nil, nil)
		n.must(t, "unload", nil, nil)
		if r := n.report(t); len(r.Errors) > 0 || len(r.Halted) > 0 {
			t.Errorf("%s: %+v", n.spec.Name, r)
		}
	}
	j := c.settle(2*time.Minute, c.clients, c.clients)
	t.Logf("%s: KEYHOLD_SEED=%d nodes=%d units=%d %v", t.Name(), c.seed, len(c.nodes), len(c.generations()), j)
	t.Logf("%s: asks end within %v: %v", t.Name(), c.askBound(), c.asked())
}

// traffic publishes tasks, through one after the other of the nodes that it is told of. What was not acknowledged may be there or not: the store
// knows.
type traffic struct {
	work sync.WaitGroup
	stop context.CancelFunc
	mu   struct {
		sync.Mutex
		through []*node
	}
}

func (f *traffic) start(t *testing.T, clients []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	t.Cleanup(f.end)
	f.work.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if by := f.next(n); by != nil {
				call, cancel := context.WithTimeout(ctx, 2*time.Second)
				by.call(call, "publish", publication{Tasks: interleaved(n, n, clients...), Each: 6}, nil)
				cancel()
			}
			time.Sleep(400 * time.Millisecond)
		}
	})
}

func (f *traffic) next(n int) *node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.through) == 0 {
		return nil
	}
	return f.mu.through[n%len(f.mu.through)]
}

func (f *traffic) through(nodes ...*node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.through = nodes
}

func (f *traffic) end() {
	f.stop()
	f.work.Wait()
}

// moved tells how many units had more than one holding, and who they went to.
func moved(held map[event.Unit][]holding) (units int, to map[string]int) {
	to = map[string]int{}
	for _, h := range held {
		if len(h) > 1 {
			units++
			to[h[len(h)-1].node]++
		}
	}
	return units, to
}

// sharesOf counts the units by the node that had them last.
func sharesOf(held map[event.Unit][]holding) string {
	shares := map[string]int{}
	for _, h := range held {
		shares[h[len(h)-1].node]++
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		text = append(text, fmt.Sprintf("%s=%d", name, shares[name]))
	}
	return strings.Join(text, " ")
}
