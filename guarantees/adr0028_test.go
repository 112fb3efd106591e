package guarantees

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/inline"
)

const clientA, clientB = "client-A", "client-B"

// TestADR0028 shows each guarantee of sequential processing by key on two nodes, which share a PostgreSQL and a Redis.
func TestADR0028(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"strict per-key order", strictOrder},
		{"no concurrent entry for different same-key events", noConcurrentEntry},
		{"cross-key parallelism preserved", crossKeyParallelism},
		{"halt on poison is partition-scoped", haltIsScoped},
		{"crash failover: no loss, order preserved", crashFailover},
		{"stall failover: the fence holds", stallFailover},
		{"registration validation fails loud", registrationIsValidated},
		{"capability gating fails loud", capabilitiesAreGated},
		{"one partition key per category", oneKeyPerCategory},
		{"unsafe key values fail loud at record creation", unsafeKeysAreRefused},
	} {
		t.Run(c.name, c.test)
	}
}

// strictOrder has two nodes publish and two apply, while relays send what comes later before what comes earlier, and Redis loses entries of which
// nobody has read any.
func strictOrder(t *testing.T) {
	const count, each = 60, 5
	f := newFleet(t, settings{hasty: true})
	nodes := []*node{nil, nil}
	nodes[0], nodes[1] = f.two()
	clients := []string{clientA, clientB}
	for _, client := range clients {
		f.marks.shut(t, gate(client, nil), before) // nothing is trimmed before it is looked at
	}
	relayed := func(client string, last int) (got []int) {
		eventually(t, time.Minute, fmt.Sprintf("number %d of %s is relayed", last, client), func() (_ bool, err error) {
			got, err = f.stream(client)
			return len(got) > 0 && got[len(got)-1] >= last, err
		})
		return got
	}
	for n := 1; n <= count; n += each { // each from another node than the one before it
		f.publish(nodes[n/each%2], 0, interleaved(n, n+each-1, clients...)...)
		if n == 1 { // what is ahead of a stream that has begun is a gap
			relayed(clientA, each)
			relayed(clientB, each)
		}
	}
	for _, client := range clients {
		got := relayed(client, count)
		if diff := cmp.Diff(upTo(1, count), got); diff != "" {
			t.Errorf("%s: streamed otherwise than published (-published +streamed):\n%s", client, diff)
		}
	}
	if gaps := nodes[0].report(t).Gaps + nodes[1].report(t).Gaps; gaps == 0 {
		t.Error("nothing was sent before its turn, which shows nothing")
	}
	if gone, err := f.redis.Do(t.Context(), "XDEL", streamOf(clientB), "41-0", "42-0", "43-0", "50-0"); gone != int64(4) {
		t.Fatalf("%v entries are gone: %v", gone, err)
	}
	for _, client := range clients {
		f.marks.open(t, gate(client, nil))
	}
	for _, client := range clients {
		var got []int
		eventually(t, time.Minute, fmt.Sprintf("number %d of %s is applied", count, client), func() (_ bool, err error) {
			got, err = f.numbers(runnerName, client)
			return slices.Contains(got, count), errors.Join(fmt.Errorf("there are %v", got), err)
		})
		if diff := cmp.Diff(upTo(1, count), got); diff != "" {
			t.Errorf("%s: applied otherwise than published (-published +applied):\n%s", client, diff)
		}
	}
	f.settle(time.Minute, clients, nil)
}

func streamOf(client string) string { return taskCategory + ":" + client }

