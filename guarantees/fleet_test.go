package guarantees

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/netns"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// fleet is an application on several nodes, with all that they need: a database, a Redis that may fail, and one for the marks that may not.
type fleet struct {
	t        *testing.T
	random   *rand.Rand
	settings settings
	seed     uint64
	postgres *postgresserver.Server
	database string // URL for nodes, past whatever stands before the server
	redis    *redisserver.Server
	front    *proxy.Proxy // before redis; nil where nodes are on hosts
	renewals map[string]*proxy.Proxy
	hosts    map[string]*netns.Host // of nodes, where they are on hosts
	marks    *marks
	acks     string
	asks     string
	nodes    map[string]*node
	frozen   int // how often an owner may have been stopped between its last look and the behavior
}

// settings of a fleet. The zero value is made for faults: leases are short.
type settings struct {
	ttl, idle   time.Duration
	ownPostgres bool // one that may be broken
	redis       redisserver.Options
	newer       bool
	polled      bool // tasks are appended by a program that knows nothing of Keyhold
	reads       bool // nodes are of another application, which reads the tasks of this one
	crashes     int
	local       bool // one node, without a broker
	blind       bool // see rash
	hasty       bool
	cluster     bool  // gossip is as quick as it can be
	grid        *grid // nodes are on hosts of their own; nil = all on this machine
}

