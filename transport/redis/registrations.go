package redis

import (
	"cmp"
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

var scriptDeclare = newScript("declare")

// Fields of the hashes. In `order:__handlers__` each subscriber is a field, its store and its kind the value.
const (
	fieldKeyField  = "key"
	fieldBuckets   = "buckets"
	fieldProducer  = "store"
	fieldKeeper    = "store"
	fieldSort      = "kind"
	categoryPrefix = "category:" // of a subscriber's fields: one for each category that it reads
	claimPrefix    = "claimed "  // of a store in an answer
	noKey          = "-"         // "" means that nothing is known; no field of a message has this name
)

// declaration is one field that is declared, and how to say that it does not agree.
type declaration struct {
	hash, field, value string
	conflict           func(theirs string) *transport.DeclaredError // nil: the value counts, whatever is there
	not                bool                                         // it must not be that value
	claimed            bool                                         // where it has another value, whoever declares may go on all the same, and say so
}

// claimFor is for how long it counts that somebody goes on producing what the broker has another producer for: those that do say so more often.
const claimFor = time.Minute

// Declare implements [transport.Registrations]. On a Cluster, where hashes are on different servers, everything is compared before anything is set; another program that
// declares the contrary in between makes it an error all the same, with some of it set.
func (t *Transport) Declare(ctx context.Context, d transport.Declared) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	var all []declaration
	for i := range d.Categories {
		fields, err := c.declareCategory(&d.Categories[i], d.StoreID)
		if err != nil {
			return fmt.Errorf("declare: %w", err)
		}
		all = append(all, fields...)
	}
	for i := range d.Subscribers {
		fields, err := c.declareSubscriber(&d.Subscribers[i])
		if err != nil {
			return fmt.Errorf("declare: %w", err)
		}
		all = append(all, fields...)
	}
	if len(all) == 0 {
		return nil
	}
	if c.servers.cluster {
		if err := c.declare(ctx, "look", d.Running, all); err != nil {
			return err
		}
	}
	if err := c.declare(ctx, "set", d.Running, all); err != nil {
		return err
	}
	for _, p := range d.Categories {
		t.foreigners.Store(p.Category, p.StoreID != d.StoreID)
	}
	for _, s := range d.Subscribers {
		t.begins.Store(subscription{s.Name, s.Category}, s.Begins)
	}
	return nil
}

// elsewhere reports whether a category was declared as that of another store, which has what its streams have lost.
func (t *Transport) elsewhere(category string) bool {
	foreign, _ := t.foreigners.Load(category)
	return foreign == true
}

// begin tells from when on a handler begins in a lane in which it has no place, nil where that is not known: in categories of its own store it has one.
func (t *Transport) begin(name, category string) *time.Time {
	from, known := t.begins.Load(subscription{name, category})
	if !known || !t.elsewhere(category) {
		return nil
	}
	at := from.(time.Time)
	return &at
}

type subscription struct{ name, category string }

func (c *connection) declareCategory(p *transport.Produced, own string) ([]declaration, error) {
	hash, err := c.name(event.NameDescriptor, p.Category)
	if err != nil {
		return nil, err
	}
	stale := "; if what the broker has is out of date, delete " + hash + " in Redis and start again"
	conflict := func(ours string, theirs func(string) string, remedy string) func(string) *transport.DeclaredError {
		return func(value string) *transport.DeclaredError {
			return &transport.DeclaredError{What: "category " + p.Category, Ours: ours, Theirs: theirs(value), Remedy: remedy + stale}
		}
	}
	key, buckets := p.KeyField, strconv.Itoa(p.Buckets)
	if key == "" {
		key = noKey
	}
	declared := []declaration{
		{hash: hash, field: fieldKeyField, value: key, conflict: conflict(showKey(key), showKey, "all programs must declare the same key, for it decides what is in order with what")},
		{hash: hash, field: fieldBuckets, value: buckets, conflict: conflict(buckets+" buckets", func(s string) string { return s + " buckets" },
			"all programs must declare the same number, for it decides what is in order with what")},
		{hash: hash, field: fieldProducer, value: p.StoreID, claimed: p.StoreID == own, conflict: conflict("store "+p.StoreID, func(s string) string {
			if other, is := strings.CutPrefix(s, claimPrefix); is {
				return "store " + other + " as well, which runs and publishes into the same streams"
			}
			if s == transport.PolledStore {
				return "programs that are no application as the producers (Polled)"
			}
			return "store " + s
		},
			"the events of a category come from one database: give the category another name here, or another namespace to this application")},
	}
	switch p.StoreID {
	case transport.PolledStore: // programs that know nothing of stores
		declared[2].conflict = conflict("streams of programs that are no application (Polled)", func(s string) string { return "store " + s + " as the producer, which numbers what it publishes" },
			"read it as a category that is Foreign")
	case "":
		declared = append(declared, declaration{hash: hash, field: fieldProducer, value: transport.PolledStore, not: true, conflict: conflict("another application as the producer (Foreign)",
			func(string) string { return "programs that are no application as the producers (Polled)" }, "read the category into which they are taken, or take them in with Polled in a category of another name")})
		declared = append(declared, declaration{hash: hash, field: fieldProducer, value: own, not: true, conflict: conflict("events of another application than that of store "+own,
			func(s string) string { return "store " + s + " as the producer, which is its own" }, "what this database produces is read without Foreign; another application has a database of its own")})
	}
	return declared, nil
}

