package eventstoretest

import (
	"errors"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// unfit are texts that no identifier may be.
var unfit = map[string]string{
	"a zero byte":         "a\x00b",
	"an escape":           "\x1b[2J",
	"no UTF-8":            "a\xffb",
	"longer than allowed": strings.Repeat("i", event.MaxID+1),
	"a megabyte":          strings.Repeat("i", 1<<20),
}

// odd is a text for people that not every database keeps as it is.
const odd = "no \x00 carrier \xff\xfe, \x1b[31mred"

// shown is such a text as it may come back.
func shown(s string) string { return event.Text(s, len(s)*3) }

// refusedID checks that err says which identifier is wrong, in few words.
func (f *fixture) refusedID(what string, err error) {
	f.Helper()
	wrong, is := errors.AsType[*event.IDError](err)
	if !is || !errors.Is(err, event.ErrBadID) || wrong.What == "" || len(err.Error()) > 1000 {
		f.Errorf("%s: got %.1000v, want an *IDError", what, err)
	}
}

var texts = []check{
	{"an identifier that is none is refused, and named", func(f *fixture) {
		for name, text := range unfit {
			for what, set := range map[string]func(e *event.Envelope){
				"category":    func(e *event.Envelope) { e.Category = text },
				"key":         func(e *event.Envelope) { e.Key = text },
				"event id":    func(e *event.Envelope) { e.ID = text },
				"type":        func(e *event.Envelope) { e.Type = text },
				"tenant":      func(e *event.Envelope) { e.Tenant = text },
				"correlation": func(e *event.Envelope) { e.CorrelationID = text },
				"causation":   func(e *event.Envelope) { e.CausationID = text },
				"traceparent": func(e *event.Envelope) { e.Trace.Parent = text },
				"tracestate":  func(e *event.Envelope) { e.Trace.State = text },
			} {
				e := f.event("order", "a")
				set(&e)
				_, err := f.try(eventstore.Changes{Publish: []event.Envelope{f.event("order", "a"), e}})
				f.refusedID("publish, "+what+" with "+name, err)
				_, err = f.try(eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Events: []event.Envelope{e}}}})
				f.refusedID("append, "+what+" with "+name, err)
			}
			_, err := f.try(eventstore.Changes{Reply: &eventstore.Reply{Stream: order7, CommandID: text, Time: base}})
			f.refusedID("reply to a command with "+name, err)
			_, err = f.store.Act(f.ctx, doing(eventstore.ActPause, event.Unit{Name: "shipping", Key: text}))
			f.refusedID("pause of a key with "+name, err)
			_, err = f.store.Act(f.ctx, doing(eventstore.ActPause, event.Unit{Name: text, Key: "a"}))
			f.refusedID("pause of a handler with "+name, err)
			for what, filter := range map[string]eventstore.Filter{
				"handler": {Handler: text}, "key": {Handler: "shipping", Key: text}, "type": {Handler: "shipping", Type: text}, "event": {Handler: "shipping", EventID: text},
			} {
				_, err = f.store.StartJob(f.ctx, eventstore.Job{Kind: eventstore.JobPurge, Filter: filter, Actor: "ann", Reason: "old"})
				f.refusedID("job by "+what+" with "+name, err)
			}
		}
		f.same("lane", f.lane(orders), []event.Envelope{})
		f.same("acts", f.actsAfter(0, 10), []eventstore.ActRecord{})
	}},
	{"what nothing can be called is not looked for, and named", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		for name, text := range unfit {
			key, named, in, of := event.Unit{Name: "shipping", Key: text}, event.Unit{Name: text, Key: "a"}, event.LaneRef{Category: "order", Key: text}, event.Stream{Kind: "order", ID: text}
			for what, look := range map[string]func() error{
				"state of a key":     func() error { _, err := f.store.UnitState(f.ctx, key); return err },
				"state of a handler": func() error { _, err := f.store.UnitState(f.ctx, named); return err },
				"stream":             func() error { _, err := f.store.ReadStream(f.ctx, of, 0, 1); return err },
				"stream of a kind":   func() error { _, err := f.store.ReadStream(f.ctx, event.Stream{Kind: text, ID: "7"}, 0, 1); return err },
				"snapshot":           func() error { _, err := f.store.ReadSnapshot(f.ctx, of); return err },
				"reply":              func() error { _, err := f.store.ReadReply(f.ctx, of, "c-1"); return err },
				"reply to a command": func() error { _, err := f.store.ReadReply(f.ctx, order7, text); return err },
				"lane":               func() error { _, err := f.store.ReadLane(f.ctx, in, 0, 1); return err },
				"lane of a category": func() error { _, err := f.store.ReadLane(f.ctx, lane(text, "a"), 0, 1); return err },
				"tail":               func() error { _, err := f.store.LaneTail(f.ctx, in); return err },
				"abandon":            func() error { return f.store.Abandon(f.ctx, in, 1, "erased") },
				"halts":              func() error { _, err := f.store.ListHalts(f.ctx, text, event.Unit{}, 1); return err },
				"halts after a key":  func() error { _, err := f.store.ListHalts(f.ctx, "", key, 1); return err },
				"dead letters":       func() error { _, err := f.store.ListDead(f.ctx, text, event.Position{}, 1); return err },
				"dead letters after": func() error { _, err := f.store.ListDead(f.ctx, "shipping", event.Position{Lane: in}, 1); return err },
				"dead letters after a category": func() error {
					_, err := f.store.ListDead(f.ctx, "shipping", event.Position{Lane: lane(text, "a")}, 1)
					return err
				},
				"partitions after a category": func() error {
					_, err := f.store.ListPartitions(f.ctx, eventstore.PartitionQuery{After: eventstore.PartitionPlace{Name: "shipping", Lane: lane(text, "a")}, Limit: 1})
					return err
				},
				"parked":             func() error { _, err := f.store.ListParked(f.ctx, key, 0, 1); return err },
				"parking":            func() error { _, err := f.store.ListParking(f.ctx, text, event.Unit{}, 1); return err },
				"pauses":             func() error { _, err := f.store.ListPauses(f.ctx, text, event.Unit{}, 1); return err },
				"pauses after a key": func() error { _, err := f.store.ListPauses(f.ctx, "", key, 1); return err },
				"acts of a handler":  func() error { _, err := f.store.ListActs(f.ctx, eventstore.ActQuery{Name: text, Limit: 1}); return err },
				"acts of a key": func() error {
					_, err := f.store.ListActs(f.ctx, eventstore.ActQuery{Name: "shipping", Key: text, Limit: 1})
					return err
				},
				"partitions": func() error {
					_, err := f.store.ListPartitions(f.ctx, eventstore.PartitionQuery{Name: text, Limit: 1})
					return err
				},
				"partitions of": func() error {
					_, err := f.store.ListPartitions(f.ctx, eventstore.PartitionQuery{Category: text, Limit: 1})
					return err
				},
				"partitions after": func() error {
					_, err := f.store.ListPartitions(f.ctx, eventstore.PartitionQuery{After: eventstore.PartitionPlace{Name: "shipping", Lane: in}, Limit: 1})
					return err
				},
				"projection": func() error { _, err := f.store.ReadProjection(f.ctx, text); return err },
				"act on a projection": func() error {
					_, err := f.store.ActOnProjection(f.ctx, eventstore.ProjectionAct{Kind: eventstore.ActPause, Name: text, Actor: "ann"})
					return err
				},
				"event of a projection": func() error {
					_, err := f.store.ActOnProjection(f.ctx, eventstore.ProjectionAct{Kind: eventstore.ActRetry, Name: "totals", Event: text, Actor: "ann"})
					return err
				},
				"lanes that diverged": func() error { _, err := f.store.ListDiverged(f.ctx, in, 1); return err },
				"adopt": func() error {
					_, err := f.store.Adopt(f.ctx, event.Position{Lane: in, Sequence: 1}, "ann", "lost")
					return err
				},
				"adopt an event": func() error {
					_, err := f.store.Adopt(f.ctx, event.Position{Lane: orders, Sequence: 1, EventID: text}, "ann", "lost")
					return err
				},
				"count of a job": func() error {
					_, _, err := f.store.CountJob(f.ctx, eventstore.JobPurge, eventstore.Filter{Handler: "shipping", Key: text})
					return err
				},
			} {
				f.refusedID(what+" with "+name, look())
			}
			if _, _, err := f.store.CountJob(f.ctx, eventstore.JobPurge, eventstore.Filter{Handler: "shipping", Reason: text}); err != nil {
				f.Errorf("count of a job by a reason with %s: %v", name, err)
			}
		}
	}},
	{"a page may begin behind whatever a store can have, and behind nothing else", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		for name, text := range unfit {
			for what, page := range map[string]func() error{
				"abandoned": func() error {
					_, err := f.store.Abandoned(f.ctx, event.Position{Lane: lane("order", text)}, 1)
					return err
				},
				"abandoned of a category": func() error { _, err := f.store.Abandoned(f.ctx, event.Position{Lane: lane(text, "a")}, 1); return err },
				"not passed": func() error {
					_, err := f.store.Unpassed(f.ctx, "shipping", "order", lane("order", text), 1)
					return err
				},
				"not passed of": func() error { _, err := f.store.Unpassed(f.ctx, "shipping", text, event.LaneRef{}, 1); return err },
				"units that are due": func() error {
					_, err := f.store.DueUnits(f.ctx, event.Unit{Name: "shipping", Key: text}, 1)
					return err
				},
			} {
				if err := page(); err != nil { // where it cannot be
					f.refusedID(what+" after "+name, err)
				}
			}
		}
	}},
	{"an identifier of the greatest length is kept, also beside the longest keys", func(f *fixture) {
		long, key := strings.Repeat("é", event.MaxID/2), strings.Repeat("k", event.MaxKey)
		e := f.event("order", key)
		e.ID, e.Tenant, e.CorrelationID, e.CausationID, e.Trace = long, long, long, long, event.Trace{Parent: long, State: long}
		stream := event.Stream{Kind: key, ID: key}
		f.emit(stream, 0, e)
		f.same("lane", f.lane(lane("order", key)), ofStream(stream, 1, f.placed(1, e)))
		r := eventstore.Reply{Stream: stream, CommandID: long, Command: "order.place", Time: base}
		f.commit(eventstore.Changes{Reply: &r})
		f.same("reply", f.reply(stream, long), &r)
		u := event.Unit{Name: key, Key: key}
		c := advance(u, lane("order", key), 0, 1)
		c.Advance[0].EventID = long
		f.commit(c)
		f.same("checkpoint", f.recover(u, lane("order", key)).Checkpoints[0].EventID, long)
	}},
	{"a text for people may hold anything, and is no reason for a refusal", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(f.events("order", "a", 3)...)
		long := strings.Repeat(odd, 1000)
		f.commit(eventstore.Changes{Reply: &eventstore.Reply{Stream: order7, CommandID: "c-1", Command: "order.place", Rejected: long, Time: base}})
		f.same("rejection", shown(f.reply(order7, "c-1").Rejected), shown(long))

		fence := eventstore.Fence{Unit: shipping}
		f.commit(eventstore.Changes{Fence: fence, Tried: &eventstore.Tried{Unit: shipping, Lane: orders, Sequence: 1, Attempts: 1, Error: odd, Time: base}})
		f.same("attempt", shown(f.recover(shipping).Tried.Error), shown(odd))
		f.commit(eventstore.Changes{Fence: fence, Halt: &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 1, Reason: odd, Error: long, Since: base}})
		h := f.recover(shipping).Halt
		f.same("halt", []string{shown(h.Reason), shown(h.Error)}, []string{shown(odd), shown(long)})
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Dead: []eventstore.Dead{{Unit: billing, Lane: orders, Sequence: 1, Reason: odd, Error: odd, Time: base}}})
		d := f.listDead("billing", event.Position{}, 1)[0]
		f.same("dead letter", []string{shown(d.Reason), shown(d.Error)}, []string{shown(odd), shown(odd)})
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Park: []eventstore.Parked{{Unit: billing, Lane: orders, Sequence: 2, Reason: odd, Error: odd, Time: base}}})
		p := f.state(billing).Parking.First
		f.same("parked", []string{shown(p.Reason), shown(p.Error)}, []string{shown(odd), shown(odd)})

		a := seeing(eventstore.ActRetry, shipping, orders, 1)
		a.Actor, a.Reason = odd, odd
		got := f.act(a)
		f.same("act", []string{shown(got.Actor), shown(got.Reason)}, []string{shown(odd), shown(odd)})
		f.same("act, read", shown(f.actsAfter(0, 10)[0].Reason), shown(odd))
		a = doing(eventstore.ActPause, shipping)
		a.Actor, a.Reason = odd, odd
		f.act(a)
		f.same("pause", shown(f.recover(shipping).Pause.Reason), shown(odd))
		f.must(f.store.Abandon(f.ctx, orders, 3, odd))
		f.same("abandoned", shown(f.abandoned(event.Position{}, 1)[0].Reason), shown(odd))
		f.must(f.store.Say(f.ctx, odd, base))
		present, err := f.store.Present(f.ctx)
		f.must(err)
		f.same("trouble", shown(present[0].Trouble), shown(odd))
	}},
	{"the error of a projection may hold anything", func(f *fixture) {
		f.declare(eventstore.ProjectionDeclared{Name: "totals", Version: 1, Categories: []string{"order"}})
		at := eventstore.ProjectionEvent{ID: "e-1", Type: "order.happened"}
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{
			Name: "totals", Build: 1, Time: base,
			Tried: &eventstore.ProjectionTried{Event: at, Attempts: 1, Error: odd, Time: base, Again: base.Add(time.Second)},
		}})
		f.same("tried", shown(f.build("totals", 1).Tried.Error), shown(odd))
		f.commit(eventstore.Changes{Projection: &eventstore.ProjectionStep{
			Name: "totals", Build: 1, Time: base, Halt: &eventstore.ProjectionHalt{Event: at, Attempts: 2, Reason: odd, Error: odd, Since: base},
		}})
		h := f.build("totals", 1).Halt
		f.same("halt", []string{shown(h.Reason), shown(h.Error)}, []string{shown(odd), shown(odd)})
	}},
}
