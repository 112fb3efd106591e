package keyhold_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

// crm is a program without Keyhold that produces a category as docs/wire.md says, with plain commands.
type crm struct {
	abroad
	script string
}

func newCRM(t *testing.T) *crm {
	t.Helper()
	script, err := os.ReadFile("transport/redis/scripts/append.lua")
	if err != nil {
		t.Fatal(err)
	}
	c := &crm{newAbroad(t), string(script)}
	c.do(t, "HSET", "sale:__category__", "key", "client", "buckets", "0", "store", "crm")
	return c
}

func (c *crm) do(t *testing.T, command string, args ...any) any {
	t.Helper()
	answer, err := c.server.Do(t.Context(), command, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", command, args[0], err)
	}
	return answer
}

// entry is that of a sale.
func entry(client string, n int) []any {
	return []any{"id", fmt.Sprint(client, "-", n), "store", "crm", "type", "sale.sold", "ver", "1", "enc", "json", "data", fmt.Sprintf(`{"client":%q,"item":"%d"}`, client, n)}
}

// append appends the n-th sale to a client, with more fields if there are, and gives the outcome.
func (c *crm) append(t *testing.T, client string, n int, begins bool, more ...any) string {
	t.Helper()
	fields := append(entry(client, n), more...)
	start := 0
	if begins {
		start = 1
	}
	readers := c.do(t, "HKEYS", "sale:__handlers__").([]any)
	stream := "sale:" + client
	keys := []any{stream, stream + ":__newest__", "sale:__partitions__"}
	args := append([]any{10000, 1, 1, 3, client, start, n, 1, len(fields)}, fields...)
	args = append(args, len(readers))
	for i, name := range readers {
		keys = append(keys, fmt.Sprint(name, ":__busy__"))
		args = append(args, 4+i, fmt.Sprint(name, ":__wake__"), 1, client)
	}
	answer := c.do(t, "EVAL", append(append([]any{c.script, len(keys)}, keys...), args...)...)
	return fmt.Sprint(answer.([]any)[0])
}

func TestEventsOfAProgramWithoutKeyholdAreAppliedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c := newCRM(t)
	b := newBooks()
	run(t, c.config(c.file("books.db"), "books"), theirs, b.handler(keyhold.Oldest))
	var outcomes []string
	for _, n := range []int{1, 2, 3, 3, 2, 5} {
		outcomes = append(outcomes, c.append(t, "ada", n, n == 1))
	}
	outcomes = append(outcomes, c.append(t, "bob", 1, true))
	if diff := cmp.Diff([]string{"ok", "ok", "ok", "ok", "dup", "gap", "ok"}, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	b.has(t, 4)

	c.do(t, "DEL", "sale:ada", "sale:ada:__newest__") // its numbers go on, and nothing new is taken for applied
	if got := c.append(t, "ada", 4, true); got != "ok" {
		t.Errorf("append after a loss: %s", got)
	}
	b.has(t, 1)
	b.are(t, map[string][]string{"ada": numbers(1, 4), "bob": numbers(1, 1)})
}

