package postgres

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// actOnHandler renames, removes or resets a handler. It runs while nobody else writes anything of Keyhold's: what a process that has just
// ended sent last is in the database, or will never be.
func (c *connection) actOnHandler(a *eventstore.Act, done *eventstore.ActRecord) error {
	now, err := unitState(c.ctx, c, c.storeID, a.Unit)
	if err != nil {
		return err
	}
	alive, err := living(c.ctx, c)
	if err != nil {
		return err
	}
	inUse, err := c.get(`SELECT FROM keyhold_seen s JOIN keyhold_handlers h ON h.name = s.name AND h.store_id = '' WHERE s.name = $1 AND s.generation = ANY($2) LIMIT 1`, []any{a.Unit.Name, generations(alive)})
	if err != nil {
		return err
	}
	taken := false
	if a.Kind == eventstore.ActRename {
		if taken, err = c.taken(a.To); err != nil {
			return err
		}
	}
	detail, err := a.DecideHandler(now, inUse, taken)
	if err != nil {
		return err
	}
	if len(alive) > 0 {
		if err := c.bearable(a); err != nil {
			return err
		}
	}
	switch a.Kind {
	case eventstore.ActRename:
		err = c.rename(a.Unit.Name, a.To)
	case eventstore.ActRemove:
		err = c.remove(a.Unit.Name, now.Kind.KeepsPlaces(), millis(a.Time))
	default:
		err = c.reset(a.Unit.Name, *a.Start)
	}
	if err != nil {
		return err
	}
	*done = a.Record(eventstore.Deed{Detail: detail})
	c.writeAct(done)
	return nil
}

// bearable refuses an act on so many lanes, beside a process that has the store open, that all who write would wait for it for long: it is
// one transaction, or a crash would leave a handler in two places.
func (c *connection) bearable(a *eventstore.Act) error {
	if a.Kind == eventstore.ActRemove {
		return nil // deletes, which are quick
	}
	var lanes int
	_, err := c.get(`SELECT count(*) FROM (SELECT 1 FROM keyhold_subscriptions s JOIN keyhold_lanes n ON n.category = s.category WHERE s.handler = $1 LIMIT $2) l`,
		[]any{a.Unit.Name, c.bears() + 1}, &lanes)
	if err == nil && lanes > c.bears() {
		err = fmt.Errorf("it has more than %d partitions, and everybody who writes would wait for all of them: %w: stop the program first",
			c.bears(), eventstore.ErrInUse)
	}
	return err
}

// bears is how many lanes an act on a handler may go through while somebody has the store open.
func (c *connection) bears() int { return cmp.Or(c.mostLanes, 20_000) }

// byName are the tables that keep something of a handler under its name, in their column name.
var byName = [...]string{
	"keyhold_handlers", "keyhold_checkpoints", "keyhold_halts", "keyhold_dead", "keyhold_parked", "keyhold_tried", "keyhold_pauses", "keyhold_units",
	"keyhold_seen", "keyhold_counts",
}

// taken reports whether the store keeps anything under a name.
func (c *connection) taken(name string) (taken bool, err error) {
	query := `SELECT EXISTS (SELECT 1 FROM keyhold_subscriptions WHERE handler = $1) OR EXISTS (SELECT 1 FROM keyhold_projections WHERE name = $1)`
	for _, table := range byName {
		query += ` OR EXISTS (SELECT 1 FROM ` + table + ` WHERE name = $1)`
	}
	_, err = c.get(query, []any{name}, &taken)
	return taken, err
}

func (c *connection) rename(from, to string) error {
	for _, table := range byName {
		if table == "keyhold_counts" {
			continue
		}
		if _, err := c.exec(`UPDATE `+table+` SET name = $1 WHERE name = $2`, to, from); err != nil {
			return err
		}
	}
	if err := c.run([]any{to, from},
		`UPDATE keyhold_subscriptions SET handler = $1 WHERE handler = $2`,
		`UPDATE keyhold_jobs SET handler = $1 WHERE handler = $2`,
		`INSERT INTO keyhold_counts (category, name, shard, lanes, total, moved) SELECT category, $1, 0, 0, 0, max(moved) FROM keyhold_counts WHERE name = $2 GROUP BY category`); err != nil {
		return err
	}
	if err := c.resum(to); err != nil {
		return err
	}
	if _, err := c.exec(`DELETE FROM keyhold_counts WHERE name = $1`, from); err != nil {
		return err
	}
	_, err := c.exec(registryChanged)
	return err
}

