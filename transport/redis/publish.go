package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// One call of the append script brings at most so much, so that it never holds up a server for long, and so that the server is at work on one while the next is on its way:
// calls of one Append go out together. A single run may be larger.
const (
	appendLanes   = 64
	appendEntries = 1024
	appendBytes   = 1 << 20
)

var (
	scriptAppend = newScript("append")
	// The same for lanes that bring no entries: it adds nothing that memory would have to be there for.
	scriptNudge = scriptAppend.withFlags("allow-oom")
	scriptMark  = newScript("mark")
)

// withFlags is the same script with flags in its first line.
func (s *script) withFlags(flags string) *script {
	_, body, _ := strings.Cut(s.flagged.source, "\n")
	return &script{name: s.name, flagged: summed("#!lua flags=" + flags + "\n" + body), plain: s.plain}
}

// laneKeys are the names of what belongs to a lane.
type laneKeys struct {
	stream, newest string
}

func (c *connection) lane(ref event.LaneRef) (k laneKeys, err error) {
	newest := event.NameNewest
	if ref.Lane == event.Backfill {
		newest = event.NameNewestBackfill
	}
	if k.stream, err = c.names.Build(event.LaneName(ref)); err == nil {
		k.newest, err = c.names.Build(event.Name{Kind: newest, Owner: ref.Category, Key: ref.Key})
	}
	if err != nil {
		return laneKeys{}, fmt.Errorf("lane %s: %w", ref, err)
	}
	return k, nil
}

// otherLane is the other one of the partition.
func otherLane(ref event.LaneRef) event.LaneRef {
	if ref.Lane == event.Backfill {
		ref.Lane = event.Primary
	} else {
		ref.Lane = event.Backfill
	}
	return ref
}

// name builds a name without a key.
func (c *connection) name(kind event.NameKind, owner string) (string, error) {
	return c.names.Build(event.Name{Kind: kind, Owner: owner})
}

// publication is one [Transport.Append] under way.
type publication struct {
	c       *connection
	ahead   int
	runs    []transport.Append
	keys    []laneKeys
	answers []transport.Appended
}

// Append implements [transport.BrokerStreams]. On a Cluster, where one script cannot reach them all, entries come first, then busy sets, then indexes: a
// run is answered OK only when all that is done, and asking again does the rest.
func (t *Transport) Append(ctx context.Context, runs []transport.Append) []transport.Appended {
	p := &publication{ahead: t.cfg.MaxAhead, runs: runs, keys: make([]laneKeys, len(runs)), answers: make([]transport.Appended, len(runs))}
	if p.c = t.conn.Load(); p.c == nil {
		p.fail(p.all(), errNotConnected)
		return p.answers
	}
	sound := make([]int, 0, len(runs))
	var checked []string // names of subscribers, of which there are few
	for i := range runs {
		keys, err := p.c.lane(runs[i].Lane)
		for _, name := range runs[i].Subscribers {
			if err == nil && !slices.Contains(checked, name) {
				if _, err = p.c.name(event.NameBusy, name); err == nil {
					checked = append(checked, name)
				}
			}
		}
		if err != nil {
			p.answers[i].Err = fmt.Errorf("append: %w", err)
			continue
		}
		p.keys[i] = keys
		sound = append(sound, i)
	}
	p.append(ctx, sound)
	if p.c.servers.cluster {
		p.mark(ctx)
		p.index(ctx)
	}
	return p.answers
}

func (c *connection) checkNames(kind event.NameKind, owners []string) error {
	for _, owner := range owners {
		if _, err := c.name(kind, owner); err != nil {
			return err
		}
	}
	return nil
}

func (p *publication) all() []int {
	all := make([]int, len(p.runs))
	for i := range all {
		all[i] = i
	}
	return all
}

// fail gives runs an error unless they have one.
func (p *publication) fail(runs []int, err error) {
	for _, i := range runs {
		if p.answers[i].Err == nil {
			p.answers[i] = transport.Appended{Err: fmt.Errorf("append to %s: %w", p.runs[i].Lane, err)}
		}
	}
}

// append brings entries, and whatever else is in reach. A server that is full takes no entries; lanes that bring none are told of nevertheless.
func (p *publication) append(ctx context.Context, runs []int) {
	batches := p.batches(runs)
	p.send(ctx, scriptAppend, batches)
	var nudges [][]int
	for _, batch := range batches {
		var empty []int
		for _, i := range batch {
			if p.answers[i].Err == nil || codeOf(p.answers[i].Err) != codeOOM {
				continue
			}
			if len(p.runs[i].Entries) > 0 {
				p.answers[i].Err = fmt.Errorf("append to %s: %w", p.runs[i].Lane, transport.ErrFull)
				continue
			}
			p.answers[i].Err = nil
			empty = append(empty, i)
		}
		if len(empty) > 0 {
			nudges = append(nudges, empty)
		}
	}
	if len(nudges) > 0 {
		p.send(ctx, scriptNudge, nudges)
	}
}

