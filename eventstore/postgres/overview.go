package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Overview implements [eventstore.Overviews].
func (s operations) Overview(ctx context.Context) (eventstore.Overview, error) {
	var o eventstore.Overview
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			o = eventstore.Overview{StoreID: r.storeID}
			var end int64
			if _, err := get(ctx, q, `SELECT start_generation, (SELECT count(*) FROM keyhold_jobs WHERE state IN ('running', 'paused')),
				(SELECT coalesce(max(position), 0) FROM keyhold_log), EXISTS (SELECT 1 FROM keyhold_starts WHERE stopped = 0 AND NOT told) FROM keyhold_store`,
				nil, &o.StartGeneration, &o.Jobs, &end, &o.Unclean); err != nil {
				return err
			}
			if end > eventstore.MaxRecent {
				o.Recent = eventstore.Position(strconv.FormatInt(end-eventstore.MaxRecent, 10))
			}
			alive, err := living(ctx, q)
			if err != nil {
				return err
			}
			o.Owners = owners(alive)
			if n := len(o.Owners); n > 0 {
				o.Owner, o.Unclean = &o.Owners[n-1], false
			}
			return overview(ctx, q, &o, alive)
		})
	})
	if err != nil {
		return eventstore.Overview{}, fmt.Errorf("overview: %w", err)
	}
	return o, nil
}

func owners(alive []start) (all []eventstore.Owner) {
	for i := range alive {
		all = append(all, alive[i].owner())
	}
	return all
}

// overview fills in handlers and categories.
func overview(ctx context.Context, q queryer, o *eventstore.Overview, alive []start) error {
	sums, err := readSums(ctx, q)
	if err != nil {
		return err
	}
	categories, err := loadCategories(ctx, q)
	if err != nil {
		return err
	}
	for _, c := range categories {
		of := sums[sumOf{c.Name, ""}]
		o.Categories = append(o.Categories, eventstore.CategoryOverview{Category: c, Partitions: uint64(of.lanes), Records: uint64(of.total)})
	}
	of := make(map[string]*eventstore.CategoryOverview, len(o.Categories))
	for i := range o.Categories {
		of[o.Categories[i].Name] = &o.Categories[i]
	}
	if err := lostEntries(ctx, q, of); err != nil {
		return err
	}
	handlers, err := loadHandlers(ctx, q)
	if err != nil {
		return err
	}
	running, err := runningHandlers(ctx, q, alive)
	if err != nil {
		return err
	}
	o.Handlers = make([]eventstore.HandlerOverview, len(handlers))
	at := make(map[string]*eventstore.HandlerOverview, len(handlers))
	for i := range handlers {
		h := &o.Handlers[i]
		*h = sums.handler(handlers[i])
		h.Running = slices.Contains(running, h.Name)
		if len(alive) == 0 {
			h.Running = h.Seen == o.StartGeneration && h.Seen > 0
		}
		h.Running = h.Running && h.StoreID == ""
		at[h.Name] = h
		if err := countAside(ctx, q, h); err != nil {
			return err
		}
	}
	return countStops(ctx, q, at)
}

// runningHandlers gives the handlers that a living process has saved.
func runningHandlers(ctx context.Context, q queryer, alive []start) (found []string, err error) {
	err = each(ctx, q, `SELECT DISTINCT name FROM keyhold_seen WHERE generation = ANY($1)`, []any{generations(alive)}, func(r rows) error {
		var name string
		err := r.Scan(&name)
		found = append(found, name)
		return err
	})
	return found, err
}

func generations(starts []start) []int64 {
	all := make([]int64, len(starts))
	for i := range starts {
		all[i] = int64(starts[i].generation)
	}
	return all
}

// sumOf names a sum of keyhold_counts.
type sumOf struct{ category, name string }

type sum struct{ lanes, total, moved int64 }

type sums map[sumOf]sum

func readSums(ctx context.Context, q queryer) (sums, error) {
	all := make(sums)
	err := each(ctx, q, `SELECT category, name, sum(lanes)::bigint, sum(total)::bigint, max(moved) FROM keyhold_counts GROUP BY category, name`, nil, func(r rows) error {
		var of sumOf
		var s sum
		err := r.Scan(&of.category, &of.name, &s.lanes, &s.total, &s.moved)
		all[of] = s
		return err
	})
	return all, err
}