// remove leaves the generations of units, which must never go back, should the name come again; and its places where they are to be kept.
func (c *connection) remove(name string, places bool, now int64) error {
	for _, table := range byName {
		if table == "keyhold_units" || places && (table == "keyhold_checkpoints" || table == "keyhold_counts") {
			continue
		}
		if _, err := c.exec(`DELETE FROM `+table+` WHERE name = $1`, name); err != nil {
			return err
		}
	}
	if _, err := c.exec(`DELETE FROM keyhold_subscriptions WHERE handler = $1`, name); err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE keyhold_jobs SET state = 'cancelled', changed = $2 WHERE handler = $1 AND state IN ('running', 'paused')`, name, now); err != nil {
		return err
	}
	_, err := c.exec(registryChanged)
	return err
}

// reset puts a handler where a new one would begin.
func (c *connection) reset(name string, start eventstore.Start) error {
	if err := c.rebegin(name, start); err != nil {
		return err
	}
	if err := c.run([]any{name},
		`DELETE FROM keyhold_checkpoints c USING keyhold_subscriptions s, keyhold_lanes n
			WHERE c.name = $1 AND s.handler = $1 AND n.category = s.category AND c.lane = n.id`,
		`DELETE FROM keyhold_halts WHERE name = $1`,
		`DELETE FROM keyhold_parked WHERE name = $1`,
		`DELETE FROM keyhold_tried WHERE name = $1`); err != nil {
		return err
	}
	categories, err := subscribed(c.ctx, c, name)
	if err != nil {
		return err
	}
	start.Handler = name
	for _, start.Category = range categories {
		if err := c.startAt(&start); err != nil {
			return err
		}
		if err := c.lookBehind(name, start.Category); err != nil {
			return err
		}
	}
	return c.resum(name)
}

// lookBehind has the relay look now at the lanes of a category that a handler has not passed, where the store is started for one or was so last.
func (c *connection) lookBehind(name, category string) error {
	_, err := c.exec(`INSERT INTO keyhold_looks AS k (lane, part, due, gap, retire) SELECT n.id, n.part, $3, 0, FALSE
		FROM keyhold_lanes n LEFT JOIN keyhold_checkpoints c ON c.name = $1 AND c.lane = n.id
		WHERE n.category = $2 AND n.last > coalesce(c.sequence, 0) AND (SELECT relayed FROM keyhold_store) ORDER BY n.id
		ON CONFLICT (lane) DO UPDATE SET due = excluded.due, gap = 0, retire = FALSE WHERE k.retire OR excluded.due < k.due`, name, category, millis(time.Now()))
	return err
}

// rebegin puts a handler at the beginning of categories that another application produces.
func (c *connection) rebegin(name string, start eventstore.Start) error {
	h := eventstore.Handler{Name: name}
	if _, err := c.get(`SELECT begins FROM keyhold_handlers WHERE name = $1`, []any{name}, list{&h.Begins}); err != nil {
		return err
	}
	begins, err := h.Rebegins(start)
	if err != nil || len(begins) == 0 {
		return err
	}
	text, err := json.Marshal(begins)
	if err != nil {
		return err
	}
	_, err = c.exec(`UPDATE keyhold_handlers SET begins = $1 WHERE name = $2`, string(text), name)
	return err
}

// run runs statements that have the same arguments.
func (c *connection) run(args []any, queries ...string) error {
	for _, query := range queries {
		if _, err := c.exec(query, args...); err != nil {
			return err
		}
	}
	return nil
}

// registryChanged makes a process that is about to save what it loaded before begin again.
const registryChanged = `UPDATE keyhold_store SET registry_revision = registry_revision + 1`
