package keyhold

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/intake"
	"github.com/keyhold/keyhold/transport"
)

// polledFaults gives what is wrong with a polled category by itself.
func (c Category) polledFaults(add func(format string, args ...any)) {
	if err := event.CheckDeclaredName(c.Polled); err != nil {
		add("Polled: %w", err)
	}
	switch {
	case c.Foreign:
		add("Foreign and Polled are both set: Foreign is for producers that are Keyhold applications, or number their events as docs/wire.md says; drop one")
	case c.Polled == c.Name:
		add("Polled is the name of the category itself, whose streams are Keyhold's own: give the category another name; what other programs write is called as Polled says")
	case c.Buckets != 0:
		add("Polled with Buckets: what other programs write is told by the key in the names of their streams; set Key")
	case len(c.Events) == 0:
		add("Polled without Events: name the types that are read, with EventOf[TheirEvent]()")
	}
}

// sources checks what is polled against everything else: a category of its name would have its streams, and two that take in the same would have each event twice.
func (r *resolver) sources() {
	taken := map[string]string{}
	for _, name := range r.plan.order {
		c := r.plan.categories[name]
		if c.Polled == "" {
			continue
		}
		if other := r.plan.categories[c.Polled]; other != nil && c.Polled != name {
			r.addf("category %q: Polled is %q, which is a category of this application, whose streams are Keyhold's own: give one of the two another name", name, c.Polled)
		}
		if other, ok := taken[c.Polled]; ok {
			r.addf("category %q: Polled is %q, as is that of category %q: put the Events of both into one", name, c.Polled, other)
		}
		if c.Key == "" {
			r.addf("category %q: Polled without a Key: name the field of its events that has the key of their stream", name)
		}
		taken[c.Polled] = name
	}
}

// polled gives the categories that other programs produce, in order.
func (p *plan) polled() []string {
	return slices.DeleteFunc(slices.Clone(p.order), func(name string) bool { return p.categories[name].Polled == "" })
}

// intake makes what takes a category in.
func (r *running) intake(c *category, broker transport.Polling, o intake.Observer, committed func(context.Context, []event.Tail)) *intake.Intake {
	cfg := &r.app.cfg
	return intake.New(intake.Config{
		Category: c.Name, Source: c.Polled, Store: cfg.Store, Broker: broker, Keys: cfg.keyRules(), Retention: cfg.Retention, Check: r.router.checkTaken, Observer: o,
		Committed: committed,
	})
}

// checkTaken fills in how a record is encoded, where its entry does not say, and tells what is wrong with it. What does not decode is left to the handlers, to whom it is poison.
func (r *router) checkTaken(e *event.Envelope) error {
	usual, err := r.types.EncodingOf(e.Type, e.Version)
	if err != nil {
		return nil // of a type that this program does not know: whoever does may read it
	}
	if e.Encoding == "" {
		e.Encoding = usual
	}
	v, err := decodeSafely(r.types, e)
	if err != nil {
		return nil
	}
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	to, known := r.routes[t]
	if !known || to.key == nil {
		return nil
	}
	if to.category != e.Category {
		return fmt.Errorf("its type %s is one of category %q", e.Type, to.category)
	}
	key, err := to.keyOf(v, "")
	if err == nil && key != e.Key {
		err = fmt.Errorf("its field %s is %q, and the stream is that of %q", to.field, key, e.Key)
	}
	return err
}

// decodeSafely runs code of the application: the UnmarshalJSON of its types.
func decodeSafely(types *codec.Registry, e *event.Envelope) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("decode %q: panic: %v", e.Type, p)
		}
	}()
	return types.Decode(codec.Encoded{Type: e.Type, Version: e.Version, Encoding: e.Encoding, Data: e.Data})
}