// The stream has lost what the reader misses: it asks, and the program answers with what it has kept.
func TestAProgramWithoutKeyholdAnswersWhatAReaderMisses(t *testing.T) {
	t.Parallel()
	c := newCRM(t)
	b := newBooks()
	run(t, c.config(c.file("books.db"), "books"), theirs, b.handler(keyhold.Oldest))
	if got := c.append(t, "ada", 7, true); got != "ok" {
		t.Fatal(got)
	}
	asked := func() []any { return c.do(t, "HGETALL", "sale:__missing__").([]any) }
	c.until(t, func() bool { return len(asked()) == 2 })
	if diff := cmp.Diff([]any{"books:primary:ada", "0 from 0"}, asked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	run := "books:ada:__missing__"
	c.do(t, "XADD", run, "0-1", "category", "sale", "lane", "primary", "after", "4", "begin", "1") // the first that is kept is 5
	for _, n := range []int{5, 6} {
		c.do(t, "XADD", append([]any{run, fmt.Sprint(n, "-0")}, entry("ada", n)...)...)
	}
	c.do(t, "HDEL", "sale:__missing__", "books:primary:ada")
	c.do(t, "SADD", "books:__busy__", "ada")
	c.do(t, "PUBLISH", "books:__wake__", "ada")
	b.has(t, 3)
	b.are(t, map[string][]string{"ada": numbers(5, 7)})
}

func TestAProgramWithoutKeyholdIsTheProducer(t *testing.T) {
	t.Parallel()
	c := newCRM(t)
	app := keyhold.New(c.config(c.file("shop.db"), "shop"))
	app.Register(sales)
	err := app.Start(t.Context())
	if err == nil {
		stop(t, app)
	}
	if err == nil || !strings.Contains(err.Error(), "store crm") {
		t.Errorf("got %v", err)
	}
}

type saleBooked struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

var _ = keyhold.Type[saleBooked]("booked.sale", 1)

// What somebody else writes as the tenant of an event may be none. Whoever only reads the event applies it; where something would follow from it, it is poison at once, since for whom that is
// must not be lost.
func TestATenantOfAnotherProgramThatIsNoneIsNotPassedOn(t *testing.T) {
	t.Parallel()
	c := newCRM(t)
	b := newBooks()
	halted, asked := make(chan keyhold.Halted, 10), make(chan keyhold.Halted, 10)
	cfg := c.config(postgres.Open(postgresserver.Database(t)), "books")
	cfg.Observer.Halted = func(h keyhold.Halted) {
		if h.Unit.Name == "asks" {
			asked <- h
			return
		}
		halted <- h
	}
	booked := keyhold.Category{Name: "booked", Key: "client", Events: []keyhold.EventType{keyhold.EventOf[saleBooked]()}}
	of := func(name string, policy keyhold.Policy, on func(keyhold.Context, itemSold) error) keyhold.Handler[struct{}] {
		return keyhold.Handler[struct{}]{
			Name: name, Categories: []string{"sale"}, SequentialBy: "client", StartFrom: keyhold.Oldest, OnPoison: policy,
			New: func(string) struct{} { return struct{}{} },
			On:  keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, ctx keyhold.Context, e itemSold) error { return on(ctx, e) })},
		}
	}
	emits := func(ctx keyhold.Context, e itemSold) error {
		ctx.Emit(saleBooked(e))
		return nil
	}
	app := keyhold.New(cfg)
	app.Register(theirs, booked, cart, b.handler(keyhold.Oldest), of("emits", keyhold.Halt, emits), of("releases", keyhold.Release, emits), of("parks", keyhold.ParkSequence, emits),
		of("asks", keyhold.Halt, func(ctx keyhold.Context, e itemSold) error {
			_, err := app.Ask(ctx, cart.ID(e.Client), &addItem{e.Client, e.Item})
			return err
		}))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, app) })
	for n, tenant := range []string{"acme", "ac\x00me", "ac\x1bme", "acme"} {
		if got := c.append(t, "ada", n+1, n == 0, "tenant", tenant); got != "ok" {
			t.Fatal(got)
		}
	}
	b.has(t, 4)
	b.are(t, map[string][]string{"ada": numbers(1, 4)})
	for name, halts := range map[string]chan keyhold.Halted{"emits": halted, "asks": asked} {
		for n := range 2 {
			h := within(t, time.Minute, "the halt of "+name, halts)
			if h.Sequence != event.Sequence(n+2) || h.Attempts != 1 || !strings.Contains(h.Error, `tenant "ac\x`) || !strings.Contains(h.Error, "have its producer write another") {
				t.Errorf("%s is halted at %d after %d attempts: %s", name, h.Sequence, h.Attempts, h.Error)
			}
			if _, err := app.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActSkip, Handler: name, Key: "ada", Reason: "no tenant"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	soon(t, "what was set aside is", func() bool {
		dead, err := app.Admin().DeadLetters(t.Context(), admin.DeadQuery{Filter: admin.Filter{Handler: "releases"}})
		if err != nil {
			t.Fatal(err)
		}
		parked, err := app.Admin().Parked(t.Context(), keyhold.Unit{Name: "parks", Key: "ada"}, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(dead.Items) == 2 && len(parked.Items) == 3
	})
}