// newFleet prepares servers; nodes are added by [fleet.add]. Where a server's program is missing the test is skipped, or fails in CI.
func newFleet(t *testing.T, s settings) *fleet {
	t.Helper()
	s.ttl, s.idle = cmp.Or(s.ttl, 2*time.Second), cmp.Or(s.idle, 2*time.Second)
	f := &fleet{t: t, settings: s, renewals: map[string]*proxy.Proxy{}, hosts: map[string]*netns.Host{}, nodes: map[string]*node{}, acks: filepath.Join(t.TempDir(), "acks"), asks: filepath.Join(t.TempDir(), "asks")}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("KEYHOLD_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	f.seed = seed
	f.random = rand.New(rand.NewPCG(seed, 0))
	f.marks = openMarks(redisserver.Run(t, redisserver.Options{}).Socket())
	t.Cleanup(f.marks.close)
	if s.grid != nil {
		f.postgres, f.redis = s.grid.postgres, s.grid.newRedis(t, s.redis)
		f.database = onNetwork(f.postgres.Database(t), s.grid.at(postgresNet, f.postgres.Addr()))
		return f
	}
	if f.postgres = postgresserver.Shared(t); s.ownPostgres {
		f.postgres = postgresserver.Run(t, postgresserver.Options{})
	}
	f.database = f.postgres.Database(t)
	f.redis = redisserver.Run(t, s.redis)
	f.front = proxy.Run(t, f.redis.Addr())
	return f
}

// spec is what a node of the fleet is told.
func (f *fleet) spec(name string) nodeSpec {
	spec := nodeSpec{
		Name: name, Postgres: f.database, Marks: f.marks.client.Options().Addr, Acks: f.acks, Asks: f.asks,
		TTL: f.settings.ttl, Timeout: f.settings.ttl / 2, Idle: f.settings.idle, Newer: f.settings.newer, Polled: f.settings.polled, Reads: f.settings.reads, Crashes: f.settings.crashes, Blind: f.settings.blind, Hasty: f.settings.hasty,
		Debug: os.Getenv("KEYHOLD_DEBUG") != "",
	}
	switch {
	case f.settings.local:
	case f.settings.grid != nil:
		h := f.host(name)
		spec.Redis = f.settings.grid.at(redisNet, f.redis.Addr())
		spec.Gossip, spec.Peers = fmt.Sprint(h.Addr(gossipNet), ":7946"), fmt.Sprint(h.Addr(peersNet), ":7947")
	default:
		if f.renewals[name] == nil {
			f.renewals[name] = proxy.Run(f.t, f.front.Addr())
		}
		spec.Redis, spec.Renewals = f.front.Addr(), f.renewals[name].Addr()
		if f.settings.cluster {
			spec.Gossip, spec.Peers = "127.0.0.1:0", "127.0.0.1:0"
		}
	}
	return spec
}

// newNode is a node that does not run yet.
func (f *fleet) newNode(name string) *node {
	f.t.Helper()
	n := newNode(f.t, f.spec(name))
	n.host = f.hosts[name]
	return n
}

// add starts nodes, all at once, and waits until they have units: a Redis that has just been made might be one that forgot, so it grants
// nothing for as long as a lease lasts.
func (f *fleet) add(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.nodes[name] = f.newNode(name)
		if err := f.nodes[name].launch(); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := f.nodes[name].started(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, name := range names {
		eventually(f.t, f.failover(), name+" is given a unit", func() (bool, error) {
			ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
			defer cancel()
			err := f.nodes[name].call(ctx, "balance", accountOf(name, "probe"), nil)
			return err == nil, err
		})
	}
}

// two are the nodes of most tests.
func (f *fleet) two() (a, b *node) {
	f.t.Helper()
	f.add("node-1", "node-2")
	return f.nodes["node-1"], f.nodes["node-2"]
}

// running gives the nodes that run, in order of name.
func (f *fleet) running() (all []*node) {
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if n := f.nodes[name]; n.process.Alive() {
			all = append(all, n)
		}
	}
	return all
}

// any is one of the nodes that run.
func (f *fleet) any() *node {
	f.t.Helper()
	all := f.running()
	if len(all) == 0 {
		f.t.Fatal("no node runs")
	}
	return all[f.random.IntN(len(all))]
}

// publish has a node publish tasks in transactions of so many.
func (f *fleet) publish(n *node, each int, tasks ...task) {
	f.t.Helper()
	var done int
	n.must(f.t, "publish", publication{Tasks: tasks, Each: each}, &done)
	if done != len(tasks) {
		f.t.Fatalf("%d of %d tasks were published", done, len(tasks))
	}
}

// owner waits until a behavior of the unit is inside, and gives its node.
func (f *fleet) owner(u event.Unit) *node {
	f.t.Helper()
	n, _ := f.owners(u, f.failover())
	return n
}

func (f *fleet) owners(u event.Unit, within time.Duration) (n *node, id string) {
	f.t.Helper()
	eventually(f.t, within, fmt.Sprint("a behavior of ", u, " is inside"), func() (bool, error) {
		inside, err := f.marks.inside(f.t.Context(), u)
		for event, name := range inside {
			n, id = f.nodes[name], event
		}
		return len(inside) > 0, err
	})
	return n, id
}

// other is the other one of two nodes.
func (f *fleet) other(n *node) *node {
	for _, o := range f.running() {
		if o != n {
			return o
		}
	}
	f.t.Fatal("there is no other node")
	return nil
}

// failover is how long a takeover may take: what is left of the lease, and a beat, many times over on a machine that does other things.
func (f *fleet) failover() time.Duration { return f.settings.ttl + f.settings.ttl/5 + 20*time.Second }

// effectRow is one row that a behavior committed.
type effectRow struct {
	handler, client, lane, event, kind, node string
	sequence                                 event.Sequence
	number                                   int
	generation                               event.Generation
	committed                                time.Time
}

// of is the order to which the row belongs.
func (e effectRow) of() string { return e.handler + "/" + e.client + " " + e.lane }

// effects gives the rows in the order of their commits.
func (f *fleet) effects() (all []effectRow, err error) {
	return selected(f, func(r pgx.CollectableRow) (e effectRow, err error) {
		return e, r.Scan(&e.handler, &e.client, &e.lane, &e.event, &e.kind, &e.node, &e.sequence, &e.number, &e.generation, &e.committed)
	}, `SELECT handler, client, lane, event, type, node, sequence, number, generation, pg_xact_commit_timestamp(xmin) AS committed FROM effects ORDER BY committed, n`)
}

// selected asks the database, by a way that no fault of a test is on.
func selected[T any](f *fleet, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	c, err := f.postgres.Connect(ctx, databaseOf(f.database))
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// numbers gives the numbers of one handler and client, in the order of their commits.
func (f *fleet) numbers(handler, client string) (all []int, err error) {
	rows, err := f.effects()
	for _, e := range rows {
		if e.handler == handler && e.client == client {
			all = append(all, e.number)
		}
	}
	return all, err
}

// applied waits until a handler has applied so many events of a client.
func (f *fleet) applied(handler, client string, count int) {
	f.t.Helper()
	f.appliedWithin(time.Minute, handler, client, count)
}

func (f *fleet) appliedWithin(within time.Duration, handler, client string, count int) {
	f.t.Helper()
	have := 0
	eventually(f.t, within, fmt.Sprintf("%d events of %s are applied", count, client), func() (bool, error) {
		all, err := f.numbers(handler, client)
		have = len(all)
		return have >= count, errors.Join(fmt.Errorf("there are %d", have), err)
	})
}

// lanes gives what each order of effects must end with, by the store: its clients are named.
func (f *fleet) lanes(handler, category string, clients ...string) map[string]event.Sequence {
	f.t.Helper()
	var refs []event.LaneRef
	for _, client := range clients {
		refs = append(refs, event.LaneRef{Category: category, Key: client}, event.LaneRef{Category: category, Key: client, Lane: event.Backfill})
	}
	var last []event.Sequence
	f.any().must(f.t, "tails", refs, &last)
	tails := map[string]event.Sequence{}
	for i, ref := range refs {
		tails[handler+"/"+ref.Key+" "+ref.Lane.String()] = last[i]
	}
	return tails
}

// drained waits until there is an effect for each event.
func (f *fleet) drained(within time.Duration, tails map[string]event.Sequence) {
	f.t.Helper()
	eventually(f.t, within, "an effect for each event", func() (bool, error) {
		rows, err := f.effects()
		have := map[string]map[event.Sequence]bool{}
		for _, e := range rows {
			if have[e.of()] == nil {
				have[e.of()] = map[event.Sequence]bool{}
			}
			have[e.of()][e.sequence] = true
		}
		var missing []string
		for lane, tail := range tails {
			if lacks := int(tail) - len(have[lane]); lacks > 0 {
				missing = append(missing, fmt.Sprintf("%s lacks %d of %d", lane, lacks, tail))
			}
		}
		slices.Sort(missing)
		return len(missing) == 0, errors.Join(fmt.Errorf("%d orders: %s", len(missing), strings.Join(missing[:min(3, len(missing))], ", ")), err)
	})
}

// judgement is what the oracle found. Everything but Effects must be 0; Late may be as often as owners were stopped.
type judgement struct {
	verdict
	Late, Backwards, Skipped int
	Regressed                int // commits at a generation below that of an earlier one
}

func (j judgement) String() string {
	return fmt.Sprintf("%v regressed=%d late=%d backwards=%d skipped=%d", j.verdict, j.Regressed, j.Late, j.Backwards, j.Skipped)
}

// judge compares the effects, the marks and what was acknowledged with what the store holds.
func (f *fleet) judge(tails map[string]event.Sequence) judgement {
	f.t.Helper()
	rows, err := f.effects()
	if err != nil {
		f.t.Fatal(err)
	}
	var effects []effect
	for _, e := range rows {
		effects = append(effects, effect{e.of(), e.sequence})
	}
	counts, err := f.marks.counts(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	j := judgement{judgeEffects(tails, effects), counts["late"], counts["backwards"], counts["skipped"], regressed(rows)}
	j.Overlapping = counts["overlapping"]
	for id, acked := range f.acknowledged() {
		var stands int
		eventually(f.t, time.Minute, id+" tells where it stands", func() (bool, error) { // once the node that has it has put it away
			err := f.any().call(f.t.Context(), "balance", id, &stands)
			return err == nil, err
		})
		j.Unacknowledged += max(0, acked-stands)
	}
	f.t.Logf("frozen=%d acknowledged=%d %v", f.frozen, sum(f.acknowledged()), j)
	clean := j
	clean.Late, clean.Backwards, clean.Skipped = 0, 0, 0
	if clean != (judgement{verdict: verdict{Effects: j.Effects}}) || j.Late > f.frozen || j.Backwards+j.Skipped > 0 || j.Effects == 0 {
		f.t.Errorf("a guarantee is broken: %v, of which late may be %d", j, f.frozen)
		f.explain()
	}
	return j
}

// explain shows the first marks that should not be there, and what was noted of their units just before.
func (f *fleet) explain() {
	f.t.Helper()
	log, err := f.marks.log(f.t.Context())
	if err != nil {
		f.t.Error(err)
	}
	shown := 0
	for i, n := range log {
		if n.what == "enter" || strings.HasPrefix(n.what, "leave") || shown == 3 {
			continue
		}
		shown++
		var of []string
		for _, o := range log[:i+1] {
			if o.unit == n.unit && o.lane == n.lane {
				of = append(of, fmt.Sprintf("%s %d at %d by %s", o.what, o.sequence, o.generation, o.node))
			}
		}
		f.t.Logf("%s %s: %s", n.unit, n.lane, strings.Join(of[max(0, len(of)-8):], "; "))
	}
}

// acknowledged gives the highest deposit into each account that a node said was made.
func (f *fleet) acknowledged() map[string]int {
	f.t.Helper()
	text, err := os.ReadFile(f.acks)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	acked := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if id, n, ok := parseAck(strings.TrimSpace(line)); ok {
			acked[id] = max(acked[id], n)
		}
	}
	return acked
}

// settle drains and judges: the end of most tests. The clients of tasks and of accounts are named.
func (f *fleet) settle(within time.Duration, tasks, accounts []string) judgement {
	f.t.Helper()
	tails := f.lanes(runnerName, taskCategory, tasks...)
	maps.Copy(tails, f.lanes(tellerName, accountCategory, accounts...))
	f.drained(within, tails)
	if acked := sum(f.acknowledged()); len(accounts) > 0 && acked < len(accounts) {
		f.t.Errorf("%d deposits were acknowledged, which shows little", acked)
	}
	for _, n := range f.running() {
		if r := n.report(f.t); len(r.Unanswered) > 0 {
			f.t.Logf("%s: not answered: %v", n.spec.Name, kinds(r.Unanswered))
		}
	}
	return f.judge(tails)
}

// kinds counts errors by their first line, without the entity's name.
func kinds(errs map[string]int) map[string]int {
	all := map[string]int{}
	for text, n := range errs {
		line, _, _ := strings.Cut(text, "\n")
		if before, _, named := strings.Cut(line, " "+accountCategory+"/"); named {
			line = before
		}
		all[line] += n
	}
	return all
}

func clientsOf(n int) (all []string) {
	for c := range n {
		all = append(all, clientName(c))
	}
	return all
}
