package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// maxRun is how many entries a run that somebody asked for has at most.
const maxRun = 1000

var (
	scriptServe  = newScript("serve")
	scriptSettle = newScript("settle")
)

// A request is a field of `order:__missing__`: who asks and in which lane, then, as value, the sequence after which the run is to begin. So a
// subscriber that asks again does not ask twice, and one that asks for something else withdraws what it asked before.
func requestField(u event.Unit, lane event.Lane) string {
	return u.Name + ":" + lane.String() + ":" + u.Key
}

// requestValue says after which sequence the run is to begin; who has no place yet asks from when on.
func requestValue(after event.Sequence, begin *time.Time) string {
	switch {
	case begin == nil:
		return after.String()
	case begin.IsZero():
		return after.String() + beginning + "0"
	}
	return after.String() + beginning + strconv.FormatInt(begin.UnixMilli(), 10)
}

const (
	beginning = " from " // between a sequence and milliseconds since 1970
	over      = "over"   // in place of a lane
)

// overField tells, with a store as value, that a subscriber of that store was removed.
func overField(name string) string { return name + ":" + over + ":" }

// parseRequest takes a request apart; false: nobody who keeps to docs/wire.md wrote it.
func parseRequest(category, field, value string) (transport.Wanted, bool) {
	name, rest, one := strings.Cut(field, ":")
	lane, key, two := strings.Cut(rest, ":")
	place, from, begin := strings.Cut(value, beginning)
	after, err := strconv.ParseUint(place, 10, 64)
	ref := event.LaneRef{Category: category, Key: key}
	w := transport.Wanted{Unit: event.Unit{Name: name, Key: key}, After: event.Sequence(after), Begin: begin, ID: field + " " + value}
	if begin {
		ms, bad := strconv.ParseInt(from, 10, 64)
		if err = errors.Join(err, bad); ms != 0 {
			w.From = time.UnixMilli(ms).UTC()
		}
	}
	switch lane {
	case over:
		return transport.Wanted{Unit: w.Unit, Lane: ref, Over: true, StoreID: value, ID: w.ID}, key == ""
	case event.Primary.String():
	case event.Backfill.String():
		ref.Lane = event.Backfill
	default:
		return transport.Wanted{}, false
	}
	w.Lane = ref
	return w, one && two && err == nil
}

// Wanted implements [transport.BrokerStreams].
func (t *Transport) Wanted(ctx context.Context, category string) ([]transport.Wanted, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	requests, err := c.name(event.NameMissing, category)
	if err != nil {
		return nil, err
	}
	ask := &call{keys: []string{requests}, args: []any{"hgetall", requests}}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return nil, fmt.Errorf("ask what readers of %s miss: %w", category, err)
	}
	fields, ok := pairs(ask.reply)
	if !ok {
		return nil, fmt.Errorf("ask what readers of %s miss: %w", category, errOddHash)
	}
	var all []transport.Wanted
	for field, value := range fields {
		if w, ok := parseRequest(category, field, value); ok {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(x, y transport.Wanted) int { return strings.Compare(x.ID, y.ID) })
	return all, nil
}

// Serve implements [transport.BrokerStreams]. A run of more than 1,000 entries is cut: the reader asks for the rest.
func (t *Transport) Serve(ctx context.Context, w transport.Wanted, entries []event.Envelope) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	fault := func(err error) error { return fmt.Errorf("serve %s what it misses of %s: %w", w.Unit, w.Lane, err) }
	requests, err := c.name(event.NameMissing, w.Lane.Category)
	if err != nil {
		return fault(err)
	}
	if w.Over {
		settle := &call{script: scriptSettle, keys: []string{requests}, args: []any{overField(w.Unit.Name), w.StoreID}}
		if _, err := c.servers.run(ctx, onWork, settle); err != nil {
			return fault(err)
		}
		return nil
	}
	run, err := c.names.Build(event.Name{Kind: event.NameMissingRun, Owner: w.Unit.Name, Key: w.Unit.Key})
	if err != nil {
		return fault(err)
	}
	field := requestField(w.Unit, w.Lane.Lane)
	value := strings.TrimPrefix(w.ID, field+" ")
	ask := &call{keys: []string{requests}, args: []any{"hmget", requests, field}}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return fault(err)
	}
	if now, ok := list(ask.reply, 1); !ok || now[0] != value {
		return nil // withdrawn, or served by another
	}
	after, begin := w.After, ""
	if w.Begin {
		begin = "1"
		if len(entries) > 0 {
			after = entries[0].Sequence - 1
		}
	}
	serve := &call{script: scriptServe, keys: []string{run}, args: []any{w.Lane.Category, w.Lane.Lane.String(), after.String(), t.cfg.RetireAfter.Milliseconds(), begin}}
	for i := range entries[:min(len(entries), maxRun)] {
		values := encodeEntry(&entries[i])
		serve.args = append(append(serve.args, entryID(entries[i].Sequence), len(values)), values...)
	}
	if _, err := c.servers.run(ctx, onWork, serve); err != nil {
		if codeOf(err) == codeOOM {
			err = transport.ErrFull
		}
		return fault(err)
	}
	calls := []*call{c.marks(w.Unit.Name, []string{w.Unit.Key}, true), {script: scriptSettle, keys: []string{requests}, args: []any{field, value}}}
	c.servers.runAll(ctx, onWork, calls)
	for _, one := range calls {
		if one.err != nil {
			return fault(one.err)
		}
	}
	return nil
}

