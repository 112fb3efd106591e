package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/redis"
)

// The shop produces what the books, another application, read. Both have a type of their own for the event.

type itemSold struct {
	Client string `json:"client"`
	Item   string `json:"item"`
}

var _ = keyhold.Type[itemSold]("sale.sold", 1)

var (
	sales  = keyhold.Category{Name: "sale", Key: "client", Events: []keyhold.EventType{keyhold.EventOf[itemSold]()}}
	theirs = keyhold.Category{Name: "sale", Key: "client", Foreign: true, Events: []keyhold.EventType{keyhold.EventOf[itemSold]()}}
)

// books note what they were told, by client.
type books struct {
	mu   sync.Mutex
	seen map[string][]string
	news chan struct{}
}

func newBooks() *books { return &books{seen: map[string][]string{}, news: make(chan struct{}, 10_000)} }

func (b *books) handler(from keyhold.Start) keyhold.Handler[*books] {
	return keyhold.Handler[*books]{
		Name: "books", Categories: []string{"sale"}, SequentialBy: "client", StartFrom: from, New: func(string) *books { return b },
		On: keyhold.Behavior[*books]{keyhold.On(func(b *books, _ keyhold.Context, e itemSold) error {
			b.mu.Lock()
			b.seen[e.Client] = append(b.seen[e.Client], e.Item)
			b.mu.Unlock()
			b.news <- struct{}{}
			return nil
		})},
	}
}

// has waits until the books have seen that many.
func (b *books) has(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range n {
		select {
		case <-b.news:
		case <-ctx.Done():
			t.Fatalf("not all was applied: %v", b.of())
		}
	}
}

func (b *books) of() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string][]string{}
	for client, items := range b.seen {
		all[client] = append([]string(nil), items...)
	}
	return all
}

func (b *books) are(t *testing.T, want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, b.of()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

// sell has items sold to a client, numbered from first to last.
func sell(t *testing.T, app *keyhold.App, client string, first, last int) {
	t.Helper()
	for n := first; n <= last; n++ {
		if err := keyhold.Publish(t.Context(), app, itemSold{client, fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
}

func numbers(first, last int) (all []string) {
	for n := first; n <= last; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

// abroad is a server with the files of two applications.
type abroad struct {
	server *redisserver.Server
	dir    string
}

func newAbroad(t *testing.T) abroad {
	return abroad{redisserver.Run(t, redisserver.Options{}), t.TempDir()}
}

func (a abroad) config(store eventstore.Store, node string) keyhold.Config {
	cfg := onRedis(store, a.server.URL(), node)
	cfg.HealAfter = 2 * time.Second
	return cfg
}

func (a abroad) file(name string) eventstore.Store { return sqlite.Open(filepath.Join(a.dir, name)) }

func TestEventsOfAnotherApplicationAreApplied(t *testing.T) {
	t.Parallel()
	for _, producer := range []string{"sqlite", "postgres"} {
		t.Run(producer, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t)
			store := a.file("shop.db")
			if producer == "postgres" {
				store = postgres.Open(postgresserver.Database(t))
			}
			shop := run(t, a.config(store, "shop"), sales)
			sell(t, shop, "ada", 1, 3)
			b := newBooks()
			reader := run(t, a.config(a.file("books.db"), "books"), theirs, b.handler(keyhold.Oldest))
			sell(t, shop, "ada", 4, 6)
			sell(t, shop, "bob", 1, 2)
			b.has(t, 8)
			b.are(t, map[string][]string{"ada": numbers(1, 6), "bob": numbers(1, 2)})

			if err := keyhold.Publish(t.Context(), reader, itemSold{"ada", "7"}); err == nil || !strings.Contains(err.Error(), "Foreign") {
				t.Errorf("published into the category of another application: %v", err)
			}
			if err := a.server.FlushAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			sell(t, shop, "ada", 7, 9)
			b.has(t, 3)
			b.are(t, map[string][]string{"ada": numbers(1, 9), "bob": numbers(1, 2)})
		})
	}
}

// The consumer is down while much happens: its events are kept, the broker's memory is lost meanwhile, and the producer is down when it comes back.
func TestWhatHappensWhileAReaderIsDownIsKeptForIt(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := keyhold.New(a.config(a.file("shop.db"), "shop"))
	shop.Register(sales)
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBooks()
	reader := keyhold.New(a.config(a.file("books.db"), "books"))
	reader.Register(theirs, b.handler(keyhold.Oldest))
	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 1, 2)
	b.has(t, 2)
	stop(t, reader)
	sell(t, shop, "ada", 3, 5)
	if err := a.server.FlushAll(t.Context()); err != nil { // who subscribes is forgotten, too
		t.Fatal(err)
	}
	sell(t, shop, "ada", 6, 6)
	sell(t, shop, "bob", 1, 1)
	a.until(t, func() bool { return a.length(t, "sale:ada") > 0 && a.length(t, "sale:bob") > 0 })
	stop(t, shop)

	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, reader) })
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, shop) })
	b.has(t, 5)
	b.are(t, map[string][]string{"ada": numbers(1, 6), "bob": numbers(1, 1)})
}