func (s sums) handler(h eventstore.Handler) eventstore.HandlerOverview {
	o := eventstore.HandlerOverview{Handler: h}
	var moved int64
	for _, category := range h.Categories {
		if h.StoreID != "" {
			break // how far it is, only the other store knows
		}
		drawn, passed := s[sumOf{category, ""}], s[sumOf{category, h.Name}]
		o.Lag += uint64(max(drawn.total-passed.total, 0))
		moved = max(moved, passed.moved)
	}
	if moved > 0 {
		o.Moved = fromMillis(moved)
	}
	return o
}

// countAside counts what a handler set aside. Of parked events it goes from one unit to the next by the index, past all but the first of each.
func countAside(ctx context.Context, q queryer, h *eventstore.HandlerOverview) error {
	if _, err := get(ctx, q, `SELECT count(*) FROM (SELECT 1 FROM keyhold_dead WHERE name = $1 LIMIT $2) d`,
		[]any{h.Name, eventstore.MaxCount}, &h.Dead); err != nil {
		return err
	}
	var oldest *int64
	if _, err := get(ctx, q, `WITH RECURSIVE keys (key) AS (
			SELECT min(key) FROM keyhold_parked WHERE name = $1
			UNION ALL SELECT (SELECT min(key) FROM keyhold_parked WHERE name = $1 AND key > k.key) FROM keys k WHERE k.key IS NOT NULL)
		SELECT count(*), min(p.time) FROM keys k
		CROSS JOIN LATERAL (SELECT time FROM keyhold_parked WHERE name = $1 AND key = k.key ORDER BY ordinal LIMIT 1) p`, []any{h.Name}, &h.Parking, &oldest); err != nil {
		return err
	}
	h.Parking = min(h.Parking, eventstore.MaxCount)
	stoppedAt(h, oldest)
	return nil
}

// stoppedAt notes when a unit stopped.
func stoppedAt(h *eventstore.HandlerOverview, ms *int64) {
	if ms == nil {
		return
	}
	if t := fromMillis(*ms); h.Oldest.IsZero() || t.Before(h.Oldest) {
		h.Oldest = t
	}
}

// countStops counts what is halted, paused, or tried again, for all handlers at once.
func countStops(ctx context.Context, q queryer, handlers map[string]*eventstore.HandlerOverview) error {
	count := func(query string, set func(h *eventstore.HandlerOverview, n int, oldest *int64)) error {
		return each(ctx, q, query, nil, func(r rows) error {
			var name string
			var n int
			var oldest *int64
			err := r.Scan(&name, &n, &oldest)
			if h := handlers[name]; h != nil {
				set(h, min(n, eventstore.MaxCount), oldest)
			}
			return err
		})
	}
	if err := count(`SELECT h.name, count(*), min(h.since) FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
		WHERE h.sequence > coalesce(c.sequence, 0) GROUP BY h.name`, func(h *eventstore.HandlerOverview, n int, oldest *int64) {
		h.Halted = n
		stoppedAt(h, oldest)
	}); err != nil {
		return err
	}
	if err := count(`SELECT name, count(*), NULL::bigint FROM keyhold_pauses WHERE key <> '' GROUP BY name`,
		func(h *eventstore.HandlerOverview, n int, _ *int64) { h.Paused = n }); err != nil {
		return err
	}
	if err := count(`SELECT t.name, count(*), NULL::bigint FROM keyhold_tried t LEFT JOIN keyhold_checkpoints c ON c.name = t.name AND c.lane = t.lane
		WHERE t.sequence > coalesce(c.sequence, 0) GROUP BY t.name`,
		func(h *eventstore.HandlerOverview, n int, _ *int64) { h.Trying = n }); err != nil {
		return err
	}
	for name, h := range handlers {
		var err error
		if _, h.Pause, err = pauses(ctx, q, event.Unit{Name: name}); err != nil {
			return err
		}
	}
	return nil
}