// batches cuts runs into calls: by size, and on a Cluster by slot.
func (p *publication) batches(runs []int) [][]int {
	type batch struct {
		runs           []int
		entries, bytes int
	}
	var done [][]int
	open := make(map[uint16]*batch)
	for _, i := range runs {
		var slot uint16
		if p.c.servers.cluster {
			slot = slotOf(p.keys[i].stream)
		}
		entries, bytes := len(p.runs[i].Entries), 0
		for e := range p.runs[i].Entries {
			bytes += len(p.runs[i].Entries[e].Data)
		}
		b := open[slot]
		if b != nil && (len(b.runs) == appendLanes || b.entries+entries > appendEntries || b.bytes+bytes > appendBytes) {
			done = append(done, b.runs)
			b = nil
		}
		if b == nil {
			b = &batch{}
			open[slot] = b
		}
		b.runs, b.entries, b.bytes = append(b.runs, i), b.entries+entries, b.bytes+bytes
	}
	for _, b := range open {
		done = append(done, b.runs)
	}
	return done
}

func (p *publication) send(ctx context.Context, s *script, batches [][]int) {
	calls := make([]*call, len(batches))
	for n, batch := range batches {
		calls[n] = p.call(s, batch)
	}
	p.c.servers.runAll(ctx, onWork, calls)
	for n, batch := range batches {
		answers, ok := list(calls[n].reply, 2*len(batch))
		switch {
		case calls[n].err != nil:
			p.fail(batch, calls[n].err)
		case !ok:
			p.fail(batch, oddReply(s, calls[n].reply))
		default:
			for at, i := range batch {
				p.answers[i] = p.appended(i, answers[2*at], answers[2*at+1])
			}
		}
	}
}

// call is written as the head of append.lua says.
func (p *publication) call(s *script, batch []int) *call {
	var busy audience
	var categories []string
	if !p.c.servers.cluster {
		busy, categories = p.audience(batch), p.categories(batch)
	}
	keys := 2*len(batch) + len(categories) + len(busy.names)
	line := lineOf(keys, 8+keys+p.size(batch)+busy.size(len(batch)))
	for _, i := range batch {
		line = append(line, &p.keys[i].stream, &p.keys[i].newest)
	}
	for _, category := range categories {
		line = append(line, mustName(p.c.names, event.Name{Kind: event.NameIndex, Owner: category}))
	}
	for _, name := range busy.names {
		line = append(line, mustName(p.c.names, event.Name{Kind: event.NameBusy, Owner: name}))
	}
	line = append(line, p.ahead, len(batch))
	var full *event.Envelope // the last one that was said in full
	for at, i := range batch {
		r := &p.runs[i]
		index := slices.Index(categories, r.Lane.Category) + 1
		if index > 0 {
			index += 2 * len(batch)
		}
		line = append(line, 2*at+1, index, &r.Lane.Key, flag(r.Start))
		if len(r.Entries) == 0 {
			line = append(line, 0, 0)
			continue
		}
		line = append(line, (*uint64)(&r.Entries[0].Sequence), len(r.Entries))
		for e := range r.Entries {
			entry, count := &r.Entries[e], len(line)
			if full != nil && alike(full, entry) {
				line = appendValues(append(line, nil), entry)
				line[count] = -(len(line) - count - 1)
				continue
			}
			full, line = entry, appendEntry(append(line, nil), entry)
			line[count] = len(line) - count - 1
		}
	}
	line = append(line, len(busy.names))
	for n, name := range busy.names {
		line = append(line, keys-len(busy.names)+n+1, mustName(p.c.names, event.Name{Kind: event.NameWake, Owner: name}))
		if busy.all {
			line = append(line, 0)
			continue
		}
		line = append(append(line, len(busy.keys[n])), busy.keys[n]...)
	}
	return &call{script: s, keys: []string{p.keys[batch[0]].stream}, line: line}
}

// categories are those of the lanes.
func (p *publication) categories(batch []int) (all []string) {
	for _, i := range batch {
		if category := p.runs[i].Lane.Category; len(all) == 0 || all[len(all)-1] != category && !slices.Contains(all, category) {
			all = append(all, category)
		}
	}
	return all
}

