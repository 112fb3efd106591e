package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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
			var clean bool
			var end, since int64
			var trouble, about string
			if _, err := get(ctx, q, `SELECT start_generation, clean, trouble, since, about, (SELECT count(*) FROM keyhold_jobs WHERE state IN ('running', 'paused')),
				(SELECT coalesce(max(position), 0) FROM keyhold_log) FROM keyhold_store`, nil, &o.StartGeneration, &clean, &trouble, &since, &about, &o.Jobs, &end); err != nil {
				return err
			}
			if end > eventstore.MaxRecent {
				o.Recent = eventstore.Position(strconv.FormatInt(end-eventstore.MaxRecent, 10))
			}
			owner, unknown := s.holder()
			if unknown != nil && !errors.Is(unknown, fs.ErrPermission) {
				return unknown
			}
			o.Owner, o.Unclean = owner, owner == nil && unknown == nil && !clean
			if owner != nil {
				tell(owner, o.StartGeneration, trouble, since, about)
				o.Owners = []eventstore.Owner{*owner}
			}
			return overview(ctx, q, &o)
		})
	})
	if err != nil {
		return eventstore.Overview{}, fmt.Errorf("overview: %w", err)
	}
	return o, nil
}

// overview fills in handlers and categories.
func overview(ctx context.Context, q queryer, o *eventstore.Overview) error {
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
	o.Handlers = make([]eventstore.HandlerOverview, len(handlers))
	at := make(map[string]*eventstore.HandlerOverview, len(handlers))
	for i := range handlers {
		h := &o.Handlers[i]
		*h = sums.handler(handlers[i])
		h.Running = h.Seen == o.StartGeneration && h.Seen > 0 && h.StoreID == ""
		at[h.Name] = h
		if err := countAside(ctx, q, h); err != nil {
			return err
		}
	}
	return countStops(ctx, q, at)
}

// sumOf names a row of keyhold_counts.
type sumOf struct{ category, name string }

type sum struct{ lanes, total, moved int64 }

type sums map[sumOf]sum

func readSums(ctx context.Context, q queryer) (sums, error) {
	all := make(sums)
	err := each(ctx, q, `SELECT category, name, lanes, total, moved FROM keyhold_counts`, nil, func(rows *sql.Rows) error {
		var of sumOf
		var s sum
		err := rows.Scan(&of.category, &of.name, &s.lanes, &s.total, &s.moved)
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

// selectParkingKeys goes from one unit that has parked events to the next by the index, past all but the first of each.
const selectParkingKeys = `WITH RECURSIVE keys (key) AS (
	SELECT min(key) FROM keyhold_parked WHERE name = ?1 AND key >= ?2
	UNION ALL SELECT (SELECT min(key) FROM keyhold_parked WHERE name = ?1 AND key > k.key) FROM keys k WHERE k.key IS NOT NULL) `

// countAside counts what a handler set aside.
func countAside(ctx context.Context, q queryer, h *eventstore.HandlerOverview) error {
	if _, err := get(ctx, q, `SELECT count(*) FROM (SELECT 1 FROM keyhold_dead WHERE name = ? LIMIT ?)`,
		[]any{h.Name, eventstore.MaxCount}, &h.Dead); err != nil {
		return err
	}
	var oldest sql.NullInt64
	if _, err := get(ctx, q, selectParkingKeys+`SELECT count(*), min(p.time) FROM
		(SELECT (SELECT min(ordinal) FROM keyhold_parked WHERE name = ?1 AND key = k.key) AS first FROM keys k WHERE k.key IS NOT NULL) f
		CROSS JOIN keyhold_parked p ON p.ordinal = f.first`, []any{h.Name, ""}, &h.Parking, &oldest); err != nil {
		return err
	}
	h.Parking = min(h.Parking, eventstore.MaxCount)
	stoppedAt(h, oldest)
	return nil
}

// stoppedAt notes when a unit stopped.
func stoppedAt(h *eventstore.HandlerOverview, ms sql.NullInt64) {
	if t := fromMillis(ms.Int64); ms.Valid && (h.Oldest.IsZero() || t.Before(h.Oldest)) {
		h.Oldest = t
	}
}

// countStops counts what is halted, paused, or tried again, for all handlers at once.
func countStops(ctx context.Context, q queryer, handlers map[string]*eventstore.HandlerOverview) error {
	count := func(query string, set func(h *eventstore.HandlerOverview, n int, oldest sql.NullInt64)) error {
		return each(ctx, q, query, nil, func(rows *sql.Rows) error {
			var name string
			var n int
			var oldest sql.NullInt64
			err := rows.Scan(&name, &n, &oldest)
			if h := handlers[name]; h != nil {
				set(h, min(n, eventstore.MaxCount), oldest)
			}
			return err
		})
	}
	if err := count(`SELECT h.name, count(*), min(h.since) FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
		WHERE h.sequence > coalesce(c.sequence, 0) GROUP BY h.name`, func(h *eventstore.HandlerOverview, n int, oldest sql.NullInt64) {
		h.Halted = n
		stoppedAt(h, oldest)
	}); err != nil {
		return err
	}
	if err := count(`SELECT name, count(*), NULL FROM keyhold_pauses WHERE key <> '' GROUP BY name`,
		func(h *eventstore.HandlerOverview, n int, _ sql.NullInt64) { h.Paused = n }); err != nil {
		return err
	}
	if err := count(`SELECT t.name, count(*), NULL FROM keyhold_tried t LEFT JOIN keyhold_checkpoints c ON c.name = t.name AND c.lane = t.lane
		WHERE t.sequence > coalesce(c.sequence, 0) GROUP BY t.name`,
		func(h *eventstore.HandlerOverview, n int, _ sql.NullInt64) { h.Trying = n }); err != nil {
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
