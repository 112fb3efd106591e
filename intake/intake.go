package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

const (
	placesAtOnce  = 500   // places that one call asks the store for
	newsAtOnce    = 4_096 // streams that one call of the broker is asked about
	readsAtOnce   = 64    // streams that are read together
	entriesAtOnce = 128   // entries that are read of a stream together
	eventsAtOnce  = 1_000 // events, about, that one transaction takes in
	checksARound  = 2     // quiet streams that are looked at closely in each round: one whose ids went back has no news
)

// Config is what an [Intake] is made of. All but Check, Committed and Observer must be set.
type Config struct {
	Category  string // into which entries go
	Source    string // what stands before the key in the names of streams
	Store     Store
	Broker    transport.Polling
	Keys      event.KeyRules
	Retention time.Duration // of event ids in the store
	// Check says what is wrong with a record, which is as its entry says: it fills in an empty Encoding, and refuses a key that is not that of the data.
	Check     func(*event.Envelope) error
	Committed func(ctx context.Context, tails []event.Tail) // is told which lanes grew
	Observer  Observer
	Now       func() time.Time // default time.Now
}

// Store is what it needs of a store.
type Store interface {
	eventstore.Beginner
	eventstore.Intake
}

// Observer is told what happens. Its functions must not block; any may be nil.
type Observer struct {
	Taken      func(category string, records, repeated int)            // became records; were there already
	Malformed  func(lane event.LaneRef, entry string, why string)      // is no event, and poison to handlers
	Lost       func(lane event.LaneRef, source string, entries uint64) // were gone before they were taken in
	Anew       func(lane event.LaneRef, source string)                 // the stream is another than before: what it had is gone
	BadKey     func(source, key string, err error)                     // is in the index, and can be no partition key
	Unreadable func(lane event.LaneRef, source string, err error)      // is no stream, or cannot be read
}

// Intake takes in the streams of one source. Its methods are called by one goroutine at a time; several processes may take in the same, which is wasteful and does no harm.
type Intake struct {
	cfg     Config
	places  map[string]*place
	bad     map[string]bool // keys that were told of
	close   bool            // all streams are to be looked at closely
	again   map[string]bool // streams likewise, which could not be read
	from    string          // where the look for streams that nobody indexed goes on
	checked int             // of the keys in order, how many were looked at closely since the last turn
}

// place is how far a stream is taken in, as far as is known here.
type place struct {
	event.SourcePlace
	revision uint64
}

// New makes one that knows nothing yet.
func New(cfg Config) *Intake {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Check == nil {
		cfg.Check = func(*event.Envelope) error { return nil }
	}
	i := &Intake{cfg: cfg, bad: make(map[string]bool), again: make(map[string]bool)}
	i.Forget()
	return i
}

// Forget has the next round ask the store for all places and look closely at all streams: others have taken in meanwhile, or the broker has lost its memory.
func (i *Intake) Forget() {
	i.places, i.close = make(map[string]*place), true
}

// Round looks once at all streams that are known or in the index, takes in what is new, and goes on looking for others by one step. What goes wrong with one stream does not keep
// it from the others; what is not taken in is so by the next round.
func (i *Intake) Round(ctx context.Context) error {
	next, found := i.cfg.Broker.FindSources(ctx, i.cfg.Source, i.from)
	if found == nil {
		i.from = next
	}
	keys, err := i.index(ctx)
	if err != nil {
		return err
	}
	if err := i.recall(ctx, keys); err != nil {
		return err
	}
	wanted, err := i.wanted(ctx, keys)
	if err != nil {
		return err
	}
	if err := i.take(ctx, wanted); err != nil {
		return err
	}
	i.close = false
	return found
}

// CatchUp takes in everything that there is, wherever it is.
func (i *Intake) CatchUp(ctx context.Context) error {
	i.Forget()
	for from := ""; ; {
		next, err := i.cfg.Broker.FindSources(ctx, i.cfg.Source, from)
		if err != nil {
			return err
		}
		if from = next; from == "" {
			return i.Round(ctx)
		}
	}
}

