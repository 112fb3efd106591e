package sqlite

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// actOnHandler renames, removes or resets a handler.
func (c *connection) actOnHandler(a *eventstore.Act) (eventstore.ActRecord, error) {
	now, err := unitState(noContext, c, c.storeID, a.Unit)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	inUse, err := c.inUse(a.Unit.Name)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	taken := false
	if a.Kind == eventstore.ActRename {
		if taken, err = c.taken(a.To); err != nil {
			return eventstore.ActRecord{}, err
		}
	}
	detail, err := a.DecideHandler(now, inUse, taken)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	if err := c.bearable(a); err != nil {
		return eventstore.ActRecord{}, err
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
		return eventstore.ActRecord{}, err
	}
	done := a.Record(eventstore.Deed{Detail: detail})
	return done, c.writeAct(&done)
}

// bearable refuses an act on so many lanes, beside a process that has the store open, that all who write would wait for it for long: it is
// one transaction, or a crash would leave a handler in two places.
func (c *connection) bearable(a *eventstore.Act) error {
	if a.Kind == eventstore.ActRemove {
		return nil // deletes, which are quick
	}
	if c.held != nil {
		if owned, err := c.held(); err != nil || !owned {
			return err
		}
	}
	var lanes int
	_, err := c.get(`SELECT count(*) FROM (SELECT 1 FROM keyhold_subscriptions s CROSS JOIN keyhold_lanes n ON n.category = s.category WHERE s.handler = ? LIMIT ?)`,
		[]any{a.Unit.Name, c.bears() + 1}, &lanes)
	if err == nil && lanes > c.bears() {
		err = fmt.Errorf("it has more than %d partitions, and everybody who writes would wait for all of them: %w: stop the program first",
			c.bears(), eventstore.ErrInUse)
	}
	return err
}

// bears is how many lanes an act on a handler may go through while somebody has the store open.
func (c *connection) bears() int { return cmp.Or(c.mostLanes, 20_000) }

// inUse reports whether a process has the store started, and saved the handler in that start. Nothing can come between this and
// the commit: a process that takes the store over has to draw its start generation first, in a transaction that waits for this one.
func (c *connection) inUse(name string) (bool, error) {
	var seen, now event.Generation
	found, err := c.get(`SELECT h.seen, s.start_generation FROM keyhold_store s JOIN keyhold_handlers h WHERE h.name = ? AND h.store_id = ''`, []any{name}, &seen, &now)
	switch {
	case err != nil || !found || seen < now:
		return false, err
	case c.held == nil:
		return true, nil // by this process
	}
	return c.held()
}

// byName are the tables that keep something of a handler under its name, in their column name.
var byName = [...]string{
	"keyhold_handlers", "keyhold_checkpoints", "keyhold_halts", "keyhold_dead", "keyhold_parked", "keyhold_tried", "keyhold_pauses", "keyhold_units",
	"keyhold_counts",
}

// taken reports whether the store keeps anything under a name.
func (c *connection) taken(name string) (bool, error) {
	taken := false
	if _, err := c.get(`SELECT EXISTS (SELECT 1 FROM keyhold_subscriptions WHERE handler = ?1) OR EXISTS (SELECT 1 FROM keyhold_projections WHERE name = ?1)`,
		[]any{name}, &taken); err != nil || taken {
		return taken, err
	}
	for _, table := range byName {
		if _, err := c.get(`SELECT EXISTS (SELECT 1 FROM `+table+` WHERE name = ?)`, []any{name}, &taken); err != nil || taken {
			return taken, err
		}
	}
	return false, nil
}

func (c *connection) rename(from, to string) error {
	for _, table := range byName {
		if table == "keyhold_counts" {
			continue
		}
		if _, err := c.exec(`UPDATE `+table+` SET name = ? WHERE name = ?`, to, from); err != nil {
			return err
		}
	}
	if err := c.run([]any{to, from},
		`UPDATE keyhold_subscriptions SET handler = ? WHERE handler = ?`,
		`UPDATE keyhold_jobs SET handler = ? WHERE handler = ?`,
		`INSERT INTO keyhold_counts SELECT category, ?, 0, 0, moved FROM keyhold_counts WHERE name = ?`); err != nil {
		return err
	}
	if err := c.resum(to); err != nil {
		return err
	}
	if _, err := c.exec(`DELETE FROM keyhold_counts WHERE name = ?`, from); err != nil {
		return err
	}
	c.counts.replace(from)
	return c.registryChanged()
}

// remove leaves the generations of units, which must never go back, should the name come again; and its places where they are to be kept.
func (c *connection) remove(name string, places bool, now int64) error {
	for _, table := range byName {
		if table == "keyhold_units" || places && (table == "keyhold_checkpoints" || table == "keyhold_counts") {
			continue
		}
		if _, err := c.exec(`DELETE FROM `+table+` WHERE name = ?`, name); err != nil {
			return err
		}
	}
	if !places {
		c.counts.replace(name)
	}
	if _, err := c.exec(`DELETE FROM keyhold_subscriptions WHERE handler = ?`, name); err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE keyhold_jobs SET state = 'cancelled', changed = ? WHERE handler = ? AND state IN ('running', 'paused')`, now, name); err != nil {
		return err
	}
	return c.registryChanged()
}

// reset puts a handler where a new one would begin.
func (c *connection) reset(name string, start eventstore.Start) error {
	if err := c.rebegin(name, start); err != nil {
		return err
	}
	if err := c.run([]any{name},
		`DELETE FROM keyhold_checkpoints WHERE name = ?1 AND lane IN
			(SELECT n.id FROM keyhold_subscriptions s CROSS JOIN keyhold_lanes n ON n.category = s.category WHERE s.handler = ?1)`,
		`DELETE FROM keyhold_halts WHERE name = ?`,
		`DELETE FROM keyhold_parked WHERE name = ?`,
		`DELETE FROM keyhold_tried WHERE name = ?`,
		`UPDATE keyhold_counts SET total = 0 WHERE name = ?`); err != nil {
		return err
	}
	categories, err := subscribed(noContext, c, name)
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

// rebegin puts a handler at the beginning of categories that another application produces.
func (c *connection) rebegin(name string, start eventstore.Start) error {
	h := eventstore.Handler{Name: name}
	if _, err := c.get(`SELECT begins FROM keyhold_handlers WHERE name = ?`, []any{name}, list{&h.Begins}); err != nil {
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
	_, err = c.exec(`UPDATE keyhold_handlers SET begins = ? WHERE name = ?`, string(text), name)
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
func (c *connection) registryChanged() error {
	_, err := c.exec(`UPDATE keyhold_store SET registry_revision = registry_revision + 1`)
	return err
}