// stream gives the sequences of the tasks of a client that Redis has.
func (f *fleet) stream(client string) (all []int, err error) {
	answer, err := f.redis.Do(f.t.Context(), "XRANGE", streamOf(client), "-", "+")
	if err != nil {
		return nil, err
	}
	for _, entry := range answer.([]any) {
		n, err := strconv.Atoi(strings.TrimSuffix(entry.([]any)[0].(string), "-0"))
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// noConcurrentEntry has two nodes go for the same keys without looking who has them, while events of these are in hand.
func noConcurrentEntry(t *testing.T) {
	const count = 40
	f := newFleet(t, settings{ttl: 6 * time.Second, idle: 20 * time.Millisecond, blind: true}) // no lease lapses, and keys go from node to node
	a, b := f.two()
	clients := clientsOf(8)
	for _, client := range clients[:4] {
		f.contest(client)
	}
	for n := 2; n <= count; n += 3 {
		done := make(chan error)
		for _, from := range []*node{a, b} { // at the same time
			go func() {
				done <- from.call(t.Context(), "publish", publication{Tasks: interleaved(n, n+2, clients...), Each: 5}, nil)
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	f.settle(time.Minute, clients, nil)
	log, err := f.marks.log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entered := map[string]int{}
	for _, n := range log {
		switch n.what {
		case "enter":
			entered[n.node]++
		case "overtaking":
			t.Errorf("%s entered %s while the other node was inside", n.node, n.unit)
		}
	}
	if len(entered) != 2 {
		t.Errorf("the behaviors were all on one node, which shows nothing: %v", entered)
	}
	t.Logf("behaviors by node: %v", entered)
}

// contest holds one node inside the first event of a client until the other has gone for it, and was refused.
func (f *fleet) contest(client string) {
	f.t.Helper()
	f.marks.shut(f.t, gate(client, nil), before)
	f.publish(f.any(), 0, tasks(client, 1, 1)...)
	other := f.other(f.owner(runnerOf(client)))
	eventually(f.t, time.Minute, other.spec.Name+" goes for "+client, func() (bool, error) {
		if slices.Contains(other.report(f.t).Refused, runnerOf(client).String()) {
			return true, nil
		}
		counts, err := f.marks.counts(f.t.Context())
		return counts["overtaking"] > 0, err
	})
	f.marks.open(f.t, gate(client, nil))
	f.applied(runnerName, client, 1)
}

func crossKeyParallelism(t *testing.T) {
	f := newFleet(t, settings{})
	a, _ := f.two()
	clients := []string{clientA, clientB, "client-C"} // on two nodes: two of them are on one
	for _, client := range clients {
		f.marks.shut(t, gate(client, nil), before)
	}
	f.publish(a, 0, interleaved(1, 3, clients...)...)
	var windows []map[string]string
	eventually(t, time.Minute, "all keys are in their behavior at once", func() (bool, error) {
		windows = nil
		for _, client := range clients {
			inside, err := f.marks.inside(t.Context(), runnerOf(client))
			if err != nil || len(inside) != 1 {
				return false, err
			}
			windows = append(windows, inside)
		}
		return true, nil
	})
	t.Logf("inside at once: %v", windows)
	for _, client := range clients {
		f.marks.open(t, gate(client, nil))
	}
	f.settle(time.Minute, clients, nil)
}

func haltIsScoped(t *testing.T) {
	f := newFleet(t, settings{})
	a, b := f.two()
	all := interleaved(1, 6, clientA, clientB)
	i := slices.IndexFunc(all, func(k task) bool { return k == task{Client: clientA, Number: 3} })
	all[i].Poison = true
	f.publish(a, 1, all...)
	f.applied(runnerName, clientB, 6)
	var unit admin.Unit
	eventually(t, time.Minute, "the key is halted", func() (bool, error) {
		err := b.call(t.Context(), "unit", runnerOf(clientA), &unit)
		return unit.Halt != nil, err
	})
	f.publish(b, 1, interleaved(7, 12, clientB)...) // other keys flow on, from any node
	f.publish(b, 1, interleaved(7, 7, clientA)...)
	f.applied(runnerName, clientB, 12)
	b.must(t, "unit", runnerOf(clientA), &unit)
	got, err := f.numbers(runnerName, clientA)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2}, got); diff != "" || unit.Halt == nil || unit.Halt.At.Sequence != 3 || unit.Dead != 0 {
		t.Errorf("the halted key: applied (-want +got) %s, halt %+v, %d dead letters, want a halt before 3 and none", diff, unit.Halt, unit.Dead)
	}
	// A person passes over it, at a node that need not be the one which halted it.
	for _, n := range []*node{a, b} {
		err := n.call(t.Context(), "act", admin.ActRequest{Kind: eventstore.ActSkip, Handler: runnerName, Key: clientA, Actor: "test", Reason: "cannot be done"}, nil)
		if n == a && err != nil {
			t.Fatal(err)
		}
		if n == b && err == nil {
			t.Error("what was skipped could be skipped again: the next event would be lost")
		}
	}
	f.applied(runnerName, clientA, 6)
	if got, err = f.numbers(runnerName, clientA); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 4, 5, 6, 7}, got); diff != "" {
		t.Errorf("after the skip (-want +got): %s", diff)
	}
	counts, err := f.marks.counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counts["late"]+counts["overlapping"]+counts["backwards"]+counts["skipped"] != 0 {
		t.Errorf("marks: %v", counts)
	}
}

func crashFailover(t *testing.T) {
	for _, where := range []string{before, inside} {
		t.Run("killed "+where+" its transaction", func(t *testing.T) {
			const count = 20
			f := newFleet(t, settings{})
			f.two()
			f.publish(f.any(), 1, interleaved(1, 5, clientA, clientB)...)
			f.applied(runnerName, clientA, 5)
			f.marks.shut(t, gate(clientA, nil), where)
			f.publish(f.any(), 1, interleaved(6, count, clientA, clientB)...)
			owner := f.owner(runnerOf(clientA))
			successor := f.other(owner)
			owner.kill(t)
			began := time.Now()
			f.marks.open(t, gate(clientA, nil))
			f.applied(runnerName, clientA, 6)
			f.tookOver(time.Since(began))
			f.applied(runnerName, clientA, count)
			got, err := f.numbers(runnerName, clientA)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(upTo(1, count), got); diff != "" {
				t.Errorf("across the crash (-published +applied):\n%s", diff)
			}
			f.settle(time.Minute, []string{clientA, clientB}, nil)
			rows, err := f.effects()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range rows {
				if e.client == clientA && e.number > 5 && e.node != successor.spec.Name {
					t.Errorf("number %d was applied by %s", e.number, e.node)
				}
			}
		})
	}
}

// stallFailover stops the owner of a key in the middle of an event until another node has the key, and lets it go on then: the whole
// process, or its renewals alone, which leaves a stale owner that is alive and believes in what it does.
func stallFailover(t *testing.T) {
	const count = 12
	for _, c := range []struct {
		name      string
		where     string
		stop, end func(f *fleet, t *testing.T, owner *node)
	}{
		{"process frozen before its transaction", before, (*fleet).freezeOwner, (*fleet).thawOwner},
		{"process frozen inside its transaction", inside, (*fleet).freezeOwner, (*fleet).thawOwner},
		{"renewals alone", regardless, (*fleet).loseRenewals, (*fleet).findRenewals},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, settings{})
			f.two()
			f.publish(f.any(), 1, tasks(clientA, 1, 3)...)
			f.applied(runnerName, clientA, 3)
			f.marks.shut(t, gate(clientA, nil), c.where)
			f.publish(f.any(), 1, tasks(clientA, 4, count)...)
			owner := f.owner(runnerOf(clientA))
			f.marks.shut(t, gate(clientA, owner), c.where) // it stays where it is, and its successor need not wait
			f.marks.open(t, gate(clientA, nil))

			c.stop(f, t, owner)
			began := time.Now()
			f.applied(runnerName, clientA, 4)
			f.tookOver(time.Since(began))
			f.applied(runnerName, clientA, count)
			f.marks.open(t, gate(clientA, owner))
			c.end(f, t, owner)
			eventually(t, time.Minute, "the stale owner has left its event", func() (bool, error) {
				counts, err := f.marks.counts(t.Context())
				return counts["leave, overtaken"] > 0, err
			})
			f.publish(owner, 1, tasks(clientA, count+1, 2*count)...) // it is of use again
			f.applied(runnerName, clientA, 2*count)
			got, err := f.numbers(runnerName, clientA)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(upTo(1, 2*count), got); diff != "" {
				t.Errorf("across the stall (-published +applied):\n%s", diff)
			}
			f.settle(time.Minute, []string{clientA}, nil)
			rows, err := f.effects()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range rows {
				if 4 <= e.number && e.number <= count && e.node == owner.spec.Name {
					t.Errorf("the stale owner committed number %d", e.number)
				}
			}
		})
	}
	t.Run("a lease that is gone, and an owner that does not know", staleCommit)
}

