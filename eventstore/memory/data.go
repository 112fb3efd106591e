package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// data is everything a store holds.
type data struct {
	streams    map[event.Stream]*stream
	lanes      map[event.LaneRef]*lane
	categories map[string]*category
	log        []*record // all records, in commit order
	position   uint64    // of the last record that ever was in the log

	generation  event.Generation   // of the last Start
	starts      []eventstore.Owner // that are started now, in order of generation
	application string
	generations map[event.Unit]event.Generation
	halts       map[event.Unit]eventstore.Halt // void ones included
	abandoned   map[place]eventstore.Abandoned

	toRelay
	setAside
	intake
	tried  map[event.Unit]eventstore.Tried // void ones included
	pauses map[event.Unit]eventstore.Pause // key "" = of a whole handler
	moved  map[string]time.Time            // when a handler last passed something
	acts   []eventstore.ActRecord          // that with id n at n-1
	jobs   []*job                          // that with id n at n-1

	projections map[string]eventstore.Projection

	registry registry
}

// record is an event where it stands. It never changes once it is reachable: readers copy it without a lock.
type record struct {
	event.Envelope
	position uint64 // in the log, from 1
	emptied  bool   // a void that a purge made
}

// stream is one entity's.
type stream struct {
	events   []*record // event n at index n-1
	snapshot *eventstore.Snapshot
	replies  map[string]*eventstore.Reply // by command id
}

// lane is one broker lane. It may exist for a checkpoint alone, with nothing in it.
type lane struct {
	ref     event.LaneRef
	part    event.Part
	tail    event.Sequence
	noted   event.Sequence // as published
	records []*record      // in order and without a hole; purged ones are missing before the first
	loose   int            // records that belong to no stream and are not emptied: those that can be purged
	passed  []mark         // checkpoints, one for each name; few, so looked through
}

type mark struct {
	name string
	at   event.Sequence
	id   string
}

// category lists its lanes.
type category struct {
	lanes  []*lane
	sorted bool
}

// place is a record's address.
type place struct {
	lane event.LaneRef
	seq  event.Sequence
}

func (p place) compare(o place) int {
	return cmp.Or(p.lane.Compare(o.lane), cmp.Compare(p.seq, o.seq))
}

func newData() data {
	return data{
		streams:     make(map[event.Stream]*stream),
		lanes:       make(map[event.LaneRef]*lane),
		categories:  make(map[string]*category),
		generations: make(map[event.Unit]event.Generation),
		halts:       make(map[event.Unit]eventstore.Halt),
		abandoned:   make(map[place]eventstore.Abandoned),
		toRelay:     newToRelay(),
		setAside:    newSetAside(),
		intake:      newIntake(),
		tried:       make(map[event.Unit]eventstore.Tried),
		pauses:      make(map[event.Unit]eventstore.Pause),
		moved:       make(map[string]time.Time),
		projections: make(map[string]eventstore.Projection),
		registry:    newRegistry(),
	}
}

// stream gives the stream to change, made when it is not there.
func (d *data) stream(s event.Stream) *stream {
	st := d.streams[s]
	if st == nil {
		st = new(stream)
		d.streams[s] = st
	}
	return st
}

// lane gives the lane to change, made when it is not there.
func (d *data) lane(ref event.LaneRef) *lane {
	l := d.lanes[ref]
	if l == nil {
		l = &lane{ref: ref, part: ref.Part()}
		d.lanes[ref] = l
		c := d.categories[ref.Category]
		if c == nil {
			c = new(category)
			d.categories[ref.Category] = c
		}
		c.lanes = append(c.lanes, l)
		c.sorted = false
	}
	return l
}

// sortedLanes gives the lanes of a category in lane order.
func (d *data) sortedLanes(name string) []*lane {
	c := d.categories[name]
	if c == nil {
		return nil
	}
	if !c.sorted {
		slices.SortFunc(c.lanes, func(a, b *lane) int { return a.ref.Compare(b.ref) })
		c.sorted = true
	}
	return c.lanes
}

// checkpoint gives what a name has applied of a lane; a zero mark when nothing.
func (d *data) checkpoint(name string, ref event.LaneRef) mark {
	l := d.lanes[ref]
	if l == nil {
		return mark{name: name}
	}
	return l.checkpoint(name)
}

func (l *lane) checkpoint(name string) mark {
	for i := range l.passed {
		if l.passed[i].name == name {
			return l.passed[i]
		}
	}
	return mark{name: name}
}

func (l *lane) pass(m mark) {
	for i := range l.passed {
		if l.passed[i].name == m.name {
			l.passed[i] = m
			return
		}
	}
	l.passed = append(l.passed, m)
}

// after gives the index of the first record above seq.
func (l *lane) after(seq event.Sequence) int {
	at, _ := slices.BinarySearchFunc(l.records, seq+1, func(r *record, seq event.Sequence) int { return cmp.Compare(r.Sequence, seq) })
	return at
}

// at gives the index of a record, or false.
func (l *lane) at(seq event.Sequence) (int, bool) {
	i := l.after(seq - 1)
	return i, i < len(l.records) && l.records[i].Sequence == seq
}

// halt gives the halt of a unit unless it is void.
func (d *data) halt(u event.Unit) *eventstore.Halt {
	h, found := d.halts[u]
	if !found || h.Sequence <= d.checkpoint(u.Name, h.Lane).at {
		return nil
	}
	known := h // so that only a halt that there is costs an allocation
	return &known
}

// logAfter gives the index of the first record of the log above a position.
func (d *data) logAfter(position uint64) int {
	at, _ := slices.BinarySearchFunc(d.log, position+1, func(r *record, p uint64) int { return cmp.Compare(r.position, p) })
	return at
}

// copies gives envelopes that belong to the caller. It needs no lock.
func copies(records []*record) []event.Envelope {
	size := 0
	for _, r := range records {
		size += len(r.Data)
	}
	payload := make([]byte, 0, size)
	out := make([]event.Envelope, len(records))
	for i, r := range records {
		out[i] = r.Envelope
		if r.Data != nil {
			start := len(payload)
			payload = append(payload, r.Data...)
			out[i].Data = payload[start:len(payload):len(payload)]
		}
	}
	return out
}
