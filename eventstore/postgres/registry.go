package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// LoadRegistry implements [eventstore.Registry].
func (s operations) LoadRegistry(ctx context.Context) (eventstore.Registered, error) {
	var found eventstore.Registered
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			var err error
			found, err = loadRegistry(ctx, q)
			return err
		})
	})
	if err != nil {
		return eventstore.Registered{}, fmt.Errorf("load registry: %w", err)
	}
	return found, nil
}

func loadRegistry(ctx context.Context, q queryer) (r eventstore.Registered, err error) {
	if r.Revision, err = revision(ctx, q); err != nil {
		return r, err
	}
	if r.Categories, err = loadCategories(ctx, q); err != nil {
		return r, err
	}
	if r.Handlers, err = loadHandlers(ctx, q); err != nil {
		return r, err
	}
	return r, each(ctx, q, `SELECT name, version, encoding, category, fields, descriptor FROM keyhold_types ORDER BY name, version`, nil, func(row rows) error {
		var t eventstore.Type
		err := row.Scan(&t.Name, &t.Version, &t.Encoding, &t.Category, list{&t.Fields}, &t.Descriptor)
		r.Types = append(r.Types, t)
		return err
	})
}

func loadCategories(ctx context.Context, q queryer) (found []eventstore.Category, err error) {
	err = each(ctx, q, `SELECT name, key_field, buckets, commands, store_id FROM keyhold_categories ORDER BY name`, nil, func(row rows) error {
		var c eventstore.Category
		err := row.Scan(&c.Name, &c.KeyField, &c.Buckets, &c.Commands, &c.StoreID)
		found = append(found, c)
		return err
	})
	return found, err
}

func loadHandlers(ctx context.Context, q queryer) (found []eventstore.Handler, err error) {
	err = each(ctx, q, `SELECT h.name, h.kind, h.types, h.sequential, h.since, h.seen, h.store_id, h.begins,
			coalesce((SELECT json_agg(s.category ORDER BY s.ordinal) FROM keyhold_subscriptions s WHERE s.handler = h.name), '[]')::text
			FROM keyhold_handlers h ORDER BY h.name`, nil, func(row rows) error {
		var h eventstore.Handler
		var ms int64
		err := row.Scan(&h.Name, &h.Kind, list{&h.Types}, &h.Sequential, &ms, &h.Seen, &h.StoreID, list{&h.Begins}, list{&h.Categories})
		h.Since = fromMillis(ms)
		found = append(found, h)
		return err
	})
	return found, err
}

// subscribed gives the categories of a handler, in their order.
func subscribed(ctx context.Context, q queryer, name string) (found []string, err error) {
	err = each(ctx, q, `SELECT category FROM keyhold_subscriptions WHERE handler = $1 ORDER BY ordinal`, []any{name}, func(row rows) error {
		var category string
		err := row.Scan(&category)
		found = append(found, category)
		return err
	})
	return found, err
}

func revision(ctx context.Context, q queryer) (n uint64, err error) {
	_, err = get(ctx, q, `SELECT registry_revision FROM keyhold_store`, nil, &n)
	return n, err
}

// list is a column with a JSON array or object.
type list struct{ into any }

// Scan implements [sql.Scanner].
func (l list) Scan(column any) error {
	text, ok := column.(string)
	if !ok {
		return fmt.Errorf("a list is kept as text, this is %T", column)
	}
	return json.Unmarshal([]byte(text), l.into)
}