// staleCommit has Redis lose a lease of which the owner learns nothing, and the successor wait in the event that the owner commits: checkpoint,
// state and deadline are as the owner expects them, so nothing but the generation in the store tells that it is stale.
func staleCommit(t *testing.T) {
	const count = 12
	f := newFleet(t, settings{ttl: 15 * time.Second})
	f.two()
	f.publish(f.any(), 1, tasks(clientA, 1, 3)...)
	f.applied(runnerName, clientA, 3)
	f.marks.shut(t, gate(clientA, nil), before)
	f.publish(f.any(), 1, tasks(clientA, 4, count)...)
	unit := runnerOf(clientA)
	owner := f.owner(unit)
	successor := f.other(owner)
	for _, n := range []*node{owner, successor} {
		f.marks.shut(t, gate(clientA, n), before)
	}
	f.marks.open(t, gate(clientA, nil))

	f.loseRenewals(t, owner)
	if n, err := f.redis.Del(t.Context(), unit.Name+":"+unit.Key+":__lease__"); n != 1 || err != nil {
		t.Fatalf("%d leases are gone: %v", n, err)
	}
	eventually(t, time.Minute, "the other node is inside", func() (bool, error) {
		inside, err := f.marks.inside(t.Context(), unit)
		return slices.Contains(slices.Collect(maps.Values(inside)), successor.spec.Name), err
	})
	log, err := f.marks.log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var stale event.Generation // of the owner
	for _, n := range log {
		if n.node == owner.spec.Name && n.sequence == 4 {
			stale = n.generation
		}
	}
	committed := func() (numbers []int) {
		rows, err := f.effects()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range rows {
			if e.number >= 4 && e.generation == stale {
				numbers = append(numbers, e.number)
			}
		}
		return numbers
	}
	f.marks.open(t, gate(clientA, owner))
	eventually(t, time.Minute, "the stale owner has tried to commit", func() (bool, error) {
		return slices.Contains(owner.report(t).Lost, unit.String()) || len(committed()) > 0, nil
	})
	f.marks.open(t, gate(clientA, successor))
	f.findRenewals(t, owner)
	f.applied(runnerName, clientA, count)
	if numbers := committed(); len(numbers) > 0 {
		t.Errorf("the stale owner, at generation %d, committed the numbers %v", stale, numbers)
	}
	f.settle(time.Minute, []string{clientA}, nil)
}

