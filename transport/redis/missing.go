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

// parseRequest takes a request apart; false: nobody who keeps to docs/wire.md wrote it.
func parseRequest(category, field, value string) (transport.Wanted, bool) {
	name, rest, one := strings.Cut(field, ":")
	lane, key, two := strings.Cut(rest, ":")
	after, err := strconv.ParseUint(value, 10, 64)
	ref := event.LaneRef{Category: category, Key: key}
	switch lane {
	case event.Primary.String():
	case event.Backfill.String():
		ref.Lane = event.Backfill
	default:
		return transport.Wanted{}, false
	}
	return transport.Wanted{Unit: event.Unit{Name: name, Key: key}, Lane: ref, After: event.Sequence(after), ID: field + " " + value}, one && two && err == nil
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
	run, err := c.names.Build(event.Name{Kind: event.NameMissingRun, Owner: w.Unit.Name, Key: w.Unit.Key})
	if err != nil {
		return fault(err)
	}
	field, after := requestField(w.Unit, w.Lane.Lane), w.After.String()
	ask := &call{keys: []string{requests}, args: []any{"hmget", requests, field}}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return fault(err)
	}
	if now, ok := list(ask.reply, 1); !ok || now[0] != after || w.ID != field+" "+after {
		return nil // withdrawn, or served by another
	}
	serve := &call{script: scriptServe, keys: []string{run}, args: []any{w.Lane.Category, w.Lane.Lane.String(), after, t.cfg.RetireAfter.Milliseconds()}}
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
	calls := []*call{c.marks(w.Unit.Name, []string{w.Unit.Key}, true), {script: scriptSettle, keys: []string{requests}, args: []any{field, after}}}
	c.servers.runAll(ctx, onWork, calls)
	for _, one := range calls {
		if one.err != nil {
			return fault(one.err)
		}
	}
	return nil
}

// missing gives entries of a lane after a sequence, up to max, from the run that its producer wrote for the unit, and asks for it where there is none. gone: the producer
// says that they are nowhere any more. Neither: it has not answered yet; it marks the unit when it does.
func (c *connection) missing(ctx context.Context, u event.Unit, lane event.LaneRef, after event.Sequence, max int) (entries []event.Envelope, gone bool, err error) {
	fault := func(err error) ([]event.Envelope, bool, error) {
		return nil, false, fmt.Errorf("ask for what %s misses of %s: %w", u, lane, err)
	}
	run, err := c.names.Build(event.Name{Kind: event.NameMissingRun, Owner: u.Name, Key: u.Key})
	if err != nil {
		return fault(err)
	}
	requests, err := c.name(event.NameMissing, lane.Category)
	if err != nil {
		return fault(err)
	}
	head := &call{keys: []string{run}, args: []any{"xrange", run, "0-1", "0-1"}}
	body := &call{keys: []string{run}, args: []any{"xrange", run, entryID(after + 1), "+", "count", max}}
	c.servers.runAll(ctx, onWork, []*call{head, body})
	if head.err != nil || body.err != nil {
		return fault(firstError(head.err, body.err))
	}
	if begins, ok := runOf(head.reply, lane); ok && begins <= after {
		if entries, err = runEntries(body.reply, lane, after); err != nil {
			return fault(err)
		}
		if len(entries) > 0 || begins == after {
			return entries, len(entries) == 0, nil
		}
	}
	if _, err := c.servers.number(ctx, requests, "hset", requests, requestField(u, lane.Lane), after.String()); err != nil {
		return fault(err)
	}
	return nil, false, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runOf reads the first entry of a run: the sequence after which it begins, if it is of that lane.
func runOf(reply any, lane event.LaneRef) (event.Sequence, bool) {
	found, ok := list(reply, 1)
	if !ok {
		return 0, false
	}
	entry, ok := list(found[0], 2)
	if !ok {
		return 0, false
	}
	fields, ok := pairs(entry[1])
	after, err := strconv.ParseUint(fields["after"], 10, 64)
	return event.Sequence(after), ok && err == nil && fields["category"] == lane.Category && fields["lane"] == lane.Lane.String()
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
