package command

import (
	"fmt"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

type unitView struct {
	admin.Unit
	payload bool // what events hold was asked for
	brief   bool // only what an act is decided on
}

func (v unitView) draw(p *page) {
	state := stateCell(v.State)
	p.line(clean(v.Handler) + " " + clean(v.Key) + ": " + p.colours.dye(state.paint, state.text))
	if v.Halt == nil && v.Parking == nil && v.Tried == nil && v.Words != "" { // else the fields say it, and more
		p.line(clean(v.Words))
	}
	p.blank()
	var f fields
	if h := v.Halt; h != nil {
		f.add("stopped at", h.At.String()+", "+h.Type)
		f.add("event id", h.At.EventID)
		f.add("since", p.when(h.Since))
		f.add("reason", fmt.Sprintf("%s after %s", h.Reason, amount(h.Attempts, "attempt")))
		f.add("error", h.Error)
	}
	if parking := v.Parking; parking != nil {
		f.add("parked", amount(parking.Count, "event")+", the first is "+parking.First.At.String()+", "+parking.First.Type)
		f.add("since", p.when(parking.First.Since))
		f.add("reason", parking.First.Reason)
		f.add("error", parking.First.Error)
	}
	if t := v.Tried; t != nil && v.Halt == nil {
		f.add("failed at", t.At.String()+", "+t.Type+", "+amount(t.Attempts, "attempt"))
		f.add("last", p.when(t.Last))
		next := p.when(t.Again)
		if !t.Again.IsZero() && !t.Again.After(p.now) {
			next = "now"
		}
		f.add("next", next)
		f.add("error", t.Error)
	}
	if t := v.Tried; t != nil && t.Suspicions > 0 {
		f.add("suspected", fmt.Sprintf("the process ended %s in the middle of it, %d alone", amount(t.Suspicions, "time"), t.CrashedAlone))
	}
	for _, pause := range []*admin.Pause{v.Pause, v.HandlerPause} {
		if pause != nil {
			f.add("paused", pauseWords(p, *pause))
		}
	}
	if a := v.Activity; a != nil {
		f.add("doing now", a.State+prefix(", since ", p.when(a.Since)))
	}
	if v.Dead > 0 {
		f.add("dead letters", count(v.Dead))
	}
	f.add("behind", amount(v.Lag, "event"))
	if v.PassedOver > 0 {
		f.add("not handled", amount(v.PassedOver, "event")+" of other types, passed over with the next one")
	}
	if e := v.Expect; e != nil && e.Sequence > 0 {
		f.add("to act on this", fmt.Sprintf("--expect %d", e.Sequence))
	}
	p.fields(f)
	if v.brief {
		return
	}
	v.drawLanes(p)
	if len(v.Waiting) > 0 {
		p.blank()
		p.line("Next in line:")
		drawEvents(p, v.Waiting)
		if !v.payload {
			p.hint("What they hold is not shown: add --data.")
		}
	}
}

func (v unitView) drawLanes(p *page) {
	p.blank()
	if len(v.Lanes) == 0 && v.Kind == string(eventstore.EntityKind) {
		p.line("No command was sent to it.")
		p.hint("See its events: " + admin.CommandLine(p.typed, "events cat", []string{"--entity", v.Handler + "/" + v.Key}))
		return
	}
	if len(v.Lanes) == 0 {
		p.line("There is no event with this key.")
		p.hint("See which keys there are: " + p.advise("partitions ls", v.Handler))
		return
	}
	t := &table{columns: []column{
		{title: "CATEGORY", give: true},
		{title: "KEY", give: true, wide: true},
		{title: "APPLIED", right: true},
		{title: "LAST", right: true},
		{title: "BEHIND", right: true},
		{title: "NEXT", give: true},
	}}
	for _, l := range v.Lanes {
		t.rows = append(t.rows, []cell{
			plain(lane(l.Category, l.Backfill)), plain(l.Key), {text: count(l.Checkpoint)}, {text: count(l.Tail)}, {text: dash(l.Lag)}, plain(l.NextType),
		})
	}
	p.table(t)
}

func pauseWords(p *page, pause admin.Pause) string {
	what := "this key"
	if pause.Key == "" {
		what = "the whole handler " + pause.Handler
	}
	return fmt.Sprintf("%s, by %s%s, %s", what, pause.Actor, prefix(": ", pause.Reason), p.when(pause.Since))
}