// takeInFirst takes everything in that there is of a category, before a handler is registered that begins behind it, or at a time.
func (r *running) takeInFirst(ctx context.Context, p *plan) error {
	broker, ok := r.app.cfg.Transport.(transport.Broker)
	names := p.polled()
	if !ok || len(names) == 0 {
		return nil
	}
	known, err := r.app.cfg.Store.LoadRegistry(ctx)
	if err != nil {
		return fmt.Errorf("load registry: %w", err)
	}
	for _, name := range names {
		begins := func(d actors.Description) bool {
			_, at := d.StartFrom.Time()
			if !slices.Contains(d.Categories, name) || d.StartFrom != actors.Now && !at {
				return false
			}
			for i := range known.Handlers {
				if h := &known.Handlers[i]; h.Name == d.Name && slices.Contains(h.Categories, name) {
					return false
				}
			}
			return true
		}
		if !slices.ContainsFunc(p.descriptions, begins) {
			continue
		}
		in := r.intake(p.categories[name], broker, r.app.takes(p.categories[name], new(rarely)), nil) // nobody works yet who could be told
		if err := in.CatchUp(ctx); err != nil {
			return fmt.Errorf("take in what there is of category %q, which a new handler is to begin behind: %w", name, err)
		}
	}
	return nil
}

// poll is one category that other programs produce. One node takes it in, which has the part that its name stands for.
type poll struct {
	*intake.Intake
	part   event.Part
	held   bool        // at the last round
	forgot atomic.Bool // the broker has lost its memory since
}

func (c *shared) newPoll(of *category) *poll {
	committed := func(ctx context.Context, tails []event.Tail) { c.r.app.transportFault(c.r.committed(ctx, tails)) }
	return &poll{Intake: c.r.intake(of, c.broker, c.r.app.takes(of, &c.once), committed), part: event.PartOf(event.PartName, "polled "+of.Name)}
}

// poll looks at the streams once a heartbeat.
func (c *shared) poll(ctx context.Context) {
	if len(c.polled) == 0 {
		return
	}
	tick := time.NewTicker(c.beat)
	defer tick.Stop()
	for {
		for _, p := range c.polled {
			c.pollOnce(ctx, p)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pollTimeout is for one round. What it had no time for the next one goes on with.
const pollTimeout = time.Minute

func (c *shared) pollOnce(ctx context.Context, p *poll) {
	holds := c.carries() && c.node.Holds(p.part)
	if p.forgot.Swap(false) || holds && !p.held {
		p.Forget()
	}
	if p.held = holds; !holds {
		return
	}
	within, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	if err := p.Round(within); err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		rareLog(c.r.app.cfg.Logger, &c.once, "streams of other programs were not all looked at: tried again", "poll", err)
		call2(c.r.app.toldOfNodes().Trouble, "poll", err)
	}
}

// takes logs what becomes of what other programs write.
func (a *App) takes(of *category, once *rarely) intake.Observer {
	log, told := a.cfg.Logger, a.toldOfNodes()
	return intake.Observer{
		Taken: func(category string, records, repeated int) {
			if records > 0 {
				call2(told.TakenIn, category, records)
			}
			if repeated > 0 {
				call2(told.Repeated, category, repeated)
				log.Debug("events were taken in before and came again", "category", category, "entries", repeated)
			}
		},
		Malformed: func(lane event.LaneRef, entry, why string) {
			call(told.Malformed, lane.Category)
			log.Error("an entry of a polled stream is no event: it is poison to the handlers of its key", "stream", of.Polled+":"+lane.Key, "entry", entry, "why", why)
		},
		Lost: func(lane event.LaneRef, source string, entries uint64) {
			call2(told.Gone, lane.Category, int(entries))
			log.Error("entries of a polled stream were gone before they were taken in, and no handler gets them: have its producer trim less (MAXLEN, MINID), and see for how long nobody polled",
				"stream", source+":"+lane.Key, "category", lane.Category, "entries", entries)
		},
		Anew: func(lane event.LaneRef, source string) {
			log.Warn("a polled stream is another than before, or lost its end: what it had that was not taken in is gone; what it has now is taken in", "stream", source+":"+lane.Key, "category", lane.Category)
		},
		BadKey: func(source, key string, err error) {
			log.Warn("a name in the index of a polled source can be no partition key, and its stream is not read: have the producer use another, and take it out of the index (SREM)",
				"index", source+":__partitions__", "error", err)
		},
		Unreadable: func(_ event.LaneRef, _ string, err error) {
			rareLog(log, once, "a polled stream was not read: tried again", "read a polled stream", err)
		},
	}
}
