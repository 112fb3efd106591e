package postgres

import (
	"cmp"
	"slices"
	"time"
)

// counts are the rows of keyhold_counts as the open transaction is about to change them. They are written at its end by one statement, in one
// order by everybody, each connection into a shard of its own: so nearly nobody ever waits for a count, and no two for one another.
type counts []countDelta

// countDelta is what is added to a sum.
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
	c.add(d)
}

// moved notes how far a checkpoint moved.
func (c *counts) moved(name, category string, by int64) {
	c.add(countDelta{category: category, name: name, total: by, moved: true})
}

// placed notes a checkpoint that was put somewhere without anything having been applied.
func (c *counts) placed(name, category string, by int64) {
	c.add(countDelta{category: category, name: name, total: by})
}

func (c *counts) add(d countDelta) {
	at, found := slices.BinarySearchFunc(*c, d, func(a, b countDelta) int {
		return cmp.Or(cmp.Compare(a.category, b.category), cmp.Compare(a.name, b.name))
	})
	if !found {
		*c = slices.Insert(*c, at, d)
		return
	}
	was := &(*c)[at]
	was.lanes, was.total, was.moved = was.lanes+d.lanes, was.total+d.total, was.moved || d.moved
}

// forget drops what was noted of a name.
func (c *counts) forget(name string) {
	*c = slices.DeleteFunc(*c, func(d countDelta) bool { return d.name == name })
}

// addCounts adds to the shards of the connection, rows in the order of the arrays.
const addCounts = `INSERT INTO keyhold_counts AS k (category, name, shard, lanes, total, moved)
	SELECT u.category, u.name, pg_backend_pid() & 255, u.lanes, u.total, u.moved
	FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS u (category, name, lanes, total, moved, at) ORDER BY u.at
	ON CONFLICT (category, name, shard) DO UPDATE SET lanes = k.lanes + excluded.lanes, total = k.total + excluded.total, moved = greatest(k.moved, excluded.moved)`

// statement writes what was noted; it is empty where nothing was.
func (c counts) statement() (query string, args []any) {
	if len(c) == 0 {
		return "", nil
	}
	now := millis(time.Now())
	categories, names := make([]string, len(c)), make([]string, len(c))
	lanes, totals, moved := make([]int64, len(c)), make([]int64, len(c)), make([]int64, len(c))
	for i, d := range c {
		categories[i], names[i], lanes[i], totals[i] = d.category, d.name, d.lanes, d.total
		if d.moved {
			moved[i] = now
		}
	}
	return addCounts, []any{categories, names, lanes, totals, moved}
}

// writeCounts makes the counts part of the transaction.
func (c *connection) writeCounts() error {
	query, args := c.counts.statement()
	if query == "" {
		return nil
	}
	c.counts = nil
	_, err := c.exec(query, args...)
	return err
}

// resum sums the checkpoints of a name up anew, after a change of all of them, while nobody else writes. When one last moved stays.
func (c *connection) resum(name string) error {
	c.counts.forget(name)
	for _, query := range []string{
		`UPDATE keyhold_counts SET total = 0 WHERE name = $1`,
		`INSERT INTO keyhold_counts AS k (category, name, shard, lanes, total, moved) SELECT n.category, c.name, 0, 0, sum(c.sequence), 0
			FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane WHERE c.name = $1 GROUP BY n.category, c.name
			ON CONFLICT (category, name, shard) DO UPDATE SET total = excluded.total`,
	} {
		if _, err := c.exec(query, name); err != nil {
			return err
		}
	}
	return nil
}
