package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

const (
	callBytes = 8 << 20 // of data, in one answer for many units; what a unit's own limit adds comes on top once. So no call holds the server up for long
	unitBytes = 1 << 20 // of data for one unit, but for a single entry that has more. Each entry counts for 1 KiB more than it has
	idsAtOnce = 128     // sequences that one read acknowledges one by one
)

var (
	scriptRead = newScript("read")
	kindRead   = kind{name: "read", flying: 2, most: 128, script: scriptRead, pack: packRead, unpack: unpackEach}
)

// modes of acknowledging.
const (
	ackNone    = iota
	ackEach    // of each sequence above what is acknowledged
	ackPending // of whatever is pending
)

// reading is what a read asks.
type reading struct {
	unit       event.Unit
	generation event.Generation
	above      []event.Position
	most       int
	ack        bool // above are durable checkpoints

	lanes []*laneTenure // of above
	modes []int
	held  []bool // not to be read from the stream
	gone  []bool // the stream has nothing more, though there was
}

// Fetch reads the primary lanes of the unit, and its backfill lanes only when no primary lane has anything. Between lanes of one kind the entry with the earliest
// Time comes first. It gives less than max where entries are large.
func (p *port) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	return p.serve(ctx, h, reading{unit: h.Unit, generation: h.Generation, above: above, most: max})
}

// Advance acknowledges and fetches in one step. Drained means that the key has left the set of busy ones: the next entry wakes the unit.
func (p *port) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.serve(ctx, h, reading{unit: h.Unit, generation: h.Generation, above: done, most: max, ack: true})
}

func (p *port) serve(ctx context.Context, h partitions.Held, r reading) (partitions.Fetched, error) {
	if err := eventstore.CheckLimit(r.most); err != nil {
		return partitions.Fetched{}, fmt.Errorf("read for %s: %w", h.Unit, err)
	}
	t, err := p.tenure(h)
	if err != nil {
		return partitions.Fetched{}, fmt.Errorf("read: %w", err)
	}
	got, err := p.read(ctx, h, t, r)
	if err == nil && got.Drained && p.c.servers.cluster {
		got, err = p.readApart(ctx, h, t, r.above, r.most)
	}
	if err != nil {
		return partitions.Fetched{}, fmt.Errorf("read for %s: %w", h.Unit, err)
	}
	return got, nil
}

// read asks the script until it has something to say: an answer may be put off, or have more to acknowledge first.
func (p *port) read(ctx context.Context, h partitions.Held, t *tenure, r reading) (partitions.Fetched, error) {
	for {
		if err := p.plan(t, &r); err != nil {
			return partitions.Fetched{}, err
		}
		answer, err := p.ask(ctx, &p.lines(t).read, &kindRead, t, &r)
		if err != nil {
			r.doubt()
			return partitions.Fetched{}, err
		}
		switch answer[0] {
		case "fenced":
			return partitions.Fetched{}, p.fenced(h)
		case "later":
			continue
		}
		drained, more, entries, err := r.parse(answer)
		if err != nil {
			return partitions.Fetched{}, err
		}
		switch {
		case drained:
			t.tidy = tidyNever
		case t.tidy == tidyAtOnce:
			t.tidy = tidyDrained
		}
		r.acknowledged(more)
		if found, diverged, err := p.compare(ctx, &r); err != nil || diverged {
			if drained { // it is not done with
				err = errors.Join(err, p.remark(ctx, t))
			}
			return partitions.Fetched{Diverged: diverged, Found: found}, err
		}
		got, err := p.assemble(ctx, &r, entries)
		if err != nil || got.Gap || len(got.Entries) > 0 {
			return got, err
		}
		if !more {
			got.Drained = drained
			return got, nil
		}
	}
}

// plan decides, lane by lane, what is to be acknowledged and read.
func (p *port) plan(t *tenure, r *reading) error {
	n := len(r.above)
	r.lanes, r.modes, r.held, r.gone = make([]*laneTenure, n), make([]int, n), make([]bool, n), make([]bool, n)
	for _, at := range r.above { // first, since adding one moves the others
		if _, err := p.lane(t, at); err != nil {
			return err
		}
	}
	for i, at := range r.above {
		l, err := p.lane(t, at)
		if err != nil {
			return err
		}
		r.lanes[i] = l
		r.held[i] = l.lost > at.Sequence+1
		switch {
		case !r.ack || at.Sequence == 0, l.sure && l.acked == at.Sequence:
		case l.sure && l.acked < at.Sequence && at.Sequence-l.acked <= idsAtOnce:
			r.modes[i] = ackEach
		default:
			r.modes[i] = ackPending
		}
	}
	return nil
}

