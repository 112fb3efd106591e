package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// busyPage is about how many keys one call of Busy gives, leasesPage how many leases one pipeline asks for, markKeys how many keys one call marks.
const (
	busyPage   = 1000
	leasesPage = 1000
	markKeys   = 5000
)

var scriptPut = newScript("put")

// Mark implements [transport.Work].
func (t *Transport) Mark(ctx context.Context, units []event.Unit) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	calls, err := c.markCalls(units, true)
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	c.servers.runAll(ctx, onWork, calls)
	var faults []error
	for _, one := range calls {
		if one.err != nil {
			faults = append(faults, fmt.Errorf("mark: %w", one.err))
		}
	}
	return errors.Join(faults...)
}

// markCalls are the calls that mark units, one for each subscriber and page.
func (c *connection) markCalls(units []event.Unit, all bool) ([]*call, error) {
	var calls []*call
	names, keys := []string{}, make(map[string][]string)
	add := func(name string) {
		calls = append(calls, c.marks(name, keys[name], all))
		keys[name] = nil
	}
	for _, u := range units {
		if _, err := c.names.Build(event.Name{Kind: event.NameLease, Owner: u.Name, Key: u.Key}); err != nil {
			return nil, err
		}
		if _, known := keys[u.Name]; !known {
			names = append(names, u.Name)
		}
		if keys[u.Name] = append(keys[u.Name], u.Key); len(keys[u.Name]) == markKeys {
			add(u.Name)
		}
	}
	for _, name := range names {
		if len(keys[name]) > 0 {
			add(name)
		}
	}
	return calls, nil
}

// Busy implements [transport.Work].
func (t *Transport) Busy(ctx context.Context, name string, cursor uint64) (keys []string, next uint64, err error) {
	c := t.conn.Load()
	if c == nil {
		return nil, 0, errNotConnected
	}
	busy, err := c.name(event.NameBusy, name)
	if err != nil {
		return nil, 0, err
	}
	fault := func(err error) ([]string, uint64, error) {
		return nil, 0, fmt.Errorf("scan keys of %s that have work: %w", name, err)
	}
	scan := &call{keys: []string{busy}, args: []any{"sscan", busy, cursor, "count", busyPage}}
	if _, err := c.servers.run(ctx, onWork, scan); err != nil {
		return fault(err)
	}
	page, next, ok := scanned(scan.reply)
	if !ok {
		return fault(fmt.Errorf("odd reply %v", scan.reply))
	}
	if len(page) == 0 {
		return nil, next, nil
	}
	halted := mustName(c.names, event.Name{Kind: event.NameHalted, Owner: name})
	ask := &call{keys: []string{halted}, args: append([]any{"smismember", halted}, page...)}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return fault(err)
	}
	rests, ok := list(ask.reply, len(page))
	if !ok {
		return fault(fmt.Errorf("odd reply %v", ask.reply))
	}
	for i := range page {
		if at, _ := integer(rests[i]); at == 0 {
			keys = append(keys, page[i].(string))
		}
	}
	return keys, next, nil
}

// Resting implements [transport.Work].
func (t *Transport) Resting(ctx context.Context, name string, cursor uint64) (keys []string, next uint64, err error) {
	c := t.conn.Load()
	if c == nil {
		return nil, 0, errNotConnected
	}
	halted, err := c.name(event.NameHalted, name)
	if err != nil {
		return nil, 0, err
	}
	scan := &call{keys: []string{halted}, args: []any{"sscan", halted, cursor, "count", busyPage}}
	if _, err = c.servers.run(ctx, onWork, scan); err != nil {
		return nil, 0, fmt.Errorf("scan keys of %s that wait for a person: %w", name, err)
	}
	page, next, ok := scanned(scan.reply)
	if !ok {
		return nil, 0, fmt.Errorf("scan keys of %s that wait for a person: odd reply %v", name, scan.reply)
	}
	for _, key := range page {
		keys = append(keys, key.(string))
	}
	return keys, next, nil
}

// scanned takes the reply of a scan apart: elements, and the next cursor.
func scanned(reply any) (page []any, next uint64, ok bool) {
	both, ok := list(reply, 2)
	if !ok {
		return nil, 0, false
	}
	text, _ := both[0].(string)
	page, ok = list(both[1], 0)
	if _, err := fmt.Sscan(text, &next); err != nil {
		return nil, 0, false
	}
	for _, key := range page {
		if _, is := key.(string); !is {
			return nil, 0, false
		}
	}
	return page, next, ok
}

// Leases implements [transport.Work].
func (t *Transport) Leases(ctx context.Context, units []event.Unit) ([]time.Duration, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	left := make([]time.Duration, len(units))
	for from := 0; from < len(units); from += leasesPage {
		if err := c.leases(ctx, units[from:min(from+leasesPage, len(units))], left[from:]); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// leases asks for leases in one go: those of parts by hash, the others one by one.
func (c *connection) leases(ctx context.Context, units []event.Unit, left []time.Duration) error {
	asked := make([]*call, len(units)) // of units that stand for no part
	var calls []*call
	hashes := make(map[string]*partLeases)
	for i, u := range units {
		if store, field, is := partField(u); is {
			hash, err := c.name(event.NameParts, store)
			if err != nil {
				return err
			}
			if hashes[hash] == nil {
				hashes[hash] = newPartLeases(hash)
				calls = append(calls, hashes[hash].clock, hashes[hash].kept)
			}
			hashes[hash].add(i, field)
			continue
		}
		lease, err := c.names.Build(event.Name{Kind: event.NameLease, Owner: u.Name, Key: u.Key})
		if err != nil {
			return err
		}
		asked[i] = &call{keys: []string{lease}, args: []any{"pttl", lease}}
		calls = append(calls, asked[i])
	}
	c.servers.runAll(ctx, onWork, calls)
	for i, one := range asked {
		switch {
		case one == nil:
		case one.err != nil:
			return fmt.Errorf("ask for the lease of %s: %w", units[i], one.err)
		default:
			if ms, _ := integer(one.reply); ms > 0 {
				left[i] = time.Duration(ms) * time.Millisecond
			}
		}
	}
	for hash, of := range hashes {
		if err := of.read(left); err != nil {
			return fmt.Errorf("ask for leases of parts, %s: %w", hash, err)
		}
	}
	return nil
}

// put puts members into a set, or takes them out, also where memory is full.
func put(set string, in bool, members ...any) *call {
	return &call{script: scriptPut, keys: []string{set}, args: append([]any{flag(in)}, members...)}
}

// Halted implements [transport.Work].
func (t *Transport) Halted(ctx context.Context, u event.Unit, halted bool) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	set, err := c.name(event.NameHalted, u.Name)
	if err != nil {
		return err
	}
	if _, err := c.servers.run(ctx, onWork, put(set, halted, u.Key)); err != nil {
		return fmt.Errorf("note that %s is halted: %w", u, err)
	}
	return nil
}
