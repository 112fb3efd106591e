package command

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// withProjections adds read models to a shop: sales is halted while a second build of it is made, stock is up to date, prices left the program.
func withProjections(ctx context.Context, path string) error {
	store := sqlite.Open(path)
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "shop@test"}); err != nil {
		return err
	}
	declare := func(names ...string) error {
		var all []eventstore.ProjectionDeclared
		for _, name := range names {
			all = append(all, eventstore.ProjectionDeclared{Name: name, Version: 1, Categories: []string{"order"}})
		}
		_, err := store.DeclareProjections(ctx, all)
		return err
	}
	step := func(s eventstore.ProjectionStep) error {
		s.Time = ago(3 * time.Minute)
		_, err := store.Begin("test").Commit(ctx, eventstore.Changes{Projection: &s})
		return err
	}
	if err := declare("prices"); err != nil {
		return err
	}
	if err := declare("sales", "stock"); err != nil {
		return err
	}
	events, err := store.ReadPlaced(ctx, nil, "", []string{"order"}, 1000)
	if err != nil {
		return err
	}
	last, at := events[len(events)-1], events[2]
	if _, err := store.ActOnProjection(ctx, eventstore.ProjectionAct{Kind: eventstore.ActRebuild, Name: "sales", Actor: "ann", Time: ago(time.Hour)}); err != nil {
		return err
	}
	for _, s := range []eventstore.ProjectionStep{
		{Name: "sales", Build: 1, Setup: &eventstore.BuildTables{}},
		{Name: "sales", Build: 2, Setup: &eventstore.BuildTables{}},
		{Name: "stock", Build: 1, Setup: &eventstore.BuildTables{}},
		{Name: "stock", Build: 1, To: last.Position, Event: last.ID, EventTime: last.Time, Applied: len(events)},
		{Name: "sales", Build: 1, To: events[1].Position, Event: events[1].ID, EventTime: events[1].Time, Applied: 1, Passed: 1},
		{Name: "sales", Build: 1, From: events[1].Position, To: events[1].Position, Halt: &eventstore.ProjectionHalt{
			Event: eventstore.ProjectionEvent{ID: at.ID, Type: at.Type, Position: at.Position, Time: at.Time,
				Place: event.Position{Lane: at.Ref(), Sequence: at.Sequence, EventID: at.ID}},
			Attempts: 5, Reason: "retries exhausted", Error: rude, Since: ago(2 * time.Minute)}},
	} {
		if err := step(s); err != nil {
			return err
		}
	}
	return store.Stop(ctx)
}

func TestProjectionCommands(t *testing.T) {
	t.Parallel()
	d := setup(t)
	if err := withProjections(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, line := range []string{
		"projections ls", "projections show sales", "projections show nobody", "status", "why order client-1", "why order client-4", "why sales client-4", "partitions show stock client-4", "handlers pause stock",
		"projections retry sales --expect e-nothing", "projections skip sales", "projections skip sales --reason cancelled",
		"projections skip sales --reason cancelled", "projections show stock", "projections pause stock --reason looking", "projections pause stock", "projections ls",
		"projections resume stock", "projections rebuild sales", "projections cancel sales", "projections drop sales --yes",
		"projections rm prices --reason gone", "projections rm prices --reason gone --yes", "projections rm stock --reason gone --yes", "audit sales",
	} {
		r := d.run(t, words(line)...)
		fmt.Fprintf(&all, "$ keyhold %s\n%s", line, r.out)
		if r.err != "" {
			fmt.Fprintf(&all, "--- on the error stream:\n%s", r.err)
		}
		fmt.Fprintf(&all, "--- exit %d\n\n", r.code)
	}
	golden(t, "commands/projections.txt", all.String())
}
