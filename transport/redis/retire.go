package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// trimLanes is how many lanes one call trims.
const trimLanes = 128

var (
	scriptTrim   = newScript("trim")
	scriptRetire = newScript("retire")
)

// errNotConnected: there is no connection.
var errNotConnected = errors.New("redis: not connected: call Connect first")

// storeID is the store that is bound, "" for none.
func (t *Transport) storeID() string {
	if b := t.bound.Load(); b != nil {
		return b.id.StoreID
	}
	return ""
}

// Trim implements [transport.BrokerStreams]. The caller knows how far the subscribers of its own store are; for those of other stores their groups say it.
func (t *Transport) Trim(ctx context.Context, lanes []transport.Trim) []error {
	errs := make([]error, len(lanes))
	c := t.conn.Load()
	if c == nil {
		return fill(errs, errNotConnected)
	}
	foreign, err := t.foreign(ctx, func(yield func(string) bool) {
		for i := range lanes {
			if !yield(lanes[i].Lane.Category) {
				return
			}
		}
	})
	if err != nil {
		return fill(errs, fmt.Errorf("trim: %w", err))
	}
	open := make(map[uint16]*call)
	of := make(map[*call][]int)
	var calls []*call
	for i, l := range lanes {
		keys, err := c.lane(l.Lane)
		if err != nil {
			errs[i] = fmt.Errorf("trim: %w", err)
			continue
		}
		var slot uint16
		if c.servers.cluster {
			slot = slotOf(keys.stream)
		}
		one := open[slot]
		if one == nil || len(of[one]) == trimLanes {
			one = &call{script: scriptTrim}
			open[slot], calls = one, append(calls, one)
		}
		of[one] = append(of[one], i)
		one.keys = append(one.keys, keys.stream, keys.newest)
		holders := slices.Concat(foreign[l.Lane.Category], l.Subscribers)
		slices.Sort(holders)
		holders = slices.Compact(holders)
		one.args = append(one.args, uint64(l.Through), len(holders))
		for _, name := range holders {
			one.args = append(one.args, name)
		}
	}
	c.servers.runAll(ctx, onWork, calls)
	for _, one := range calls {
		answers, ok := list(one.reply, len(of[one]))
		for at, i := range of[one] {
			switch {
			case one.err != nil:
				errs[i] = fmt.Errorf("trim %s: %w", lanes[i].Lane, one.err)
			case !ok:
				errs[i] = oddReply(scriptTrim, one.reply)
			case answers[at] != "":
				errs[i] = fmt.Errorf("trim %s: %v", lanes[i].Lane, answers[at])
			}
		}
	}
	return errs
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// foreign gives the registered subscribers of categories that keep their checkpoints elsewhere. Without a store that is bound, that is nobody: whoever calls
// speaks for all.
func (t *Transport) foreign(ctx context.Context, categories func(yield func(string) bool)) (map[string][]string, error) {
	own := t.storeID()
	if own == "" {
		return nil, nil
	}
	var distinct []string
	for category := range categories {
		if !slices.Contains(distinct, category) {
			distinct = append(distinct, category)
		}
	}
	registered, err := t.Subscribers(ctx, distinct)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]string)
	for category, all := range registered {
		for _, s := range all {
			if s.StoreID != own {
				found[category] = append(found[category], s.Name)
			}
		}
	}
	return found, nil
}

// retirement is one lane of [Transport.Retire].
type retirement struct {
	lane   transport.Retire
	keys   laneKeys
	other  laneKeys // of the other lane of the partition
	index  string
	answer error
}

// Retire implements [transport.BrokerStreams]. Whoever holds a lane because its group says nothing gets work there: its owner comes, and makes
// the group, or reads what is left. On a Cluster, where index and stream are on different servers, the key leaves the index first, then the stream
// is deleted if it may be still, and a partition that is there after all is put back.
func (t *Transport) Retire(ctx context.Context, lanes []transport.Retire) []error {
	errs := make([]error, len(lanes))
	c := t.conn.Load()
	if c == nil {
		return fill(errs, errNotConnected)
	}
	all := make([]*retirement, 0, len(lanes))
	for i := range lanes {
		r := &retirement{lane: lanes[i]}
		keys, err := c.lane(r.lane.Lane)
		if err == nil {
			r.other, err = c.lane(otherLane(r.lane.Lane))
		}
		if err == nil {
			err = c.checkNames(event.NameBusy, r.lane.Subscribers)
		}
		r.keys, r.answer = keys, err
		if err == nil {
			r.index = mustName(c.names, event.Name{Kind: event.NameIndex, Owner: r.lane.Lane.Category})
		}
		all = append(all, r)
	}
	if c.servers.cluster {
		t.retireStepwise(ctx, c, all)
	} else {
		held := c.retire(ctx, all, "delete", t.storeID())
		c.markHolders(ctx, held)
	}
	for i, r := range all {
		if r.answer != nil {
			errs[i] = fmt.Errorf("retire %s: %w", r.lane.Lane, r.answer)
		}
	}
	return errs
}

