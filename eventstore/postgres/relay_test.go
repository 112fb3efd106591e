package postgres

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Behind a long outage: what the next lanes are is asked again and again until all is published, and must not cost what there is in all.
func TestABacklogIsNotReadThroughToFindLanes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	d.commit(events("a", 1))
	_, err := d.raw.Exec(d.Context(), `INSERT INTO keyhold_unpublished (part, lane, tail) SELECT n.part, n.id, s FROM keyhold_lanes n, generate_series(2, 20000) s WHERE n.category = 'order'`)
	d.must(err)
	_, err = d.raw.Exec(d.Context(), `ANALYZE keyhold_unpublished`)
	d.must(err)
	parts := make([]event.Part, event.Parts)
	for p := range parts {
		parts[p] = event.Part(p)
	}
	var text string
	d.value(&text, `EXPLAIN (ANALYZE, FORMAT JSON) `+unpublished, numbers(parts), 256)
	type node struct {
		Type  string  `json:"Node Type"`
		Rows  float64 `json:"Actual Rows"`
		Loops float64 `json:"Actual Loops"`
		Plans []node
	}
	var plans []struct{ Plan node }
	d.must(json.Unmarshal([]byte(text), &plans))
	var look func(node)
	look = func(n node) {
		if n.Rows*n.Loops > 1000 {
			t.Errorf("%s gave %.0f rows, for one lane:\n%s", n.Type, n.Rows*n.Loops, text)
		}
		for _, below := range n.Plans {
			look(below)
		}
	}
	look(plans[0].Plan)
	found, err := d.store.Unpublished(d.Context(), parts, 256)
	d.must(err)
	d.same("unpublished", found, []eventstore.Unpublished{{Lane: orders, Tail: 1}})
}

// Whoever notes something and whoever raises the same parts would else wait for one another.
func TestPartsAreLockedInTheOrderOfTheirUnits(t *testing.T) {
	t.Parallel()
	d := newDesk(t, eventstore.StartOptions{Relayed: true})
	two, ten := event.Part(2), event.Part(10)
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: two.Unit(), Generation: 1}, {Unit: ten.Unit(), Generation: 1}})
	d.must(err)
	release := d.hold(`SELECT FROM keyhold_units WHERE name = $1 AND key = '10' FOR UPDATE`, event.PartName)
	noted := background(func() error {
		return d.store.AllLooksDue(d.Context(), []eventstore.PartFence{{Part: two, Generation: 1}, {Part: ten, Generation: 1}}, time.Now())
	})
	d.waiting(1)
	if _, err := d.session().Exec(d.Context(), `SELECT FROM keyhold_units WHERE name = $1 AND key = '2' FOR UPDATE NOWAIT`, event.PartName); err != nil {
		t.Errorf("part 2 is locked before part 10, which a raise locks first: %v", err)
	}
	release()
	d.must(<-noted)
}
