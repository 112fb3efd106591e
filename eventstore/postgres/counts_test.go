package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// exact compares what is counted with what there is.
func (d *desk) exact(what string) {
	d.Helper()
	read := func(query string) []string {
		rows, err := d.session().Query(d.Context(), query)
		d.must(err)
		defer rows.Close()
		var all []string
		for rows.Next() {
			var category, name string
			var lanes, total int64
			d.must(rows.Scan(&category, &name, &lanes, &total))
			if lanes > 0 || total > 0 {
				all = append(all, fmt.Sprint(category, "/", name, " ", lanes, " ", total))
			}
		}
		d.must(rows.Err())
		return all
	}
	there := read(`SELECT category, '' AS name, count(*) FILTER (WHERE last > 0), sum(last)::bigint FROM keyhold_lanes GROUP BY category
		UNION ALL SELECT n.category, c.name, 0, sum(c.sequence)::bigint FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane GROUP BY n.category, c.name ORDER BY 1, 2`)
	counted := read(`SELECT category, name, sum(lanes)::bigint, sum(total)::bigint FROM keyhold_counts GROUP BY category, name ORDER BY category, name`)
	if diff := cmp.Diff(there, counted); diff != "" {
		d.Errorf("%s (-there +counted):\n%s", what, diff)
	}
}

func advancing(key string, from, to event.Sequence) eventstore.Changes {
	return eventstore.Changes{
		Fence:   eventstore.Fence{Unit: event.Unit{Name: "shipping", Key: key}},
		Advance: []eventstore.Advance{{Lane: event.LaneRef{Category: "order", Key: key}, From: from, To: to}},
	}
}

func TestCountsAreExactWhoeverWritesAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := range event.Sequence(5) {
				key := fmt.Sprint("k", (i+int(n))%3) // which others write, too
				if _, err := d.store.Begin("writer").Commit(t.Context(), events(key, 2)); err != nil {
					t.Error(err)
				}
				mine := fmt.Sprint("mine", i)
				c := events(mine, 1)
				if _, err := d.store.Begin("writer").Commit(t.Context(), c); err != nil {
					t.Error(err)
				}
				if _, err := d.store.Begin("handler").Commit(t.Context(), advancing(mine, n, n+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	d.exact("after commits")
	d.commit(halted("k0"))
	d.must(d.act(eventstore.Act{Kind: eventstore.ActSkip, Unit: event.Unit{Name: "shipping", Key: "k0"},
		Seen: event.Position{Lane: event.LaneRef{Category: "order", Key: "k0"}, Sequence: 1}, Actor: "ann", Reason: "seen"}))
	d.exact("after a skip")
	if _, err := d.store.Begin("handler").Commit(t.Context(), advancing("k0", 7, 8)); err == nil {
		t.Fatal("a checkpoint that is not there moved")
	}
	d.exact("after a commit that was refused")
	d.stop()
	d.must(d.act(eventstore.Act{Kind: eventstore.ActRename, Unit: event.Unit{Name: "shipping"}, To: "delivery", Actor: "ann", Reason: "better"}))
	d.exact("after a rename")
	d.must(d.act(eventstore.Act{Kind: eventstore.ActReset, Unit: event.Unit{Name: "delivery"}, Start: &eventstore.Start{Now: true}, Actor: "ann", Reason: "again"}))
	d.exact("after a reset")
	d.must(d.act(removing("delivery")))
	d.exact("after a removal")
}

// Another session has counted and not committed, as one that is slow or frozen may.
func TestNobodyWaitsForTheCountsOfAnother(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	var shard int // of the test's own session, which none of the store's is to have
	for {
		d.must(d.raw.QueryRow(t.Context(), `SELECT pg_backend_pid() & 255`).Scan(&shard))
		var same int
		d.value(&same, `SELECT count(*) FROM pg_stat_activity WHERE pid & 255 = $1 AND pid <> $2`, shard, int(d.raw.PgConn().PID()))
		if same == 0 {
			break
		}
		d.raw = d.session()
	}
	release := d.hold(`SELECT 1`)
	held := counts{}
	held.drawn("order", 1, true)
	held.moved("shipping", "order", 1)
	query, args := held.statement()
	if _, err := d.raw.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := advancing("a", 0, 1)
	c.Publish = events("a", 1).Publish
	if _, err := d.store.Begin("owner").Commit(ctx, c); err != nil {
		t.Errorf("a commit beside: %v", err)
	}
	release()
	var shards int
	if d.value(&shards, `SELECT count(DISTINCT shard) FROM keyhold_counts WHERE category = 'order' AND name = ''`); shards < 2 {
		t.Errorf("%d shards", shards)
	}
	o, err := d.at.Overview(t.Context())
	d.must(err)
	if c := o.Categories[0]; c.Partitions != 2 || c.Records != 3 || o.Handlers[0].Lag != 1 {
		t.Errorf("the sums are not those of all shards: %+v, %+v", c, o.Handlers[0])
	}
}

func TestCountsAreWrittenInOneOrder(t *testing.T) {
	t.Parallel()
	var c counts
	c.moved("shipping", "order", 2)
	c.drawn("payment", 1, false)
	c.drawn("order", 3, true)
	c.placed("billing", "order", 4)
	c.moved("shipping", "order", 5)
	_, args := c.statement()
	if diff := cmp.Diff([]any{[]string{"order", "order", "order", "payment"}, []string{"", "billing", "shipping", ""}, []int64{1, 0, 0, 0}, []int64{3, 4, 7, 1}}, args[:4]); diff != "" {
		t.Error(diff)
	}
	for i, moved := range args[4].([]int64) {
		if (moved > 0) != (i == 2) {
			t.Errorf("row %d moved at %d", i, moved)
		}
	}
	c.forget("shipping")
	if len(c) != 3 {
		t.Errorf("forgot %+v", c)
	}
}

// The lanes are locked, so that whoever looks at one waits.
func TestOverviewLooksAtNoLane(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 2))
	d.commit(events("b", 1))
	d.commit(halted("b"))
	d.commit(parked(1, "poison"))
	release := d.hold(`LOCK TABLE keyhold_lanes`)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o, err := d.at.Overview(ctx)
	if err != nil || len(o.Handlers) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if h := o.Handlers[0]; h.Lag != 2 || h.Halted != 1 || h.Parking != 1 {
		t.Errorf("%+v", h)
	}
}
