package eventstoretest

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// parkedRow is an event as a unit parks it; why is empty for one that only came after another.
func parkedRow(u event.Unit, l event.LaneRef, at event.Sequence, why string) eventstore.Parked {
	p := eventstore.Parked{Unit: u, Lane: l, Sequence: at, EventID: fmt.Sprintf("at-%d", at), Type: "order.happened", Time: base}
	if why != "" {
		p.Attempts, p.Reason, p.Error = 5, why, "no carrier"
	}
	return p
}

// park publishes count events into a lane and has the unit, which has passed all before them, park them.
func (f *fixture) park(u event.Unit, l event.LaneRef, count int) []eventstore.Parked {
	f.Helper()
	from := f.tail(l)
	events := f.events(l.Category, l.Key, count)
	for i := range events {
		events[i].Lane = l.Lane
	}
	f.publish(events...)
	return f.parkPublished(u, l, from, count)
}

// parkPublished parks the count events above a checkpoint.
func (f *fixture) parkPublished(u event.Unit, l event.LaneRef, from event.Sequence, count int) []eventstore.Parked {
	f.Helper()
	c := advance(u, l, from, from+event.Sequence(count))
	for i := range count {
		why := ""
		if i == 0 {
			why = "retries exhausted"
		}
		c.Park = append(c.Park, parkedRow(u, l, from+event.Sequence(i+1), why))
	}
	f.commit(c)
	return c.Park
}

// parked gives what a unit has parked, without the ordinals, which must grow.
func (f *fixture) parked(u event.Unit) []eventstore.Parked {
	f.Helper()
	got, err := f.store.ListParked(f.ctx, u, 0, eventstore.MaxLimit)
	f.must(err)
	return f.unnumbered(got)
}

func (f *fixture) unnumbered(rows []eventstore.Parked) []eventstore.Parked {
	f.Helper()
	var last int64
	for i := range rows {
		if rows[i].Ordinal <= last {
			f.Fatalf("ordinal %d comes after %d", rows[i].Ordinal, last)
		}
		last, rows[i].Ordinal = rows[i].Ordinal, 0
	}
	return rows
}

// due is rows with the first of them due.
func due(rows []eventstore.Parked) []eventstore.Parked {
	rows = slices.Clone(rows)
	if len(rows) > 0 {
		rows[0].Due = true
	}
	return rows
}

func parkedRef(l event.LaneRef, at event.Sequence) eventstore.AsideRef {
	return eventstore.AsideRef{Kind: eventstore.AsideParked, Lane: l, Sequence: at}
}

func deadRef(l event.LaneRef, at event.Sequence) eventstore.AsideRef {
	return eventstore.AsideRef{Kind: eventstore.AsideDead, Lane: l, Sequence: at}
}

// through ends an attempt that went well, stays one that did not.
func through(u event.Unit, ref eventstore.AsideRef) eventstore.Changes {
	return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Settle: &eventstore.Settle{AsideRef: ref}}
}

func stays(u event.Unit, ref eventstore.AsideRef, why eventstore.AsideFailure) eventstore.Changes {
	c := through(u, ref)
	c.Settle.Failed = &why
	return c
}

func (f *fixture) dueAsides(u event.Unit, limit int) []eventstore.Aside {
	f.Helper()
	got, err := f.store.DueAsides(f.ctx, u, limit)
	f.must(err)
	return got
}

// dueRefs are the rows of a unit that are due.
func (f *fixture) dueRefs(u event.Unit) []eventstore.AsideRef {
	f.Helper()
	var refs []eventstore.AsideRef
	for _, a := range f.dueAsides(u, eventstore.MaxLimit) {
		refs = append(refs, a.AsideRef)
	}
	return refs
}

func (f *fixture) dueUnits(after event.Unit, limit int) []event.Unit {
	f.Helper()
	got, err := f.store.DueUnits(f.ctx, after, limit)
	f.must(err)
	return got
}

func (f *fixture) listParking(name string, after event.Unit, limit int) []eventstore.Parking {
	f.Helper()
	got, err := f.store.ListParking(f.ctx, name, after, limit)
	f.must(err)
	return got
}

// dead publishes count events into a lane and has the unit, which has passed all before them, make dead letters of them.
func (f *fixture) dead(u event.Unit, l event.LaneRef, count int) []eventstore.Dead {
	f.Helper()
	from := f.tail(l)
	f.publish(f.events(l.Category, l.Key, count)...)
	c := advance(u, l, from, from+event.Sequence(count))
	for i := range count {
		c.Dead = append(c.Dead, deadRow(u, l, from+event.Sequence(i+1)))
	}
	f.commit(c)
	return c.Dead
}