// index gives the keys of the index that can be keys, in order.
func (i *Intake) index(ctx context.Context) (keys []string, err error) {
	for cursor := uint64(0); ; {
		page, next, err := i.cfg.Broker.Sources(ctx, i.cfg.Source, cursor)
		if err != nil {
			return nil, err
		}
		for _, key := range page {
			if err := i.cfg.Keys.Check(key); err == nil {
				keys = append(keys, key)
			} else if !i.bad[key] {
				i.bad[key] = true
				if f := i.cfg.Observer.BadKey; f != nil {
					f(i.cfg.Source, key, err)
				}
			}
		}
		if cursor = next; cursor == 0 {
			slices.Sort(keys)
			return slices.Compact(keys), nil
		}
	}
}

func (i *Intake) ref(key string) eventstore.SourceRef {
	return eventstore.SourceRef{Category: i.cfg.Category, Key: key, Source: i.cfg.Source}
}

func (i *Intake) lane(key string) event.LaneRef {
	return event.LaneRef{Category: i.cfg.Category, Key: key}
}

// recall asks the store for places that are not known here.
func (i *Intake) recall(ctx context.Context, keys []string) error {
	var asked []eventstore.TakenAsk
	ask := func() error {
		found, err := i.cfg.Store.Taken(ctx, asked)
		if err != nil {
			return err
		}
		for n := range found {
			i.places[asked[n].Key] = &place{found[n].Place, found[n].Revision}
		}
		asked = asked[:0]
		return nil
	}
	for _, key := range keys {
		if i.places[key] != nil {
			continue
		}
		if asked = append(asked, eventstore.TakenAsk{SourceRef: i.ref(key)}); len(asked) == placesAtOnce {
			if err := ask(); err != nil {
				return err
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	return ask()
}

// wanted gives the keys whose streams are to be read: those that have news, and some to be looked at closely.
func (i *Intake) wanted(ctx context.Context, keys []string) (wanted []string, err error) {
	if i.close {
		return keys, nil
	}
	closely := make(map[string]bool, checksARound)
	for range min(checksARound, len(keys)) {
		closely[keys[i.checked%len(keys)]] = true
		i.checked = (i.checked + 1) % len(keys)
	}
	for page := range slices.Chunk(keys, newsAtOnce) {
		at := make([]transport.SourceAt, len(page))
		for n, key := range page {
			at[n] = transport.SourceAt{Key: key, Entry: i.places[key].Entry}
		}
		news, err := i.cfg.Broker.News(ctx, i.cfg.Source, at)
		if err != nil {
			return nil, err
		}
		for n, key := range page {
			if news[n] || closely[key] || i.again[key] {
				wanted = append(wanted, key)
			}
		}
	}
	return wanted, nil
}

// take takes in streams until none of them has any more.
func (i *Intake) take(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		batch := keys[:min(readsAtOnce, len(keys))]
		keys = keys[len(batch):]
		more, err := i.takeBatch(ctx, batch)
		keys = append(slices.Clone(keys), more...)
		if err != nil { // of the store: it would be so of the others
			return err
		}
	}
	return nil
}

// arrival is what came of one stream, to be committed.
type arrival struct {
	key   string
	lost  uint64
	to    event.SourcePlace
	anew  bool
	more  bool
	taken []taken
}

// takeBatch takes in a part of some streams, and gives those that have more.
func (i *Intake) takeBatch(ctx context.Context, keys []string) (more []string, err error) {
	arrivals := i.read(ctx, keys)
	var faults []error
	for len(arrivals) > 0 {
		n, events := 0, 0
		for n < len(arrivals) && (n == 0 || events+len(arrivals[n].taken) <= eventsAtOnce) {
			events += len(arrivals[n].taken)
			n++
		}
		group := arrivals[:n]
		arrivals = arrivals[n:]
		switch err := i.commit(ctx, group); {
		case err == nil:
			for _, a := range group {
				if a.more {
					more = append(more, a.key)
				}
			}
		default:
			for _, a := range group {
				delete(i.places, a.key)
			}
			if !errors.Is(err, eventstore.ErrTakenMoved) { // another takes in as well: where it is shows the next round
				faults = append(faults, fmt.Errorf("take in streams of %s: %w", i.cfg.Source, err))
			}
		}
	}
	return more, errors.Join(faults...)
}

// read reads streams; those that are another than they were it reads once more, from their beginning.
func (i *Intake) read(ctx context.Context, keys []string) (arrivals []arrival) {
	var at []transport.SourceAt
	for _, key := range keys {
		at = append(at, transport.SourceAt{Key: key, Entry: i.places[key].Entry})
	}
	var again []transport.SourceAt
	arrive := func(at transport.SourceAt, from event.SourcePlace, first bool, r *transport.SourceRead, anew bool) {
		if r.Err != nil {
			i.again[at.Key] = true
			if f := i.cfg.Observer.Unreadable; f != nil {
				f(i.lane(at.Key), i.cfg.Source, r.Err)
			}
			return
		}
		delete(i.again, at.Key)
		d := decide(from, first, r)
		if d.anew {
			if !anew { // else it has changed again: the next round sees
				again = append(again, transport.SourceAt{Key: at.Key, Entry: beginning(from, r, i.cfg.Now().Add(-i.cfg.Retention)).Entry})
			}
			return
		}
		if d.to == i.places[at.Key].SourcePlace && len(r.Entries) == 0 && d.lost == 0 {
			return
		}
		a := arrival{key: at.Key, lost: d.lost, to: d.to, anew: anew, more: d.more}
		s := stream{category: i.cfg.Category, key: at.Key, source: i.cfg.Source, now: i.cfg.Now(), check: i.cfg.Check}
		for n := range r.Entries {
			a.taken = append(a.taken, s.take(&r.Entries[n]))
		}
		arrivals = append(arrivals, a)
	}
	for n, r := range i.cfg.Broker.ReadSources(ctx, i.cfg.Source, at, entriesAtOnce) {
		p := i.places[at[n].Key]
		arrive(at[n], p.SourcePlace, p.revision == 0, &r, false)
	}
	if len(again) > 0 {
		at, again = again, nil
		for n, r := range i.cfg.Broker.ReadSources(ctx, i.cfg.Source, at, entriesAtOnce) {
			arrive(at[n], event.SourcePlace{Entry: at[n].Entry}, false, &r, true)
		}
	}
	return arrivals
}

// commit takes in what has arrived, less what was before.
func (i *Intake) commit(ctx context.Context, group []arrival) error {
	asked := make([]eventstore.TakenAsk, len(group))
	for n, a := range group {
		asked[n].SourceRef = i.ref(a.key)
		for _, t := range a.taken {
			asked[n].IDs = append(asked[n].IDs, t.known)
		}
	}
	before, err := i.cfg.Store.Taken(ctx, asked)
	if err != nil {
		return err
	}
	var c eventstore.Changes
	entries := 0
	for n, a := range group {
		p := i.places[a.key]
		if before[n].Revision != p.revision {
			return eventstore.ErrTakenMoved
		}
		take := eventstore.Take{SourceRef: asked[n].SourceRef, Revision: p.revision, To: a.to, Time: i.cfg.Now(), Lost: a.lost}
		seen := make(map[string]bool, len(a.taken))
		for m, t := range a.taken {
			if !before[n].Known[m] && !seen[t.known] {
				take.IDs = append(take.IDs, t.known)
				c.Publish = append(c.Publish, t.record)
			}
			seen[t.known] = true
		}
		entries += len(a.taken)
		c.Take = append(c.Take, take)
	}
	done, err := i.cfg.Store.Begin("intake of "+i.cfg.Category).Commit(ctx, c)
	if err != nil {
		return err
	}
	for n, a := range group {
		i.places[a.key] = &place{a.to, c.Take[n].Revision + 1}
	}
	if i.cfg.Committed != nil && len(done.Tails) > 0 {
		i.cfg.Committed(ctx, done.Tails)
	}
	i.tell(group, &c, entries)
	return nil
}

// tell has the observer know what is durable.
func (i *Intake) tell(group []arrival, c *eventstore.Changes, entries int) {
	o := &i.cfg.Observer
	if o.Taken != nil && entries > 0 {
		o.Taken(i.cfg.Category, len(c.Publish), entries-len(c.Publish))
	}
	for _, a := range group {
		if a.anew && o.Anew != nil {
			o.Anew(i.lane(a.key), i.cfg.Source)
		}
		if a.lost > 0 && o.Lost != nil {
			o.Lost(i.lane(a.key), i.cfg.Source, a.lost)
		}
	}
	for n := range c.Publish {
		if e := &c.Publish[n]; e.Type == event.Malformed && o.Malformed != nil {
			m := event.MalformedIn(e)
			o.Malformed(e.Ref(), m.Entry, m.Why)
		}
	}
}
