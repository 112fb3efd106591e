package command

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// One sequence may name two dead letters of a handler that reads two categories: the person says which.
func TestADeadLetterThatIsNotTheOnlyOneIsNamedByItsCategory(t *testing.T) {
	t.Parallel()
	d := setup(t)
	store := sqlite.Open(d.db)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	u := event.Unit{Name: "billing", Key: "client-4"}
	lanes := []event.LaneRef{{Category: "order", Key: "client-4"}, {Category: "order", Key: "client-4", Lane: event.Backfill}, {Category: "payment", Key: "client-4"}}
	c := eventstore.Changes{Fence: eventstore.Fence{Unit: u}}
	for _, lane := range lanes[1:] {
		c.Publish = append(c.Publish, event.Envelope{ID: "e-" + lane.String(), Type: "payment.received", Version: 1, Encoding: event.JSON, Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Data: []byte(`{}`), Time: night})
	}
	for _, lane := range lanes {
		c.Dead = append(c.Dead, eventstore.Dead{Unit: u, Lane: lane, Sequence: 1, EventID: "e-" + lane.String(), Type: "payment.received", Reason: "poison", Time: night})
	}
	if _, err := store.Begin("test").Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"dlq show billing client-4 1":                                  {ExitUsage, "billing has 3 dead letters of client-4 with sequence 1\nSay which with --category"},
		"dlq show billing client-4 1 --category payment":               {ExitOK, "payment:client-4 #1"},
		"dlq show billing client-4 1 --category order:backfill":        {ExitOK, "order:client-4 (backfill) #1"},
		"dlq show billing client-4 1 --category order":                 {ExitOK, "order:client-4 #1"},
		"dlq show billing client-4 1 --category price":                 {ExitNotFound, "no dead letter of client-4 with sequence 1"},
		"dlq replay billing client-4 1":                                {ExitUsage, "Say which with --category"},
		"dlq replay billing client-4 1 --category payment":             {ExitOK, "event e-payment:client-4"},
		"dlq replay billing client-4 1 --category order:backfill":      {ExitOK, "event e-order:client-4 (backfill)"},
		"dlq purge billing client-4 1 --category order --yes --reason": {ExitUsage, "needs an argument"},
	} {
		if r := d.run(t, words(line)...); r.code != want.code || !strings.Contains(r.out+r.err, want.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", line, r.code, want.code, want.says, r.out, r.err)
		}
	}
}

// Pages, one after the other, are the whole list: nothing is missing, nothing comes twice.
func TestPagesAreTheWholeList(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for _, list := range []string{"partitions ls", "dlq ls", "events cat order", "events cat order client-7"} {
		type page struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next"`
		}
		read := func(args string) (p page) {
			t.Helper()
			r := d.run(t, words(list+" -o json "+args)...)
			if err := json.Unmarshal([]byte(r.out), &p); err != nil {
				t.Fatalf("%s %s: %v: %+v", list, args, err, r)
			}
			return p
		}
		whole := read("")
		var paged []json.RawMessage
		for after := ""; ; {
			p := read("--limit 3" + prefix(" --after ", after))
			paged = append(paged, p.Items...)
			if after = p.Next; after == "" || len(paged) > len(whole.Items) {
				break
			}
		}
		if got, want := string(join(paged)), string(join(whole.Items)); got != want || len(whole.Items) < 4 {
			t.Errorf("%s: %d in pages, %d at once", list, len(paged), len(whole.Items))
		}
	}
}

func join(all []json.RawMessage) (joined []byte) {
	for _, one := range all {
		joined = append(joined, one...)
	}
	return joined
}