func deadRow(u event.Unit, l event.LaneRef, at event.Sequence) eventstore.Dead {
	return eventstore.Dead{
		Unit: u, Lane: l, Sequence: at, EventID: fmt.Sprintf("%s-%d", l.Key, at), Type: "order.happened",
		Attempts: 5, Reason: "poison", Error: "no carrier", Time: base,
	}
}

// act does an act, which must succeed.
func (f *fixture) act(a eventstore.Act) eventstore.ActRecord {
	f.Helper()
	got, err := f.store.Act(f.ctx, a)
	if err != nil {
		f.Fatalf("%s %s: %v", a.Kind, a.Unit, err)
	}
	return got
}

// doing is an act by a person with a reason.
func doing(kind eventstore.ActKind, u event.Unit) eventstore.Act {
	return eventstore.Act{Kind: kind, Unit: u, Actor: "ann", Reason: "carrier is back"}
}

// seeing is the same for one who saw the unit stopped at an event.
func seeing(kind eventstore.ActKind, u event.Unit, l event.LaneRef, at event.Sequence) eventstore.Act {
	a := doing(kind, u)
	a.Seen = event.Position{Lane: l, Sequence: at}
	return a
}

func (f *fixture) state(u event.Unit) eventstore.UnitState {
	f.Helper()
	got, err := f.store.UnitState(f.ctx, u)
	f.must(err)
	return got
}

// operations are the calls of those who operate a store, each with an error of nothing but the store's.
func operations(s eventstore.Store, ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"DueAsides":   func() error { _, err := s.DueAsides(ctx, shipping, 1); return err },
		"DueUnits":    func() error { _, err := s.DueUnits(ctx, event.Unit{}, 1); return err },
		"ListParked":  func() error { _, err := s.ListParked(ctx, shipping, 0, 1); return err },
		"ListParking": func() error { _, err := s.ListParking(ctx, "", event.Unit{}, 1); return err },
		"Act":         func() error { _, err := s.Act(ctx, doing(eventstore.ActPause, shipping)); return err },
		"Act on handler": func() error {
			_, err := s.Act(ctx, doing(eventstore.ActRemove, event.Unit{Name: "shipping"}))
			return err
		},
		"ActsAfter":      func() error { _, err := s.ActsAfter(ctx, 0, 1); return err },
		"LastAct":        func() error { _, err := s.LastAct(ctx); return err },
		"ListActs":       func() error { _, err := s.ListActs(ctx, eventstore.ActQuery{Limit: 1}); return err },
		"UnitState":      func() error { _, err := s.UnitState(ctx, shipping); return err },
		"StartJob":       func() error { _, err := s.StartJob(ctx, job(eventstore.JobReplay, ofShipping)); return err },
		"CountJob":       func() error { _, _, err := s.CountJob(ctx, eventstore.JobReplay, ofShipping); return err },
		"ListJobs":       func() error { _, err := s.ListJobs(ctx, 0, true, 1); return err },
		"ReadJob":        func() error { _, err := s.ReadJob(ctx, 1); return err },
		"ActOnJob":       func() error { _, err := s.ActOnJob(ctx, 1, eventstore.ActPauseJob, "ann", ""); return err },
		"StepJob":        func() error { _, _, err := s.StepJob(ctx, 1, 1); return err },
		"Overview":       func() error { _, err := s.Overview(ctx); return err },
		"ListPartitions": func() error { _, err := s.ListPartitions(ctx, eventstore.PartitionQuery{Limit: 1}); return err },
		"ListPauses":     func() error { _, err := s.ListPauses(ctx, "", event.Unit{}, 1); return err },
	}
}

// limited are those that give pages or batches.
func limited(s eventstore.Store, ctx context.Context, limit int) map[string]func() error {
	return map[string]func() error{
		"DueAsides":      func() error { _, err := s.DueAsides(ctx, shipping, limit); return err },
		"DueUnits":       func() error { _, err := s.DueUnits(ctx, event.Unit{}, limit); return err },
		"ListParked":     func() error { _, err := s.ListParked(ctx, shipping, 0, limit); return err },
		"ListParking":    func() error { _, err := s.ListParking(ctx, "", event.Unit{}, limit); return err },
		"ActsAfter":      func() error { _, err := s.ActsAfter(ctx, 0, limit); return err },
		"ListActs":       func() error { _, err := s.ListActs(ctx, eventstore.ActQuery{Limit: limit}); return err },
		"ListJobs":       func() error { _, err := s.ListJobs(ctx, 0, false, limit); return err },
		"StepJob":        func() error { _, _, err := s.StepJob(ctx, 1, limit); return err },
		"ListPartitions": func() error { _, err := s.ListPartitions(ctx, eventstore.PartitionQuery{Limit: limit}); return err },
		"ListPauses":     func() error { _, err := s.ListPauses(ctx, "", event.Unit{}, limit); return err },
	}
}
