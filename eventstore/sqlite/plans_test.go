package sqlite

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// What an operator asks for begins at the right place of an index: no query goes through all lanes, records or checkpoints. The readers
// keep every query that was asked.
func TestNoQueryOfAnOperatorGoesThroughAllLanesRecordsOrCheckpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	b.mustCommit(publish("e-1"))
	b.mustCommit(halted(shipping))
	ctx, s := t.Context(), b.store
	f := eventstore.Filter{Handler: "shipping", Key: "a", Type: "t", Reason: "r", EventID: "e", From: time.UnixMilli(1), Until: time.UnixMilli(2)}
	var errs []error
	note := func(_ any, err error) { errs = append(errs, err) }
	for range 2 { // a snapshot leaves it for later to prepare what it asks
		note(s.Overview(ctx))
		note(s.LastAct(ctx))
		note(s.ActsAfter(ctx, 1, 10))
		note(s.UnitState(ctx, shipping))
		note(s.DueUnits(ctx, shipping, 10))
		note(s.DueAsides(ctx, shipping, 10))
		note(s.ListParked(ctx, shipping, 0, 10))
		note(s.Recover(ctx, []eventstore.Ask{{Unit: shipping, Lanes: []event.LaneRef{{Category: "order", Key: "a"}}}}))
		note(s.ListDead(ctx, "shipping", event.Position{}, 10))
		for _, name := range []string{"", "shipping"} {
			for _, after := range []event.Unit{{}, {Name: "shipping", Key: "a"}} {
				note(s.ListHalts(ctx, name, after, 10))
				note(s.ListParking(ctx, name, after, 10))
				note(s.ListPauses(ctx, name, after, 10))
			}
			note(s.ListActs(ctx, eventstore.ActQuery{Name: name, Key: name, Before: 9, Limit: 10}))
		}
		for _, status := range []eventstore.Status{"", eventstore.StatusDone, eventstore.StatusBehind, eventstore.StatusTrying, eventstore.StatusHalted, eventstore.StatusParking, eventstore.StatusPaused} {
			note(s.ListPartitions(ctx, eventstore.PartitionQuery{Status: status, Limit: 10}))
		}
		for _, kind := range []eventstore.JobKind{eventstore.JobReplay, eventstore.JobPurge, eventstore.JobRetry} {
			for _, f := range []eventstore.Filter{{Handler: "shipping"}, f} {
				_, _, err := s.CountJob(ctx, kind, f)
				errs = append(errs, err)
			}
		}
		note(s.ListJobs(ctx, 9, true, 10))
	}
	for _, err := range errs {
		b.must(err)
	}
	scan := regexp.MustCompile(`SCAN (n|l|c|keyhold_lanes|keyhold_log|keyhold_checkpoints)( |$)`)
	queries := 0
	s.opened.Load().readers.statements.Range(func(query, _ any) bool {
		queries++
		for _, step := range b.plan(query.(string)) {
			if scan.MatchString(step) {
				t.Errorf("%s\n  in the plan of\n%s", step, query)
			}
		}
		return true
	})
	if queries < 40 {
		t.Errorf("only %d queries were seen", queries)
	}
	if !scan.MatchString(strings.Join(b.plan(`SELECT * FROM keyhold_lanes n`), "\n")) {
		t.Error("a scan is not recognised")
	}
}

// plan gives the steps of the plan of a query.
func (b *bundle) plan(query string) (steps []string) {
	b.Helper()
	args := make([]any, 40)
	rows, err := b.store.opened.Load().readers.db.QueryContext(b.Context(), `EXPLAIN QUERY PLAN `+query, args...)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		b.must(rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	b.must(rows.Err())
	return steps
}
