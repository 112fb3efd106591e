package eventstoretest

import (
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (f *fixture) listPauses(name string, after event.Unit, limit int) []eventstore.Pause {
	f.Helper()
	got, err := f.store.ListPauses(f.ctx, name, after, limit)
	f.must(err)
	return got
}

// pause pauses a unit, or a handler, and gives the row.
func (f *fixture) pause(u event.Unit, at time.Time) eventstore.Pause {
	f.Helper()
	a := doing(eventstore.ActPause, u)
	a.Time = at
	f.act(a)
	return eventstore.Pause{Unit: u, Actor: a.Actor, Reason: a.Reason, Since: at}
}

var pauses = []check{
	{"a unit that is paused is told so and has nothing unpassed, until it is resumed", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(append(f.events("order", "a", 1), f.events("order", "b", 1)...)...)
		want := f.pause(shipping, base)
		f.same("recovered", f.recover(shipping).Pause, &want)
		f.same("raised", f.raise(shipping, 3).Pause, &want)
		f.same("another key", f.recover(event.Unit{Name: "shipping", Key: "b"}).Pause, (*eventstore.Pause)(nil))
		f.same("another handler", f.recover(billing).Pause, (*eventstore.Pause)(nil))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{lane("order", "b")})
		f.same("unpassed of another", f.unpassed("billing", "order"), []event.LaneRef{orders, lane("order", "b")})
		got := f.act(doing(eventstore.ActResume, shipping))
		if !strings.HasPrefix(got.Detail, "paused by ann since") {
			f.Fatal(got.Detail)
		}
		f.same("recovered", f.recover(shipping).Pause, (*eventstore.Pause)(nil))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders, lane("order", "b")})
	}},
	{"a paused unit is not fenced: it may commit what it is at", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		f.pause(shipping, base)
		f.commit(advance(shipping, orders, 0, 1))
	}},
	{"a handler that is paused has all its units paused, those that come later as well", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(f.events("order", "a", 1)...)
		want := f.pause(event.Unit{Name: "shipping"}, base)
		f.publish(f.events("order", "b", 1)...)
		for _, key := range []string{"a", "b", "none-yet"} {
			f.same("recovered "+key, f.recover(event.Unit{Name: "shipping", Key: key}).Pause, &want)
		}
		f.same("another handler", f.recover(billing).Pause, (*eventstore.Pause)(nil))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.same("unpassed of another", len(f.unpassed("billing", "order")), 2)
		f.act(doing(eventstore.ActResume, event.Unit{Name: "shipping"}))
		f.same("recovered", f.recover(shipping).Pause, (*eventstore.Pause)(nil))
		f.same("unpassed", len(f.unpassed("shipping", "order")), 2)
	}},
	{"a unit may be paused for itself and with its handler, and reads on when neither is", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		own, all := f.pause(shipping, base), f.pause(event.Unit{Name: "shipping"}, base.Add(time.Hour))
		s := f.state(shipping)
		f.same("own", s.Pause, &own)
		f.same("handler's", s.HandlerPause, &all)
		f.act(doing(eventstore.ActResume, event.Unit{Name: "shipping"}))
		f.same("recovered", f.recover(shipping).Pause, &own)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.pause(event.Unit{Name: "shipping"}, base.Add(time.Hour))
		f.act(doing(eventstore.ActResume, shipping))
		f.same("recovered", f.recover(shipping).Pause, &all)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		moved := f.stateMoved(doing(eventstore.ActResume, shipping))
		if !strings.Contains(moved.Why, "whole handler") {
			f.Fatal(moved.Why)
		}
		f.act(doing(eventstore.ActResume, event.Unit{Name: "shipping"}))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"pausing twice, and resuming what is not paused, is refused with the state there is", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		for _, u := range []event.Unit{shipping, {Name: "shipping"}} {
			f.same("why", f.stateMoved(doing(eventstore.ActResume, u)).Why, "it is not paused")
			want := f.pause(u, base)
			f.stateMoved(doing(eventstore.ActPause, u))
			f.same("pauses", f.listPauses("", event.Unit{}, 10), []eventstore.Pause{want})
			f.act(doing(eventstore.ActResume, u))
		}
	}},
	{"pauses are listed by unit, page by page, that of the handler first", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(append(f.events("order", "a", 1), f.events("order", "b", 1)...)...)
		var want []eventstore.Pause
		for _, u := range []event.Unit{billing, {Name: "shipping"}, shipping, {Name: "shipping", Key: "b"}} {
			want = append(want, f.pause(u, base))
		}
		for _, q := range []struct {
			name string
			want []eventstore.Pause
		}{{"", want}, {"shipping", want[1:]}, {"ship", nil}} {
			var got []eventstore.Pause
			for after := (event.Unit{}); ; after = got[len(got)-1].Unit {
				page := f.listPauses(q.name, after, 2)
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			f.same("pauses of "+q.name, got, q.want)
		}
	}},
	{"pauses are kept over a restart", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		want := []eventstore.Pause{f.pause(event.Unit{Name: "shipping"}, base), f.pause(shipping, base)}
		f.restart(f.crash)
		f.same("pauses", f.listPauses("", event.Unit{}, 10), want)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
	}},
}
