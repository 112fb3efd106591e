package postgres

import (
	"errors"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// forgetLane leaves the database as a failover to a standby, or a crash, may leave it that did not get to see the lane of a key: the lane is not there, and its
// number is that of the next lane that was made.
func (d *desk) forgetLane(key, next string) {
	d.Helper()
	var id int64
	d.value(&id, `SELECT id FROM keyhold_lanes WHERE key = $1`, key)
	for _, s := range []string{`DELETE FROM keyhold_log WHERE lane = $1`, `DELETE FROM keyhold_checkpoints WHERE lane = $1`,
		`DELETE FROM keyhold_unpublished WHERE lane = $1`, `DELETE FROM keyhold_published WHERE lane = $1`, `DELETE FROM keyhold_looks WHERE lane = $1`, `DELETE FROM keyhold_lanes WHERE id = $1`} {
		_, err := d.raw.Exec(d.Context(), s, id)
		d.must(err)
	}
	if next != "" {
		ref := event.LaneRef{Category: "order", Key: next}
		_, err := d.raw.Exec(d.Context(), `INSERT INTO keyhold_lanes (id, category, key, lane, part) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, 0, $4)`,
			id, ref.Category, ref.Key, int16(ref.Part()))
		d.must(err)
	}
}

// raised gives a part that is held.
func (d *desk) raised(p event.Part) eventstore.PartFence {
	d.Helper()
	_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: p.Unit(), Generation: 5}})
	d.must(err)
	return eventstore.PartFence{Part: p, Generation: 5}
}

// again commits until it is no trouble of the database's any more.
func (d *desk) again(c eventstore.Changes) error {
	_, err := d.store.Begin(d.Name()).Commit(d.Context(), c)
	if errors.Is(err, eventstore.ErrTrouble) {
		_, err = d.store.Begin(d.Name()).Commit(d.Context(), c)
	}
	return err
}

func TestAServerThatDoesNotHaveALaneThatIsRemembered(t *testing.T) {
	t.Parallel()
	other := event.LaneRef{Category: "order", Key: "b"}
	moved := func(key string, from, to event.Sequence) eventstore.Changes {
		l := event.LaneRef{Category: "order", Key: key}
		return eventstore.Changes{Fence: eventstore.Fence{Unit: event.Unit{Name: "shipping", Key: key}}, Advance: []eventstore.Advance{{Lane: l, From: from, To: to, EventID: "e"}}}
	}
	for _, next := range []string{"", "b"} {
		t.Run("its number is that of "+next, func(t *testing.T) {
			t.Parallel()
			tails := func(d *desk, a, b event.Sequence) {
				d.Helper()
				for ref, want := range map[event.LaneRef]event.Sequence{orders: a, other: b} {
					tail, err := d.store.LaneTail(d.Context(), ref)
					d.must(err)
					d.same("tail of "+ref.Key, tail, want)
				}
			}
			at := func(d *desk, name string, ref event.LaneRef, want event.Sequence) {
				d.Helper()
				var got event.Sequence
				d.value(&got, `SELECT coalesce((SELECT c.sequence FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane WHERE c.name = $1 AND n.key = $2), 0)`, name, ref.Key)
				d.same("checkpoint in "+ref.Key, got, want)
			}
			t.Run("events", func(t *testing.T) {
				d := newDesk(t, eventstore.StartOptions{Relayed: true})
				d.commit(events("a", 1))
				d.forgetLane("a", next)
				d.must(d.again(events("a", 2)))
				tails(d, 2, 0)
			})
			t.Run("a checkpoint that is made", func(t *testing.T) {
				d := newDesk(t)
				d.commit(events("a", 1))
				d.forgetLane("a", next)
				d.must(d.again(moved("a", 0, 1)))
				at(d, "shipping", orders, 1)
				at(d, "shipping", other, 0)
			})
			t.Run("a checkpoint that is moved", func(t *testing.T) {
				d := newDesk(t)
				d.commit(events("a", 1))
				d.commit(moved("a", 0, 1))
				d.forgetLane("a", next)
				if next != "" {
					_, err := d.raw.Exec(d.Context(), `INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id) SELECT 'shipping', id, 1, 'e' FROM keyhold_lanes WHERE key = $1`, next)
					d.must(err)
				}
				if err := d.again(moved("a", 1, 2)); !errors.Is(err, eventstore.ErrCheckpointMoved) {
					t.Errorf("moved from where it is not any more: %v", err)
				}
				d.must(d.again(moved("a", 0, 1)))
				at(d, "shipping", orders, 1)
			})
			t.Run("a halt", func(t *testing.T) {
				d := newDesk(t)
				d.commit(events("a", 1))
				d.forgetLane("a", next)
				d.must(d.again(halted("a")))
				var key string
				d.value(&key, `SELECT n.key FROM keyhold_halts h JOIN keyhold_lanes n ON n.id = h.lane`)
				d.same("halted in the lane of", key, "a")
			})
			t.Run("what is published, and looks", func(t *testing.T) {
				d := newDesk(t, eventstore.StartOptions{Relayed: true})
				held := []eventstore.PartFence{d.raised(orders.Part())}
				d.commit(events("a", 1))
				d.must(d.store.NotePublished(d.Context(), held, []eventstore.Published{{Lane: orders, Through: 1, Look: then}}))
				d.forgetLane("a", next)
				if next != "" {
					_, err := d.raw.Exec(d.Context(), `UPDATE keyhold_lanes SET last = 1 WHERE key = $1`, next)
					d.must(err)
				}
				for _, note := range []func() error{
					func() error {
						return d.store.NotePublished(d.Context(), held, []eventstore.Published{{Lane: orders, Through: 1, Look: then}})
					},
					func() error {
						return d.store.SetLooks(d.Context(), held, []eventstore.Look{{Lane: orders, Due: then}})
					},
				} {
					_ = note() // it says that there is no such record, or sets a look that leads to nothing
				}
				var wrong int
				d.value(&wrong, `SELECT (SELECT count(*) FROM keyhold_published) + (SELECT count(*) FROM keyhold_looks k JOIN keyhold_lanes n ON n.id = k.lane WHERE n.key <> 'a')
					+ (SELECT count(*) FROM keyhold_looks k WHERE NOT EXISTS (SELECT 1 FROM keyhold_lanes n WHERE n.id = k.lane))`)
				d.same("notes of the other lane", wrong, 0)
				d.must(d.again(events("a", 1)))
				d.must(d.store.NotePublished(d.Context(), held, []eventstore.Published{{Lane: orders, Through: 1, Look: then}}))
			})
		})
	}
}
