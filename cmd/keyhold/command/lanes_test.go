package command

import (
	"context"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// wentBack makes a shop one that was restored from a backup: the broker has more of two lanes, and what the store has of one of them is another event.
func wentBack(ctx context.Context, path string) error {
	store := sqlite.Open(path)
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "shop@test", Relayed: true}); err != nil {
		return err
	}
	for client, at := range map[string]eventstore.Divergence{
		"client-2": {Sequence: 2, EventID: "lost-2", StoredEventID: "e-2"}, "client-4": {Sequence: 40, EventID: "lost-40"},
	} {
		at.Lane, at.Since = orderLane(client), ago(4*time.Minute)
		held := eventstore.PartFence{Part: at.Lane.Part(), Generation: 1}
		if _, err := store.Raise(ctx, []eventstore.Ask{{Unit: held.Part.Unit(), Generation: 1}}); err != nil {
			return err
		}
		if err := store.Diverge(ctx, []eventstore.PartFence{held}, at); err != nil {
			return err
		}
	}
	return store.Stop(ctx)
}

func TestLaneCommands(t *testing.T) {
	t.Parallel()
	d := setup(t)
	if r := d.run(t, "lanes", "ls"); r.code != ExitOK || r.out != "No lane diverged: store and broker agree, as far as is known.\n" {
		t.Errorf("before: %+v", r)
	}
	if err := wentBack(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	golden(t, "commands/lanes.txt", d.runAll(t, []string{
		"status", "lanes ls", "lanes ls -o wide --limit 1", "why order client-4", "lanes adopt order client-4", "lanes adopt order client-4 --reason restored",
		"lanes adopt order client-4 --reason restored --dry-run", "lanes adopt order client-4 --reason restored --expect 39 --yes",
		"lanes adopt order client-4 --reason restored --expect 40 --yes", "lanes adopt order client-4 --reason restored --yes",
		"lanes adopt order client-2 --reason restored --backfill --yes", "lanes ls -o json", "audit",
	}))
}

func TestLanesThatDivergedAreCompleted(t *testing.T) {
	t.Parallel()
	d := setup(t)
	if err := wentBack(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	if got := d.completed(t, "lanes", "adopt", ""); len(got) != 1 || got[0] != "order" {
		t.Errorf("categories: %q", got)
	}
	if got := d.completed(t, "lanes", "adopt", "order", "client-4"); len(got) != 1 || got[0] != "client-4" {
		t.Errorf("keys: %q", got)
	}
}