func (a abroad) length(t *testing.T, stream string) int64 {
	t.Helper()
	n, err := a.server.Do(t.Context(), "XLEN", stream)
	if err != nil {
		t.Fatal(err)
	}
	return n.(int64)
}

// until waits for what only servers tell: between two looks it waits for Redis, which has nothing to say.
func (a abroad) until(t *testing.T, is func() bool) {
	t.Helper()
	for over := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(over) {
			t.Fatal("it did not come about")
		}
		if _, err := a.server.Do(t.Context(), "BLPOP", "nobody:pushes:here", "0.05"); err != nil && !strings.Contains(err.Error(), "nil") {
			t.Fatal(err)
		}
	}
}

func TestANewReaderBeginsWhereItSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		from func(between time.Time) keyhold.Start
		want map[string][]string
	}{
		{"Oldest", func(time.Time) keyhold.Start { return keyhold.Oldest }, map[string][]string{"ada": numbers(1, 7), "bob": numbers(1, 3), "new": numbers(1, 2)}},
		{"Now", func(time.Time) keyhold.Start { return keyhold.Now }, map[string][]string{"ada": numbers(6, 7), "bob": numbers(3, 3), "new": numbers(1, 2)}},
		{"Since", keyhold.Since, map[string][]string{"ada": numbers(4, 7), "bob": numbers(3, 3), "new": numbers(1, 2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t)
			cfg := a.config(a.file("shop.db"), "shop")
			shop := run(t, cfg, sales, newBooks().named("shelf"))
			sell(t, shop, "ada", 1, 3)
			sell(t, shop, "bob", 1, 2)
			between := time.Now().Add(2 * time.Millisecond)
			a.until(t, func() bool { return time.Now().After(between.Add(2 * time.Millisecond)) })
			sell(t, shop, "ada", 4, 5)
			a.until(t, func() bool {
				return a.length(t, "sale:ada") > 0 && a.newest(t, "sale:ada") == "5" && a.newest(t, "sale:bob") == "2"
			})
			b := newBooks()
			run(t, a.config(a.file("books.db"), "books"), theirs, b.handler(c.from(between)))
			sell(t, shop, "ada", 6, 7)
			sell(t, shop, "bob", 3, 3)
			sell(t, shop, "new", 1, 2)
			n := 0
			for _, items := range c.want {
				n += len(items)
			}
			b.has(t, n)
			b.are(t, c.want)
		})
	}
}

// named is the same under another name, for an application of its own.
func (b *books) named(name string) keyhold.Handler[*books] {
	h := b.handler(keyhold.Oldest)
	h.Name = name
	return h
}

func (a abroad) newest(t *testing.T, stream string) string {
	t.Helper()
	text, err := a.server.Do(t.Context(), "GET", stream+":__newest__")
	if err != nil {
		return ""
	}
	seq, _, _ := strings.Cut(fmt.Sprint(text), " ")
	return seq
}