// Revision implements [eventstore.Registry].
func (s *Store) Revision(ctx context.Context) (n uint64, err error) {
	err = s.read(ctx, func(r *readers) error {
		n, err = revision(ctx, r)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the revision of the registry: %w", err)
	}
	return n, nil
}

// FirstBroker implements [eventstore.Registry].
func (s *Store) FirstBroker(ctx context.Context, memory string) (first string, err error) {
	err = s.change(ctx, "first broker", func(c *connection) error {
		_, err := c.get(`UPDATE keyhold_store SET first_broker = CASE first_broker WHEN '' THEN $1 ELSE first_broker END RETURNING first_broker`, []any{memory}, &first)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("note the first broker: %w", err)
	}
	return first, nil
}

// SaveRegistry implements [eventstore.Registry]. Nobody commits meanwhile: who passed events over by the lists of before has committed, or is refused.
func (s *Store) SaveRegistry(ctx context.Context, saved eventstore.Registered, starts []eventstore.Start) error {
	err := s.changeAlone(ctx, "save registry", func(c *connection) error {
		now, err := revision(c.ctx, c)
		if err == nil && now != saved.Revision {
			err = &eventstore.RegistryError{Expected: saved.Revision, Actual: now}
		}
		if err != nil {
			return err
		}
		if _, err := c.exec(`UPDATE keyhold_store SET registry_revision = registry_revision + 1`); err != nil {
			return err
		}
		begun, err := c.newTo(saved.Handlers)
		if err != nil {
			return err
		}
		if err := c.saveRegistry(&saved); err != nil {
			return err
		}
		for i := range starts {
			if err := c.startAt(&starts[i]); err != nil {
				return err
			}
		}
		for _, b := range begun {
			if err := c.lookBehind(b.name, b.category); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save registry: %w", err)
	}
	return nil
}

type begins struct {
	name, category string
	own            bool
}

// newTo gives the categories that are new to handlers, where that is told to a relay.
func (c *connection) newTo(handlers []eventstore.Handler) (begun []begins, err error) {
	if !c.relayed {
		return nil, nil
	}
	known := make(map[begins]bool)
	if err := each(c.ctx, c, `SELECT s.handler, s.category, h.store_id = '' FROM keyhold_subscriptions s JOIN keyhold_handlers h ON h.name = s.handler`, nil, func(row rows) error {
		var s begins
		err := row.Scan(&s.name, &s.category, &s.own)
		known[s] = true
		return err
	}); err != nil {
		return nil, err
	}
	for i := range handlers {
		h := &handlers[i]
		for _, category := range h.Categories {
			if s := (begins{h.Name, category, h.StoreID == ""}); !known[s] {
				begun = append(begun, s)
			}
		}
	}
	return begun, nil
}

func (c *connection) saveRegistry(r *eventstore.Registered) error {
	var s script
	for _, category := range r.Categories {
		s.add(`INSERT INTO keyhold_categories (name, key_field, buckets, commands, store_id) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO UPDATE SET key_field = excluded.key_field, buckets = excluded.buckets, commands = excluded.commands, store_id = excluded.store_id`,
			[]any{category.Name, category.KeyField, category.Buckets, category.Commands, category.StoreID}, nil)
	}
	for i := range r.Handlers {
		if err := c.saveHandler(&s, &r.Handlers[i]); err != nil {
			return err
		}
	}
	for _, t := range r.Types {
		fields, err := json.Marshal(t.Fields)
		if err != nil {
			return err
		}
		s.add(`INSERT INTO keyhold_types (name, version, encoding, category, fields, descriptor) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (name, version) DO UPDATE SET encoding = excluded.encoding, category = excluded.category, fields = excluded.fields, descriptor = excluded.descriptor`,
			[]any{t.Name, t.Version, string(t.Encoding), t.Category, string(fields), t.Descriptor}, nil)
	}
	return s.run(c.ctx, c.conn)
}

func (c *connection) saveHandler(s *script, h *eventstore.Handler) error {
	types, err := json.Marshal(h.Types)
	if err != nil {
		return err
	}
	begins, err := json.Marshal(h.Begins)
	if err != nil {
		return err
	}
	s.add(`INSERT INTO keyhold_handlers AS h (name, kind, types, sequential, since, seen, store_id, begins) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, types = excluded.types, sequential = excluded.sequential, since = excluded.since,
			seen = greatest(h.seen, excluded.seen), store_id = excluded.store_id, begins = excluded.begins`,
		[]any{h.Name, string(h.Kind), string(types), h.Sequential, millis(h.Since), int64(c.generation), h.StoreID, string(begins)}, nil)
	s.add(`INSERT INTO keyhold_seen (name, generation) VALUES ($1, $2) ON CONFLICT DO NOTHING`, []any{h.Name, int64(c.generation)}, nil)
	s.add(`DELETE FROM keyhold_subscriptions WHERE handler = $1`, []any{h.Name}, nil)
	for i, category := range h.Categories {
		s.add(`INSERT INTO keyhold_subscriptions (category, handler, ordinal) VALUES ($1, $2, $3)`, []any{category, h.Name, i}, nil)
	}
	return nil
}

// placeAll places a subscriber in the lanes of a category in which it has no place: at the end, or before the first record from a time on.
const placeAll = `WITH places AS (
		SELECT n.id, CASE WHEN $3 THEN n.last
			ELSE coalesce((SELECT l.sequence FROM keyhold_log l WHERE l.lane = n.id AND l.time >= $4 ORDER BY l.sequence LIMIT 1) - 1, n.last) END AS at
		FROM keyhold_lanes n LEFT JOIN keyhold_checkpoints c ON c.name = $1 AND c.lane = n.id
		WHERE n.category = $2 AND coalesce(c.sequence, 0) = 0 AND n.last > 0),
	placed AS (
		INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id)
		SELECT $1, p.id, p.at, coalesce((SELECT l.id FROM keyhold_log l WHERE l.lane = p.id AND l.sequence = p.at), '') FROM places p WHERE p.at > 0 ORDER BY p.id
		ON CONFLICT (name, lane) DO UPDATE SET sequence = excluded.sequence, event_id = excluded.event_id RETURNING sequence)
	SELECT coalesce(sum(sequence), 0)::bigint FROM placed`

// startAt gives a new subscription a checkpoint in each lane of its category where it has none: in one statement, however many these are, for everybody who writes
// waits for it.
func (c *connection) startAt(s *eventstore.Start) error {
	if s.Foreign {
		return c.placeAt(s)
	}
	var sum int64
	if _, err := c.get(placeAll, []any{s.Handler, s.Category, s.Now, millis(s.From)}, &sum); err != nil {
		return err
	}
	if sum > 0 {
		c.counts.placed(s.Handler, s.Category, sum)
	}
	return nil
}

// placeAt gives a new subscription to a category of another application the checkpoints that are named.
func (c *connection) placeAt(s *eventstore.Start) error {
	refs := make([]event.LaneRef, len(s.Places))
	for i := range s.Places {
		refs[i] = s.Places[i].Lane
	}
	ids, err := c.lanes.of(c.ctx, refs)
	if err != nil {
		return err
	}
	for i, at := range s.Places {
		placed, err := c.get(`INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id) SELECT $1, $2, $3, $4 WHERE $3::bigint > 0
			ON CONFLICT DO NOTHING RETURNING 1`, []any{s.Handler, ids[i], int64(at.Sequence), at.EventID}, new(int))
		if err != nil {
			return err
		}
		if placed {
			c.counts.placed(s.Handler, s.Category, int64(at.Sequence))
		}
	}
	return nil
}

// CategoryHasEvents implements [eventstore.Registry].
func (s *Store) CategoryHasEvents(ctx context.Context, category string) (bool, error) {
	var has bool
	err := s.read(ctx, func(r *readers) error {
		_, err := get(ctx, r, `SELECT EXISTS (SELECT 1 FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id WHERE n.category = $1)`, []any{category}, &has)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for events in category %q: %w", category, err)
	}
	return has, nil
}