func (t *Transport) retireStepwise(ctx context.Context, c *connection, all []*retirement) {
	foreign, err := t.foreign(ctx, func(yield func(string) bool) {
		for _, r := range all {
			if r.answer == nil && !yield(r.lane.Lane.Category) {
				return
			}
		}
	})
	for _, r := range all {
		if err != nil && r.answer == nil {
			r.answer = err
		}
		r.lane.Subscribers = append(slices.Clone(r.lane.Subscribers), foreign[r.lane.Lane.Category]...)
	}
	held := c.retire(ctx, all, "look", t.storeID())
	leaving := make(map[*retirement]bool) // or so it may be: an error leaves that open
	for _, r := range all {
		leaving[r] = r.answer == nil
	}
	c.indexed(ctx, all, false, func(r *retirement) bool { return leaving[r] })
	held = append(held, c.retire(ctx, all, "delete", t.storeID())...)
	live := c.live(ctx, all, leaving)
	c.indexed(ctx, all, true, func(r *retirement) bool { return live[r] })
	c.markHolders(ctx, held)
}

// retire has the script look or delete, for all that have no error yet, and gives the units that hold lanes.
func (c *connection) retire(ctx context.Context, all []*retirement, what, store string) (held []event.Unit) {
	var calls []*call
	var of []*retirement
	for _, r := range all {
		if r.answer != nil {
			continue
		}
		one := &call{script: scriptRetire, keys: []string{r.keys.stream, r.keys.newest, r.other.stream, r.other.newest}}
		if !c.servers.cluster {
			one.keys = append(one.keys, r.index, mustName(c.names, event.Name{Kind: event.NameHandlers, Owner: r.lane.Lane.Category}))
		}
		one.args = []any{what, r.lane.Lane.Key, uint64(r.lane.Through), store}
		for _, name := range r.lane.Subscribers {
			one.args = append(one.args, name)
		}
		calls, of = append(calls, one), append(of, r)
	}
	c.servers.runAll(ctx, onWork, calls)
	for n, r := range of {
		answer, ok := list(calls[n].reply, 1)
		switch {
		case calls[n].err != nil:
			r.answer = calls[n].err
		case !ok:
			r.answer = oddReply(scriptRetire, calls[n].reply)
		case answer[0] == "busy":
			var names []string
			for _, name := range answer[1:] {
				if text, ok := name.(string); ok {
					names = append(names, text)
					held = append(held, event.Unit{Name: text, Key: r.lane.Lane.Key})
				}
			}
			r.answer = transport.ErrBusy
			if len(names) > 0 {
				r.answer = fmt.Errorf("%w by %s", transport.ErrBusy, strings.Join(names, ", "))
			}
		}
	}
	return held
}

// live tells which of those that left the index are there after all, be it that they could not be deleted, be it that it is not known. Asking is no change: where
// it fails, the key is put back, and the next attempt takes it out again.
func (c *connection) live(ctx context.Context, all []*retirement, left map[*retirement]bool) map[*retirement]bool {
	live := make(map[*retirement]bool)
	var calls []*call
	var of []*retirement
	for _, r := range all {
		if left[r] {
			calls, of = append(calls, &call{keys: []string{r.keys.stream}, args: []any{"exists", r.keys.stream, r.other.stream}}), append(of, r)
		}
	}
	c.servers.runAll(ctx, onWork, calls)
	for n, r := range of {
		there, ok := integer(calls[n].reply)
		live[r] = !ok || there > 0
	}
	return live
}

// indexed adds keys to indexes, or removes them.
func (c *connection) indexed(ctx context.Context, all []*retirement, add bool, which func(*retirement) bool) {
	var calls []*call
	var of []*retirement
	for _, r := range all {
		if which(r) {
			one := &call{keys: []string{r.index}, args: []any{"srem", r.index, r.lane.Lane.Key}}
			if add {
				one = put(r.index, true, r.lane.Lane.Key)
			}
			calls, of = append(calls, one), append(of, r)
		}
	}
	c.servers.runAll(ctx, onWork, calls)
	for n, r := range of {
		if calls[n].err != nil && r.answer == nil {
			r.answer = calls[n].err
		}
	}
}

// markHolders marks units that hold a lane. It may fail: they hold it, and the next attempt finds them again.
func (c *connection) markHolders(ctx context.Context, held []event.Unit) {
	calls, err := c.markCalls(held, false)
	if err == nil {
		c.servers.runAll(ctx, onWork, calls)
	}
}

// Partitions implements [transport.BrokerStreams].
func (t *Transport) Partitions(ctx context.Context, category string) (int, error) {
	c := t.conn.Load()
	if c == nil {
		return 0, errNotConnected
	}
	index, err := c.name(event.NameIndex, category)
	if err != nil {
		return 0, err
	}
	n, err := c.servers.number(ctx, index, "scard", index)
	if err != nil {
		return 0, fmt.Errorf("count partitions of %s: %w", category, err)
	}
	return int(n), nil
}