// size is about how many words lanes and entries have.
func (p *publication) size(batch []int) int {
	n := 0
	for _, i := range batch {
		n += 6 + 8*len(p.runs[i].Entries)
	}
	return n
}

// audience is who gets work by a call, in the order in which they come, and on which keys.
type audience struct {
	all   bool // each of them on the keys of all lanes, none of which comes twice: keys has none
	names []string
	keys  [][]any
}

func (a *audience) size(lanes int) int {
	if a.all {
		lanes = 0
	}
	return 1 + len(a.names)*(3+lanes)
}

func (p *publication) audience(batch []int) (a audience) {
	first := &p.runs[batch[0]]
	a.all = true
	for _, i := range batch {
		r := &p.runs[i]
		if r.Lane.Lane != event.Primary || r.Lane.Category != first.Lane.Category || !slices.Equal(r.Subscribers, first.Subscribers) {
			a.all = false
			break
		}
	}
	if a.all {
		a.names = first.Subscribers
		return a
	}
	seen := make(map[event.Unit]bool)
	for _, i := range batch {
		r := &p.runs[i]
		for _, name := range r.Subscribers {
			u := event.Unit{Name: name, Key: r.Lane.Key}
			if seen[u] {
				continue
			}
			seen[u] = true
			n := slices.Index(a.names, name)
			if n < 0 {
				n = len(a.names)
				a.names, a.keys = append(a.names, name), append(a.keys, nil)
			}
			a.keys[n] = append(a.keys[n], &r.Lane.Key)
		}
	}
	return a
}

// appended reads the two elements that answer a run.
func (p *publication) appended(i int, outcome, told any) transport.Appended {
	word, _ := outcome.(string)
	text, _ := told.(string)
	var a transport.Appended
	switch word {
	case "ok":
		a.Outcome = transport.AppendOK
	case "dup":
		a.Outcome = transport.AppendDup
	case "gap":
		a.Outcome = transport.AppendGap
	case "empty":
		return transport.Appended{Outcome: transport.AppendEmpty}
	default:
		return transport.Appended{Err: fmt.Errorf("append to %s: %s", p.runs[i].Lane, text)}
	}
	sequence, id, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(sequence, 10, 64)
	if err != nil {
		return transport.Appended{Err: fmt.Errorf("append to %s: newest entry %q has no sequence", p.runs[i].Lane, text)}
	}
	a.Newest, a.NewestID = event.Sequence(n), id
	return a
}

// mark is the second step on a Cluster.
func (p *publication) mark(ctx context.Context) {
	runs := make(map[string][]int)
	var names []string
	for i := range p.runs {
		for _, name := range p.runs[i].Subscribers {
			if p.answers[i].Err == nil {
				if runs[name] == nil {
					names = append(names, name)
				}
				runs[name] = append(runs[name], i)
			}
		}
	}
	calls := make([]*call, len(names))
	for n, name := range names {
		keys := make([]string, len(runs[name]))
		for at, i := range runs[name] {
			keys[at] = p.runs[i].Lane.Key
		}
		calls[n] = p.c.marks(name, keys, false)
	}
	p.c.servers.runAll(ctx, onWork, calls)
	for n, name := range names {
		if calls[n].err != nil {
			p.fail(runs[name], calls[n].err)
		}
	}
}

// marks adds keys to the busy set of a subscriber, whose name has been checked. With all, those that were in it are woken as well.
func (c *connection) marks(name string, keys []string, all bool) *call {
	wake := 0
	if all {
		wake = 1
	}
	made := &call{script: scriptMark, keys: []string{mustName(c.names, event.Name{Kind: event.NameBusy, Owner: name})},
		args: []any{mustName(c.names, event.Name{Kind: event.NameWake, Owner: name}), wake, len(keys)}}
	for _, key := range keys {
		made.args = append(made.args, key)
	}
	return made
}

// index is the third step on a Cluster.
func (p *publication) index(ctx context.Context) {
	runs := make(map[string][]int)
	for i := range p.runs {
		if a := &p.answers[i]; a.Err == nil && a.Outcome != transport.AppendEmpty {
			runs[p.runs[i].Lane.Category] = append(runs[p.runs[i].Lane.Category], i)
		}
	}
	var calls []*call
	var of [][]int
	for category, all := range runs {
		index := mustName(p.c.names, event.Name{Kind: event.NameIndex, Owner: category})
		one := put(index, true)
		for _, i := range all {
			one.args = append(one.args, p.runs[i].Lane.Key)
		}
		calls, of = append(calls, one), append(of, all)
	}
	p.c.servers.runAll(ctx, onWork, calls)
	for n := range calls {
		if calls[n].err != nil {
			p.fail(of[n], calls[n].err)
		}
	}
}
