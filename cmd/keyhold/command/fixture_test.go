package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// hostile is a key that the rules allow and a terminal must not see as it is; rude is an error.
const (
	hostile = "client\u202e99"
	rude    = "\x1b[2J\x1b[31mall is well\x1b[0m\nhandler  key\t\u009b1m\xff"
)

// shop is a store of a shop at night: two clients of shipping are halted, one is tried again, billing has parked events, there are dead letters.
var shop = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "keyhold-command")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "shop.db")
	return path, makeShop(context.Background(), sqlite.Open(path))
})

func makeShop(ctx context.Context, store eventstore.Store) error {
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "shop@test"}); err != nil {
		return err
	}
	for _, step := range []func(context.Context, eventstore.Store) error{register, publish, apply, stop, setAside} {
		if err := step(ctx, store); err != nil {
			return err
		}
	}
	return store.Stop(ctx)
}

func register(ctx context.Context, s eventstore.Store) error {
	since := ago(30 * 24 * time.Hour)
	return s.SaveRegistry(ctx, eventstore.Registered{
		Categories: []eventstore.Category{{Name: "order", KeyField: "client_id"}, {Name: "payment", KeyField: "order_id"}, {Name: "price", Buckets: 64}},
		Handlers: []eventstore.Handler{
			{Name: "billing", Kind: eventstore.EventHandler, Categories: []string{"order", "payment"}, Types: []string{"order.placed", "payment.received"}, Sequential: true, Since: since},
			{Name: "clients", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.placed"}, Sequential: true, Since: since},
			{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.cancelled", "order.placed"}, Sequential: true, Since: since},
		},
		Types: []eventstore.Type{
			{Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "order", Fields: []eventstore.Field{{Name: "order_id", Kind: "string"}, {Name: "client_id", Kind: "string"}, {Name: "cents", Kind: "int64"}}},
			{Name: "order.cancelled", Version: 1, Encoding: event.JSON, Category: "order", Fields: []eventstore.Field{{Name: "order_id", Kind: "string"}}},
			{Name: "payment.received", Version: 1, Encoding: event.JSON, Category: "payment", Fields: []eventstore.Field{{Name: "order_id", Kind: "string"}}},
		},
	}, nil)
}

// clients have one to eight orders each; every third is cancelled.
func clients() []string {
	keys := []string{hostile}
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("client-%d", i+1))
	}
	return keys
}

func orders(client int) int { return 1 + client%8 }

func publish(ctx context.Context, s eventstore.Store) error {
	var all []event.Envelope
	for i, key := range clients() {
		for n := range orders(i) {
			id := fmt.Sprintf("o-%d-%d", i, n)
			e := event.Envelope{ID: "e-" + id, Type: "order.placed", Version: 1, Encoding: event.JSON, Category: "order", Key: key, CorrelationID: "c-" + id,
				Data: fmt.Appendf(nil, `{"order_id":%q,"client_id":%q,"cents":%d}`, id, key, 100*(n+1)), Time: ago(time.Duration(60-n) * time.Minute)}
			if n%3 == 2 {
				e.Type, e.Data = "order.cancelled", fmt.Appendf(nil, `{"order_id":%q}`, id)
			}
			all = append(all, e)
		}
	}
	_, err := s.Begin("test").Commit(ctx, eventstore.Changes{Publish: all})
	return err
}