func showKey(key string) string {
	if key == noKey {
		return "no key"
	}
	return "the key " + key
}

func (c *connection) declareSubscriber(s *transport.Subscriber) ([]declaration, error) {
	handlers, err := c.name(event.NameHandlers, s.Category)
	if err != nil {
		return nil, err
	}
	own, err := c.name(event.NameSubscriber, s.Name)
	if err != nil {
		return nil, err
	}
	what := cmp.Or(s.Kind, "subscriber") + " " + s.Name
	remedy := "a name keeps its place in one database: give it another name here; if the other application is gone for good, remove its handler with " +
		"`keyhold handlers rm " + s.Name + "` there, or delete " + own + " in Redis, and start again"
	store := func(theirs string) *transport.DeclaredError {
		return &transport.DeclaredError{What: what, Ours: "store " + s.StoreID, Theirs: "store " + theirs, Remedy: remedy}
	}
	return []declaration{
		{hash: own, field: fieldKeeper, value: s.StoreID, conflict: store},
		{hash: own, field: fieldSort, value: s.Kind, conflict: func(theirs string) *transport.DeclaredError {
			return &transport.DeclaredError{What: what, Ours: "kind " + s.Kind, Theirs: "kind " + theirs,
				Remedy: "handlers and entity kinds share one name space: give one of both another name"}
		}},
		{hash: own, field: categoryPrefix + s.Category, value: "1"},
		{hash: handlers, field: s.Name, value: s.StoreID + " " + s.Kind}, // the subscriber's own hash is what others have to agree with
	}, nil
}

// declare looks or sets, in one call, or on a Cluster in one for each hash.
func (c *connection) declare(ctx context.Context, what string, running bool, all []declaration) error {
	groups, calls := [][]declaration{all}, []*call{}
	claims := 0
	if running {
		claims = 1
	}
	if c.servers.cluster {
		groups = groups[:0]
		at := make(map[string]int)
		for _, d := range all {
			n, known := at[d.hash]
			if !known {
				n = len(groups)
				at[d.hash], groups = n, append(groups, nil)
			}
			groups[n] = append(groups[n], d)
		}
	}
	for _, group := range groups {
		one := &call{script: scriptDeclare, args: []any{what, claimFor.Milliseconds(), claims}}
		places := make(map[string]int)
		for _, d := range group {
			if places[d.hash] == 0 {
				one.keys = append(one.keys, d.hash)
				places[d.hash] = len(one.keys)
			}
			counts := 0
			switch {
			case d.not:
				counts = 2
			case d.conflict == nil:
				counts = 1
			case d.claimed:
				counts = 3
			}
			one.args = append(one.args, places[d.hash], d.field, d.value, counts)
		}
		calls = append(calls, one)
	}
	c.servers.runAll(ctx, onWork, calls)
	var faults []error
	for n, group := range groups {
		faults = append(faults, conflicts(calls[n], group)...)
	}
	return errors.Join(faults...)
}

// conflicts reads the answer of one call.
func conflicts(done *call, group []declaration) []error {
	if done.err != nil {
		return []error{fmt.Errorf("declare: %w", done.err)}
	}
	answer, ok := list(done.reply, 0)
	if !ok || len(answer)%2 != 0 {
		return []error{oddReply(scriptDeclare, done.reply)}
	}
	var faults []error
	for i := 0; i < len(answer); i += 2 {
		n, _ := integer(answer[i])
		theirs, is := answer[i+1].(string)
		if n < 1 || int(n) > len(group) || !is || group[n-1].conflict == nil {
			return []error{oddReply(scriptDeclare, done.reply)}
		}
		faults = append(faults, group[n-1].conflict(theirs))
	}
	return faults
}