// found is what comes next in a lane, as far as it was found.
type found struct {
	entries    []event.Envelope
	answer     bool           // they are what the producer was asked for
	unanswered bool           // the producer has not said anything yet of what comes next, and is to be asked
	gone       bool           // what comes next is nowhere any more
	place      event.Sequence // behind which the unit begins, which had no place; 0 = it has one
}

// answer gives entries of a lane after a sequence, up to max, from the run that its producer wrote for the unit. begin: from when on the unit begins, which has no place in the
// lane yet.
func (c *connection) answer(ctx context.Context, u event.Unit, lane event.LaneRef, after event.Sequence, begin *time.Time, max int) (found, error) {
	run, err := c.names.Build(event.Name{Kind: event.NameMissingRun, Owner: u.Name, Key: u.Key})
	if err != nil {
		return found{}, missed(u, lane, err)
	}
	head := &call{keys: []string{run}, args: []any{"xrange", run, "0-1", "0-1"}}
	body := &call{keys: []string{run}, args: []any{"xrange", run, entryID(after + 1), "+", "count", max}}
	c.servers.runAll(ctx, onWork, []*call{head, body})
	if head.err != nil || body.err != nil {
		return found{}, missed(u, lane, firstError(head.err, body.err))
	}
	begins, places, ok := runOf(head.reply, lane)
	switch {
	case ok && places && begin != nil && begins > after:
		return found{place: begins}, nil
	case ok && begins <= after:
		entries, err := runEntries(body.reply, lane, after)
		if err != nil {
			return found{}, missed(u, lane, err)
		}
		if len(entries) > 0 || begins == after && !places {
			return found{entries: entries, answer: true, gone: len(entries) == 0}, nil
		}
	}
	return found{unanswered: true}, nil
}

// request asks the producer of a lane for what comes after a sequence. It marks the unit when it has answered.
func (c *connection) request(ctx context.Context, u event.Unit, lane event.LaneRef, after event.Sequence, begin *time.Time) error {
	requests, err := c.name(event.NameMissing, lane.Category)
	if err == nil {
		_, err = c.servers.number(ctx, requests, "hset", requests, requestField(u, lane.Lane), requestValue(after, begin))
	}
	if err != nil {
		return missed(u, lane, err)
	}
	return nil
}

func missed(u event.Unit, lane event.LaneRef, err error) error {
	return fmt.Errorf("ask for what %s misses of %s: %w", u, lane, err)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runOf reads the first entry of a run: the sequence after which it begins, if it is of that lane, and whether that is the place of one who had none.
func runOf(reply any, lane event.LaneRef) (after event.Sequence, places, ok bool) {
	found, ok := list(reply, 1)
	if !ok {
		return 0, false, false
	}
	entry, ok := list(found[0], 2)
	if !ok {
		return 0, false, false
	}
	fields, ok := pairs(entry[1])
	n, err := strconv.ParseUint(fields["after"], 10, 64)
	return event.Sequence(n), fields["begin"] == "1", ok && err == nil && fields["category"] == lane.Category && fields["lane"] == lane.Lane.String()
}

// runEntries reads the entries of a run that follow a sequence without a gap.
func runEntries(reply any, lane event.LaneRef, after event.Sequence) ([]event.Envelope, error) {
	found, ok := list(reply, 0)
	if !ok {
		return nil, fmt.Errorf("odd reply %v", reply)
	}
	var entries []event.Envelope
	for _, one := range found {
		pair, ok := list(one, 2)
		if !ok {
			return nil, fmt.Errorf("odd reply %v", reply)
		}
		id, _ := pair[0].(string)
		fields, _ := list(pair[1], 0)
		e, err := decodeEntry(lane, id, fields)
		if err != nil {
			return nil, err
		}
		if e.Sequence != after+event.Sequence(len(entries))+1 {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}