// doubt is for an outcome that is not known: what was to be acknowledged is so, or not.
func (r *reading) doubt() {
	for i, l := range r.lanes {
		l.sure = l.sure && r.modes[i] == ackNone
	}
}

// acknowledged notes what is acknowledged; more says that some of it is not, yet.
func (r *reading) acknowledged(more bool) {
	if !r.ack {
		return
	}
	for i, l := range r.lanes {
		if r.modes[i] == ackPending {
			l.sure = !more
		}
		l.acked = r.above[i].Sequence
		if l.acked == 0 {
			l.sure = true // nothing has a sequence below 1
		}
	}
}

func packRead(p *port, c *call, requests []*request) {
	apart := p.c.servers.cluster
	c.args = append(c.args, flag(!apart), callBytes, unitBytes)
	for _, r := range requests {
		t, asked := r.tenure, r.asked.(*reading)
		c.keys = append(c.keys, t.lease)
		if !apart {
			c.keys = append(c.keys, t.busy)
		}
		c.args = append(c.args, t.holder, t.unit.Name, t.unit.Key, asked.most, int(t.tidy), len(asked.lanes))
		for i, l := range asked.lanes {
			c.keys = append(c.keys, l.stream)
			what := whatLane[l.ref.Lane][flag(asked.held[i])]
			if l.newest != "" {
				what += "+"
			}
			c.args = append(c.args, asked.above[i].Sequence.String(), asked.from(i), what)
		}
		for _, l := range asked.lanes {
			if l.newest != "" {
				c.keys = append(c.keys, l.newest)
			}
		}
	}
}

// whatLane says what a lane is, and whether it is to be read, as the script has it.
var whatLane = [...][2]string{event.Primary: {"p", "P"}, event.Backfill: {"b", "B"}}

// from is the first sequence of a lane to be acknowledged, as the script has it.
func (r *reading) from(i int) string {
	switch r.modes[i] {
	case ackEach:
		return (r.lanes[i].acked + 1).String()
	case ackPending:
		return "*"
	}
	return "0"
}

// parse takes the answer of a unit apart: entries of each lane, as the stream has them.
func (r *reading) parse(answer []any) (drained, more bool, entries [][]event.Envelope, err error) {
	if len(answer) < 3+len(r.lanes) || len(answer) > 5+len(r.lanes) || answer[0] != "ok" {
		return false, false, nil, oddReply(scriptRead, answer)
	}
	gone, _ := list(at(answer, 4+len(r.lanes)), 0)
	for _, n := range gone {
		if i, ok := integer(n); ok && i >= 1 && int(i) <= len(r.lanes) {
			r.gone[i-1] = true
		}
	}
	made, _ := list(at(answer, 3+len(r.lanes)), 0)
	for _, n := range made { // a stream without the group may be another one than before
		if i, ok := integer(n); ok && i >= 1 && int(i) <= len(r.lanes) {
			r.lanes[i-1].agreed = false
		}
	}
	entries = make([][]event.Envelope, len(r.lanes))
	for i, l := range r.lanes {
		raw, ok := list(answer[3+i], 0)
		if !ok {
			return false, false, nil, oddReply(scriptRead, answer)
		}
		for _, one := range raw {
			e, err := parseEntry(l.ref, one)
			if err != nil {
				return false, false, nil, err
			}
			entries[i] = append(entries[i], e)
		}
	}
	return answer[1] == int64(1), answer[2] == int64(1), entries, nil
}

func parseEntry(lane event.LaneRef, raw any) (event.Envelope, error) {
	pair, ok := list(raw, 2)
	if !ok {
		return event.Envelope{}, oddReply(scriptRead, raw)
	}
	id, isID := pair[0].(string)
	fields, ok := list(pair[1], 0)
	if !isID || !ok {
		return event.Envelope{}, oddReply(scriptRead, raw)
	}
	return decodeEntry(lane, id, fields)
}