// A lane that had left the broker begins anew, for one who begins Now, with what is published after it has registered.
func TestALaneThatWasRetiredBeginsForANewReaderWithWhatComes(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	quick := func(cfg keyhold.Config) keyhold.Config {
		cfg.Transport = redis.New(redis.Config{URL: a.server.URL(), TTL: 2 * time.Second, RetireAfter: 5 * time.Second})
		return cfg
	}
	shelf := newBooks()
	shop := run(t, quick(a.config(a.file("shop.db"), "shop")), sales, shelf.named("shelf"))
	sell(t, shop, "ada", 1, 3)
	sell(t, shop, "bob", 1, 1) // is offered to the new reader once more, from its first
	shelf.has(t, 4)
	a.until(t, func() bool { return a.length(t, "sale:ada")+a.length(t, "sale:bob") == 0 })
	b := newBooks()
	run(t, quick(a.config(a.file("books.db"), "books")), theirs, b.handler(keyhold.Now))
	a.until(t, func() bool { return a.length(t, "sale:bob") > 0 })
	sell(t, shop, "ada", 4, 5)
	sell(t, shop, "bob", 2, 2)
	b.has(t, 3)
	b.are(t, map[string][]string{"ada": numbers(4, 5), "bob": numbers(2, 2)})
}

func TestAReaderHaltsWhereItsEventsAreNowhereAnyMore(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := keyhold.New(a.config(a.file("shop.db"), "shop"))
	shop.Register(sales)
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBooks()
	reader := keyhold.New(a.config(a.file("books.db"), "books"))
	reader.Register(theirs, b.handler(keyhold.Oldest))
	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 1, 2)
	b.has(t, 2)
	stop(t, reader)
	sell(t, shop, "ada", 3, 4)
	a.until(t, func() bool { return a.newest(t, "sale:ada") == "4" })
	stop(t, shop)
	if err := a.server.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.purge(t, "shop.db")
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, shop) })
	sell(t, shop, "ada", 5, 5)
	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, reader) })
	var halts []keyhold.Halted
	a.until(t, func() bool {
		var err error
		if halts, err = reader.Halts(t.Context(), "books", keyhold.Unit{}, 10); err != nil {
			t.Fatal(err)
		}
		return len(halts) > 0
	})
	if halts[0].Reason != "missing" || halts[0].Sequence != 3 {
		t.Errorf("halted %+v", halts[0])
	}
	b.are(t, map[string][]string{"ada": numbers(1, 2)})
}

