package sqlite

import (
	"slices"
	"time"
)

// counts are the rows of keyhold_counts as the open transaction is about to change them: by how much, for each unit of work, and for all
// of its group that are through. They are written once for the group, just before it commits, so that a unit of work
// costs no statement of its own; and as they are in the same transaction, they are exact whenever somebody looks.
type counts struct {
	unit     []countDelta
	replaced []string // names whose rows the unit of work wrote itself, from the tables: nothing earlier of the group is to be added to them
	group    []countDelta
}

// countDelta is what is added to a row.
type countDelta struct {
	category, name string // name "" = the category itself
	lanes, total   int64
	moved          bool
}

// drawn notes records of a category; first: they are the first of their lane.
func (c *counts) drawn(category string, records int, first bool) {
	d := countDelta{category: category, total: int64(records)}
	if first {
		d.lanes = 1
	}
	c.unit = append(c.unit, d)
}

// moved notes how far a checkpoint moved.
func (c *counts) moved(name, category string, by int64) {
	c.unit = append(c.unit, countDelta{category: category, name: name, total: by, moved: true})
}

// placed notes a checkpoint that was put somewhere without anything having been applied.
func (c *counts) placed(name, category string, by int64) {
	c.unit = append(c.unit, countDelta{category: category, name: name, total: by})
}

// replace notes that the rows of a name are as they should be.
func (c *counts) replace(name string) { c.replaced = append(c.replaced, name) }

// keep makes what a unit of work noted part of its group.
func (c *counts) keep() {
	for _, name := range c.replaced {
		c.group = slices.DeleteFunc(c.group, func(d countDelta) bool { return d.name == name })
	}
	for _, d := range c.unit {
		c.add(d)
	}
	c.drop()
}

func (c *counts) add(d countDelta) {
	for i := range c.group {
		if g := &c.group[i]; g.category == d.category && g.name == d.name {
			g.lanes, g.total, g.moved = g.lanes+d.lanes, g.total+d.total, g.moved || d.moved
			return
		}
	}
	c.group = append(c.group, d)
}

// drop forgets what a unit of work noted that is refused.
func (c *counts) drop() { c.unit, c.replaced = c.unit[:0], c.replaced[:0] }

// forget forgets what the whole transaction noted.
func (c *counts) forget() {
	c.drop()
	c.group = c.group[:0]
}

// writeCounts makes the counts of the group part of the transaction.
func (c *connection) writeCounts() error {
	if len(c.counts.group) == 0 {
		return nil
	}
	now := millis(time.Now())
	for i := range c.counts.group {
		d := &c.counts.group[i]
		moved := int64(0)
		if d.moved {
			moved = now
		}
		if _, err := c.exec(`INSERT INTO keyhold_counts (category, name, lanes, total, moved) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (category, name) DO UPDATE SET lanes = lanes + excluded.lanes, total = total + excluded.total, moved = max(moved, excluded.moved)`,
			d.category, d.name, d.lanes, d.total, moved); err != nil {
			return err
		}
	}
	c.counts.group = c.counts.group[:0]
	return nil
}

// resum sums the checkpoints of a name up anew, after a change of all of them. When one last moved stays.
func (c *connection) resum(name string) error {
	_, err := c.exec(`INSERT INTO keyhold_counts SELECT n.category, c.name, 0, sum(c.sequence), 0
		FROM keyhold_checkpoints c CROSS JOIN keyhold_lanes n ON n.id = c.lane WHERE c.name = ? GROUP BY n.category
		ON CONFLICT (category, name) DO UPDATE SET total = excluded.total`, name)
	c.counts.unit = slices.DeleteFunc(c.counts.unit, func(d countDelta) bool { return d.name == name })
	c.counts.replace(name)
	return err
}
