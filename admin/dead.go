package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// DeadQuery selects dead letters. Zero fields select all.
type DeadQuery struct {
	Filter
	Cursor string
	Limit  int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// DeadLetter is an event that one handler set aside and went on without.
type DeadLetter struct {
	Handler  string    `json:"handler"`
	Key      string    `json:"key"` // of the unit
	At       Place     `json:"at"`
	Type     string    `json:"type"`
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since"`
	Event    *Event    `json:"event,omitempty"` // when one is shown
	Words    string    `json:"words,omitempty"` // when one is shown: how many later events were applied
}

// DeadGroup is how many dead letters of a handler have one reason and one type.
type DeadGroup struct {
	Handler string    `json:"handler"`
	Reason  string    `json:"reason"`
	Type    string    `json:"type"`
	Count   int       `json:"count"`
	Oldest  time.Time `json:"oldest"`
	Newest  time.Time `json:"newest"`
}

// DeadLetters lists dead letters in order of (handler, key, category, lane, sequence). A page looks at no more than [MaxLimit] of them.
func (d *Desk) DeadLetters(ctx context.Context, q DeadQuery) (Page[DeadLetter], error) {
	var after deadPlace
	p, err := page("dead letters", q.Limit, q.Cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[DeadLetter]{}, err
	}
	r, err := d.store.LoadRegistry(ctx)
	if err == nil {
		err = checkNames(r, q.Handler, "")
	}
	if err != nil {
		return Page[DeadLetter]{}, err
	}
	names := handlerNames(r)
	if q.Handler != "" {
		names = []string{q.Handler}
	}
	out := Page[DeadLetter]{Items: []DeadLetter{}}
	for left := MaxLimit; ; {
		i, found := slices.BinarySearch(names, after.Handler)
		switch {
		case i == len(names):
			return out, nil
		case left <= 0:
			out.Next = p.cursor(after)
			return out, nil
		case !found:
			after = deadPlace{Handler: names[i]}
		}
		rows, through, err := d.deadOfHandler(ctx, after, q.Key, min(left, 1000))
		if err != nil {
			return Page[DeadLetter]{}, err
		}
		left -= len(rows)
		for _, row := range rows {
			if len(out.Items) == p.limit {
				out.Next = p.cursor(after)
				return out, nil
			}
			after.Position = event.Position{Lane: row.Lane, Sequence: row.Sequence}
			if q.matches(row) {
				out.Items = append(out.Items, deadOf(row))
			}
		}
		if through {
			after = deadPlace{Handler: names[i] + "\x00"} // the next name
		}
	}
}

// deadOfHandler reads dead letters of one handler, and of one key if it is given; through says that there are no more of them.
func (d *Desk) deadOfHandler(ctx context.Context, after deadPlace, key string, limit int) (rows []eventstore.Dead, through bool, err error) {
	if key != "" && after.Position.Lane.Key == "" { // the order begins with the key
		after.Position.Lane.Key = key
	}
	rows, err = d.store.ListDead(ctx, after.Handler, after.Position, limit)
	through = len(rows) < limit
	if key == "" {
		return rows, through, err
	}
	if i := slices.IndexFunc(rows, func(l eventstore.Dead) bool { return l.Unit.Key != key }); i >= 0 {
		rows, through = rows[:i], true
	}
	return rows, through, err
}

// deadPlace is where a page of dead letters ends.
type deadPlace struct {
	Handler  string
	Position event.Position
}

func (f Filter) matches(l eventstore.Dead) bool {
	return (f.Key == "" || f.Key == l.Unit.Key) && (f.Type == "" || f.Type == l.Type) && (f.Reason == "" || f.Reason == l.Reason) &&
		(f.EventID == "" || f.EventID == l.EventID) && (f.From.IsZero() || !l.Time.Before(f.From)) && (f.Until.IsZero() || l.Time.Before(f.Until))
}

func deadOf(l eventstore.Dead) DeadLetter {
	return DeadLetter{
		Handler: l.Unit.Name, Key: l.Unit.Key, At: placeOf(l.Lane, l.Sequence, l.EventID), Type: l.Type, Attempts: l.Attempts,
		Reason: l.Reason, Error: l.Error, Since: l.Time,
	}
}

// DeadLetter shows one, named by its unit and its place (EventID does not count).
func (d *Desk) DeadLetter(ctx context.Context, u event.Unit, at Place, payload bool) (DeadLetter, error) {
	err := checkUnit(u)
	if at.Sequence == 0 {
		err = joinUsage(err, "no sequence is given: a dead letter is named by its place")
	}
	if err = d.begin(err); err != nil {
		return DeadLetter{}, err
	}
	rows, err := d.store.ListDead(ctx, u.Name, event.Position{Lane: at.lane(), Sequence: event.Sequence(at.Sequence - 1)}, 1)
	if err != nil {
		return DeadLetter{}, err
	}
	if len(rows) == 0 || rows[0].Unit != u || rows[0].Lane != at.lane() || uint64(rows[0].Sequence) != at.Sequence {
		if err := d.checkNames(ctx, u.Name, ""); err != nil {
			return DeadLetter{}, err
		}
		return DeadLetter{}, &NotFoundError{What: "dead letter", Name: u.Name + " " + u.Key + " at " + at.String()}
	}
	l := deadOf(rows[0])
	e, err := d.Event(ctx, l.At, payload)
	if err != nil {
		return DeadLetter{}, err
	}
	l.Event = &e
	l.Words, err = d.passed(ctx, rows[0])
	return l, err
}

// DeadGroups counts dead letters by handler, reason and type, most first. more says that only the first [MaxLimit] of a handler were counted.
func (d *Desk) DeadGroups(ctx context.Context, handler string) (groups []DeadGroup, more bool, err error) {
	if err := d.ready(); err != nil {
		return nil, false, err
	}
	r, err := d.store.LoadRegistry(ctx)
	if err == nil {
		err = checkNames(r, handler, "")
	}
	if err != nil {
		return nil, false, err
	}
	names := handlerNames(r)
	if handler != "" {
		names = []string{handler}
	}
	groups = []DeadGroup{}
	for _, name := range names {
		rows, err := d.store.ListDead(ctx, name, event.Position{}, MaxLimit)
		if err != nil {
			return nil, false, err
		}
		more = more || len(rows) == MaxLimit
		groups = append(groups, grouped(name, rows)...)
	}
	slices.SortStableFunc(groups, func(a, b DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type))
	})
	return groups, more, nil
}

func grouped(handler string, rows []eventstore.Dead) (groups []DeadGroup) {
	at := map[[2]string]int{}
	for _, l := range rows {
		i, ok := at[[2]string{l.Reason, l.Type}]
		if !ok {
			i = len(groups)
			at[[2]string{l.Reason, l.Type}] = i
			groups = append(groups, DeadGroup{Handler: handler, Reason: l.Reason, Type: l.Type, Oldest: l.Time, Newest: l.Time})
		}
		g := &groups[i]
		g.Count++
		if l.Time.Before(g.Oldest) {
			g.Oldest = l.Time
		}
		if l.Time.After(g.Newest) {
			g.Newest = l.Time
		}
	}
	return groups
}