// purge has a store that is stopped lose what Retention lets it keep.
func (a abroad) purge(t *testing.T, file string) {
	t.Helper()
	store := a.file(file)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Relayed: true}); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Purge(t.Context(), time.Now().Add(time.Hour), 1000); err != nil || n == 0 {
		t.Errorf("purged %d, %v", n, err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDeclarationsOfTwoApplicationsMustAgree(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	run(t, a.config(a.file("shop.db"), "shop"), sales, newBooks().named("shelf"))
	b := newBooks()
	h := b.handler(keyhold.Oldest)
	otherKey, unset := theirs, h
	otherKey.Key = "item"
	byItem := h
	byItem.SequentialBy = "item"
	unset.StartFrom = ""
	onLocal := a.config(a.file("books.db"), "books")
	onLocal.Transport = local.New()
	for name, c := range map[string]struct {
		cfg  keyhold.Config
		with []keyhold.Declaration
		want []string
	}{
		"the key":              {a.config(a.file("1.db"), "books"), []keyhold.Declaration{otherKey, byItem}, []string{"category sale", "the key item", "the key client"}},
		"two producers":        {a.config(a.file("2.db"), "books"), []keyhold.Declaration{sales, h}, []string{"category sale", "one database"}},
		"no start":             {a.config(a.file("3.db"), "books"), []keyhold.Declaration{theirs, unset}, []string{"StartFrom", "another application's"}},
		"a name":               {a.config(a.file("4.db"), "books"), []keyhold.Declaration{theirs, b.named("shelf")}, []string{"handler shelf", "store"}},
		"a transport of one":   {onLocal, []keyhold.Declaration{theirs, h}, []string{"Foreign", "redis.Open"}},
		"an entity's":          {a.config(a.file("5.db"), "books"), []keyhold.Declaration{cart, keyhold.Category{Name: "cart", Foreign: true, Events: losses.Events}}, []string{"Foreign", `entity "cart"`}},
		"nothing read":         {a.config(a.file("6.db"), "books"), []keyhold.Declaration{keyhold.Category{Name: "sale", Key: "client", Foreign: true}}, []string{"Foreign without Events"}},
		"a projection over it": {a.config(a.file("7.db"), "books"), []keyhold.Declaration{theirs, saleBoard}, []string{"projection", "Foreign"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := keyhold.New(c.cfg)
			app.Register(c.with...)
			err := app.Start(t.Context())
			if err == nil {
				stop(t, app)
				t.Fatal("it has started")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// TestDeclarationsMustAgreeAfterALossAsWell: what a broker forgot while the producer was down, another store may claim. The producer is told when it comes back, and
// sends nothing into the other's streams.
func TestDeclarationsMustAgreeAfterALossAsWell(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := keyhold.New(a.config(a.file("shop.db"), "shop"))
	shop.Register(sales)
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 1, 2)
	stop(t, shop)
	if err := a.server.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, a.config(a.file("market.db"), "market"), sales)
	again := keyhold.New(a.config(a.file("shop.db"), "shop"))
	again.Register(sales)
	err := again.Start(t.Context())
	if err == nil {
		stop(t, again)
		t.Fatal("two stores produce one category")
	}
	for _, part := range []string{"category sale", "one database"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if n, err := a.server.Del(t.Context(), "sale:ada"); n != 0 || err != nil {
		t.Errorf("%d streams had what the refused one has: %v", n, err)
	}
}

// saleBoard reads what is not there to be read.
var saleBoard = keyhold.Projection[struct{}]{
	Name: "board", Categories: []string{"sale"}, New: func() struct{} { return struct{}{} },
	On: keyhold.ProjectionCases[struct{}]{keyhold.Project(func(struct{}, keyhold.ProjectionContext, itemSold) error { return nil })},
}

func TestWhatAStoreProducesIsNotForeignToIt(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]int{"without events": 0, "with events": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t)
			shop := keyhold.New(a.config(a.file("shop.db"), "shop"))
			shop.Register(sales)
			if err := shop.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			sell(t, shop, "ada", 1, events)
			stop(t, shop)
			again := keyhold.New(a.config(a.file("shop.db"), "shop"))
			again.Register(theirs, newBooks().handler(keyhold.Oldest))
			err := again.Start(t.Context())
			if err == nil {
				stop(t, again)
				t.Fatal("it reads its own events as another's")
			}
			if !strings.Contains(err.Error(), "producer, which is its own") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAHandlerThatIsRemovedIsOffTheBroker(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := run(t, a.config(a.file("shop.db"), "shop"), sales)
	b := newBooks()
	cfg := a.config(a.file("books.db"), "books")
	reader := keyhold.New(cfg)
	reader.Register(theirs, b.handler(keyhold.Oldest))
	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 1, 3)
	b.has(t, 3)
	stop(t, reader)
	sell(t, shop, "ada", 4, 6)

	rest := run(t, a.config(a.file("books.db"), "books"), theirs, newBooks().named("diary")) // the next release has another handler
	names := func() string {
		all, err := a.server.Do(t.Context(), "HKEYS", "sale:__handlers__")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(all)
	}
	if got := names(); !strings.Contains(got, "books") || !strings.Contains(got, "diary") {
		t.Fatalf("registered: %s", got)
	}
	if _, err := rest.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRemove, Handler: "books", Reason: "the diary has it all"}); err != nil {
		t.Fatal(err)
	}
	a.until(t, func() bool { return names() == "[diary]" })
	a.until(t, func() bool { // its producer keeps nothing for it
		_, err := shop.Admin().Handler(t.Context(), "books")
		_, gone := errors.AsType[*admin.NotFoundError](err)
		return gone
	})
}

// With no node running nobody could take it off: the next start does.
func TestAHandlerThatWasRemovedMeanwhileIsOffTheBrokerAtTheNextStart(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := keyhold.New(a.config(a.file("shop.db"), "shop"))
	b := newBooks()
	shop.Register(sales, b.named("shelf"))
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 1, 1)
	b.has(t, 1)
	stop(t, shop)
	ops, err := sqlite.Attach(t.Context(), filepath.Join(a.dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.New(ops, admin.Options{Actor: "ann"}).Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRemove, Handler: "shelf", Reason: "gone"}); err != nil {
		t.Fatal(err)
	}
	if err := ops.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, a.config(a.file("shop.db"), "shop"), sales)
	n, err := a.server.Do(t.Context(), "EXISTS", "sale:__handlers__", "shelf:__subscriber__")
	if err != nil || n != int64(0) {
		t.Errorf("%v of what names it are there, %v", n, err)
	}
}