// tookOver judges how long nobody had a key: the rest of a lease and a beat. The machine may be busy with other things.
func (f *fleet) tookOver(after time.Duration) {
	f.t.Helper()
	f.t.Logf("failover took %v, with leases of %v", after, f.settings.ttl)
	if most := 3 * f.settings.ttl; after > most {
		f.t.Errorf("failover took %v, want at most %v", after, most)
	}
}

func (f *fleet) freezeOwner(t *testing.T, owner *node) { f.frozen++; owner.freeze(t) }
func (f *fleet) thawOwner(t *testing.T, owner *node)   { owner.thaw(t) }

func (f *fleet) loseRenewals(_ *testing.T, owner *node) {
	f.renewals[owner.spec.Name].Blackhole(proxy.Both)
}

func (f *fleet) findRenewals(_ *testing.T, owner *node) { f.renewals[owner.spec.Name].Pass() }

// refusedStart has an application refuse to start, and gives what it said.
func refusedStart(t *testing.T, store eventstore.Store, by transport.Transport, declarations ...keyhold.Declaration) string {
	t.Helper()
	app := keyhold.New(keyhold.Config{Name: "bank", Store: store, Transport: by, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	app.Register(declarations...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := app.Start(ctx)
	if err == nil {
		app.Stop(ctx)
		t.Fatal("the application started, want it refused")
	}
	return err.Error()
}

// mentions fails unless a text has all of these.
func mentions(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not mention %q", text, part)
		}
	}
}

func sequentialBy[E any](name, field string) keyhold.Handler[worker] {
	return keyhold.Handler[worker]{
		Name: name, Categories: []string{taskCategory}, SequentialBy: field, StartFrom: keyhold.Oldest,
		New: func(string) worker { return worker{} },
		On:  keyhold.Behavior[worker]{keyhold.On(func(worker, keyhold.Context, E) error { return nil })},
	}
}

func taskCategoryOf[E any](key string) keyhold.Category {
	return keyhold.Category{Name: taskCategory, Key: key, Events: []keyhold.EventType{keyhold.EventOf[E]()}}
}

func registrationIsValidated(t *testing.T) {
	f := newFleet(t, settings{})
	spec := f.spec("node-1")
	said := refusedStart(t, spec.store(), spec.transport(), taskCategoryOf[taskWithoutClient](""), sequentialBy[taskWithoutClient]("runner", "client_id"))
	mentions(t, said, "client_id", "taskWithoutClient", "runner")
}

// shared is a transport whose groups share the messages of a category among all nodes, whatever their keys.
type shared struct{ *rash }

func (s shared) Capabilities() transport.Capabilities {
	return s.rash.Capabilities() &^ transport.Partitioning &^ transport.Inline
}

func capabilitiesAreGated(t *testing.T) {
	f := newFleet(t, settings{})
	spec := f.spec("node-1")
	said := refusedStart(t, spec.store(), shared{spec.transport().(*rash)}, taskCategoryOf[taskAdded](""), sequentialBy[taskAdded]("runner", "client_id"))
	mentions(t, said, "runner", "partitioning", "client_id")

	var got []int
	app := keyhold.New(keyhold.Config{Name: "bank", Store: memory.Open(), Transport: inline.New(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	h := sequentialBy[taskAdded]("runner", "client_id")
	h.On = keyhold.Behavior[worker]{keyhold.On(func(_ worker, _ keyhold.Context, e taskAdded) error { got = append(got, e.Number); return nil })}
	app.Register(taskCategoryOf[taskAdded](""), h)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer app.Stop(context.Background())
	for _, k := range tasks(clientA, 1, 10) {
		if err := keyhold.Publish(t.Context(), app, k.event()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(upTo(1, 10), got); diff != "" {
		t.Errorf("inline (-published +applied): %s", diff)
	}
}

func oneKeyPerCategory(t *testing.T) {
	f := newFleet(t, settings{})
	spec := f.spec("node-1")
	said := refusedStart(t, spec.store(), spec.transport(), taskCategoryOf[taskAdded](""), sequentialBy[taskAdded]("runner", "client_id"), sequentialBy[taskAdded]("counter", "number"))
	mentions(t, said, "runner", "counter", "client_id", "number")

	// The other program is a node that runs.
	f.add("node-1")
	f.publish(f.any(), 0, tasks(clientA, 1, 1)...)
	f.applied(runnerName, clientA, 1)
	other := f.spec("node-2")
	said = refusedStart(t, other.store(), other.transport(), account, taskCategoryOf[taskAdded]("number"), sequentialBy[taskAdded]("counter", "number"))
	mentions(t, said, taskCategory, "client_id", "number")
	f.publish(f.any(), 0, tasks(clientA, 2, 2)...) // the one that runs is not hurt
	f.settle(time.Minute, []string{clientA}, nil)
}

func unsafeKeysAreRefused(t *testing.T) {
	f := newFleet(t, settings{})
	a, _ := f.two()
	for _, key := range []string{"", "client:7", "dlq", "backfill", "__partitions__", "__anything__", "a{b}", "line\nbreak", strings.Repeat("x", 256)} {
		err := a.call(t.Context(), "publish", publication{Key: &key}, nil)
		if err == nil {
			t.Errorf("an event with the key %q was taken", key)
			continue
		}
		if _, refused := err.(*refusal); !refused {
			t.Fatal(err)
		}
	}
	safe := event.LaneRef{Category: taskCategory, Key: "safe"}
	var tails []event.Sequence
	a.must(t, "tails", []event.LaneRef{safe}, &tails)
	rows, err := f.effects()
	if err != nil {
		t.Fatal(err)
	}
	if tails[0] != 0 || len(rows) != 0 {
		t.Errorf("refused units of work left %d events and %d rows behind", tails[0], len(rows))
	}
	key := "well"
	if err := a.call(t.Context(), "publish", publication{Key: &key}, nil); err != nil {
		t.Errorf("a key that is well was refused: %v", err) // so it was the key
	}
	f.applied("caller", "unsafe", 1)
	f.applied(runnerName, key, 1)
	if names, err := f.redis.Keys(t.Context(), "*"); err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, fmt.Sprint(taskCategory, ":client")) }) {
		t.Errorf("streams of refused keys: %v, %v", names, err)
	}
}