// Subscribers implements [transport.Registrations].
func (t *Transport) Subscribers(ctx context.Context, categories []string) (map[string][]transport.Subscriber, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	calls := make([]*call, len(categories))
	for i, category := range categories {
		handlers, err := c.name(event.NameHandlers, category)
		if err != nil {
			return nil, err
		}
		calls[i] = &call{keys: []string{handlers}, args: []any{"hgetall", handlers}}
	}
	c.servers.runAll(ctx, onWork, calls)
	found := make(map[string][]transport.Subscriber)
	for i, category := range categories {
		fields, ok := pairs(calls[i].reply)
		if calls[i].err != nil || !ok {
			return nil, fmt.Errorf("ask who reads %s: %w", category, cmp.Or(calls[i].err, errOddHash))
		}
		var all []transport.Subscriber
		for name, value := range fields {
			store, kind, _ := strings.Cut(value, " ")
			all = append(all, transport.Subscriber{Name: name, Category: category, StoreID: store, Kind: kind})
		}
		slices.SortFunc(all, func(x, y transport.Subscriber) int { return cmp.Compare(x.Name, y.Name) })
		if len(all) > 0 {
			found[category] = all
		}
	}
	return found, nil
}

var errOddHash = errors.New("odd reply: is it a hash?")

// pairs reads the reply of HGETALL.
func pairs(reply any) (map[string]string, bool) {
	flat, ok := list(reply, 0)
	if !ok || len(flat)%2 != 0 {
		return nil, false
	}
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		name, one := flat[i].(string)
		value, two := flat[i+1].(string)
		if !one || !two {
			return nil, false
		}
		fields[name] = value
	}
	return fields, true
}

// farewell tells the producer of a category, if that is another store, that a subscriber is gone: it holds back nothing for it any more. Only the producer's own registry outlives
// a loss of memory.
func (c *connection) farewell(ctx context.Context, category, name, store string) error {
	descriptor, err := c.name(event.NameDescriptor, category)
	if err != nil {
		return err
	}
	requests, err := c.name(event.NameMissing, category)
	if err != nil {
		return err
	}
	ask := &call{keys: []string{descriptor}, args: []any{"hmget", descriptor, fieldProducer}}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return err
	}
	if found, ok := list(ask.reply, 1); store == "" || ok && found[0] == store {
		return nil
	}
	_, err = c.servers.number(ctx, requests, "hset", requests, overField(name), store)
	return err
}

// Unregister implements [transport.Registrations]. The subscriber's own hash goes last: until then it can be done again.
func (t *Transport) Unregister(ctx context.Context, name string) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	own, err := c.name(event.NameSubscriber, name)
	if err != nil {
		return err
	}
	fault := func(err error) error { return fmt.Errorf("unregister %s: %w", name, err) }
	ask := &call{keys: []string{own}, args: []any{"hgetall", own}}
	if _, err := c.servers.run(ctx, onWork, ask); err != nil {
		return fault(err)
	}
	fields, ok := pairs(ask.reply)
	if !ok {
		return fault(errOddHash)
	}
	var calls []*call
	for field := range fields {
		if category, is := strings.CutPrefix(field, categoryPrefix); is {
			handlers, err := c.name(event.NameHandlers, category)
			if err == nil {
				err = c.farewell(ctx, category, name, fields[fieldKeeper])
			}
			if err != nil {
				return fault(err)
			}
			calls = append(calls, &call{keys: []string{handlers}, args: []any{"hdel", handlers, name}})
		}
	}
	for _, kind := range []event.NameKind{event.NameBusy, event.NameHalted} {
		set := mustName(c.names, event.Name{Kind: kind, Owner: name})
		calls = append(calls, &call{keys: []string{set}, args: []any{"unlink", set}})
	}
	c.servers.runAll(ctx, onWork, calls)
	for _, one := range calls {
		if one.err != nil {
			return fault(one.err)
		}
	}
	if _, err := c.servers.number(ctx, own, "unlink", own); err != nil {
		return fault(err)
	}
	return nil
}