// apply has every handler pass what nothing keeps it from.
func apply(ctx context.Context, s eventstore.Store) error {
	for _, name := range []string{"billing", "clients", "shipping"} {
		for i, key := range clients() {
			to := event.Sequence(orders(i))
			if at, stopped := stops[event.Unit{Name: name, Key: key}]; stopped {
				to = at - 1
			}
			if to == 0 {
				continue
			}
			_, err := s.Begin("test").Commit(ctx, eventstore.Changes{
				Fence: eventstore.Fence{Unit: event.Unit{Name: name, Key: key}}, Advance: []eventstore.Advance{{Lane: orderLane(key), To: to}}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stops are where units stopped, or are about to be tried again.
var stops = map[event.Unit]event.Sequence{
	{Name: "shipping", Key: "client-4"}: 2,
	{Name: "shipping", Key: "client-7"}: 3,
	{Name: "shipping", Key: hostile}:    1,
	{Name: "shipping", Key: "client-5"}: 4,
	{Name: "billing", Key: "client-6"}:  5,
	{Name: "clients", Key: "client-12"}: 2,
}

func stop(ctx context.Context, s eventstore.Store) error {
	halt := func(key, reason, message string, since time.Duration) eventstore.Changes {
		u := event.Unit{Name: "shipping", Key: key}
		return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{Unit: u, Lane: orderLane(key), Sequence: stops[u], EventID: "e", EventType: "order.placed", Attempts: 5,
			Reason: reason, Error: message, Since: ago(since), Generation: 1}}
	}
	trying := event.Unit{Name: "shipping", Key: "client-5"}
	parking := event.Unit{Name: "billing", Key: "client-6"}
	parked := func(seq event.Sequence, reason, message string) eventstore.Parked {
		return eventstore.Parked{Unit: parking, Lane: orderLane("client-6"), Sequence: seq, EventID: "e", Type: "order.placed", Attempts: 3, Reason: reason, Error: message, Time: ago(26 * time.Hour)}
	}
	for _, c := range []eventstore.Changes{
		halt("client-4", "retries exhausted", longError, 4*time.Minute+12*time.Second),
		halt("client-7", "poison", "shipping: no such country: XX", 3*time.Hour),
		halt(hostile, "retries exhausted", rude, 9*time.Hour),
		{Fence: eventstore.Fence{Unit: trying}, Tried: &eventstore.Tried{Unit: trying, Lane: orderLane("client-5"), Sequence: 4, EventID: "e", EventType: "order.placed", Attempts: 2,
			Error: "dial tcp: connection refused", Time: ago(12 * time.Second), Again: night.Add(4 * time.Second)}},
		{Fence: eventstore.Fence{Unit: parking}, Park: []eventstore.Parked{parked(5, "poison", "no such invoice"), parked(6, "", ""), parked(7, "", "")},
			Advance: []eventstore.Advance{{Lane: orderLane("client-6"), From: 4, To: 7}}},
	} {
		if _, err := s.Begin("test").Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func setAside(ctx context.Context, s eventstore.Store) error {
	for i, key := range clients() {
		if i%2 == 0 || key == "client-7" {
			continue
		}
		u := event.Unit{Name: "shipping", Key: key}
		d := eventstore.Dead{Unit: u, Lane: orderLane(key), Sequence: 1, EventID: fmt.Sprintf("e-o-%d-0", i), Type: "order.placed", Attempts: 1 + i%5, Reason: []string{"poison", "retries exhausted"}[i%4/2], Error: longError,
			Time: ago(time.Duration(i*i*i) * time.Minute)}
		if _, err := s.Begin("test").Commit(ctx, eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Dead: []eventstore.Dead{d}}); err != nil {
			return err
		}
	}
	return nil
}

func orderLane(key string) event.LaneRef { return event.LaneRef{Category: "order", Key: key} }

// desktop is an operator's place: a store of its own, and streams that are looked at.
type desktop struct {
	db       string
	env      environment
	vars     map[string]string
	in       io.Reader
	terminal map[any]terminal
	options  Options
}

// setup gives an operator a copy of the shop's store.
func setup(t *testing.T) *desktop {
	t.Helper()
	from, err := shop()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	d := setupEmpty(t)
	if err := os.WriteFile(d.db, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// setupEmpty gives an operator the path of a store that is not there.
func setupEmpty(t *testing.T) *desktop {
	t.Helper()
	d := &desktop{db: filepath.Join(t.TempDir(), "shop.db"), vars: map[string]string{}, in: strings.NewReader(""), terminal: map[any]terminal{}}
	d.vars["KEYHOLD_DB"] = d.db
	d.env = environment{
		now:      func() time.Time { return night },
		getenv:   func(name string) string { return d.vars[name] },
		login:    func() string { return "ada" },
		patience: time.Minute,
		terminal: func(stream any) terminal { return d.terminal[stream] },
		tick:     func(time.Duration) (<-chan time.Time, func()) { return make(chan time.Time), func() {} },
	}
	return d
}

type result struct {
	out, err string
	code     int
}

// run runs one command as a program does.
func (d *desktop) run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	return d.runTo(t, &out, &errs, args...)
}

func (d *desktop) runTo(t *testing.T, out, errs *bytes.Buffer, args ...string) result {
	t.Helper()
	c := d.command(args...)
	c.SetOut(out)
	c.SetErr(errs)
	code := Execute(t.Context(), c)
	return result{d.scrub(out.String()), d.scrub(errs.String()), code}
}

func (d *desktop) command(args ...string) *cobra.Command {
	c := newCommand(d.options, d.env)
	c.SetArgs(args)
	c.SetIn(d.in)
	return c
}

var (
	storeID = regexp.MustCompile(`store [0-9a-f]{32}`)
	format  = regexp.MustCompile(`format [0-9]+`)
	future  = regexp.MustCompile(`in [0-9]+d[0-9]+h \(20[^)]*\)`)
)

// scrub takes out what is another at each run.
func (d *desktop) scrub(text string) string {
	text = strings.ReplaceAll(text, d.db, "shop.db")
	text = storeID.ReplaceAllString(text, "store 0123456789abcdef")
	text = format.ReplaceAllString(text, "format N")
	return future.ReplaceAllString(text, "just now")
}
