package keyhold_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport/local"
)

// till writes sales into streams and knows nothing of Keyhold: XADD is all that it does.
type till struct{ abroad }

// tills are the sales of such programs, as the books take them in.
var tills = keyhold.Category{Name: "sale", Key: "client", Polled: "crm.sale", Events: []keyhold.EventType{keyhold.EventOf[itemSold]()}}

func newTill(t *testing.T) *till { return &till{newAbroad(t)} }

func (c *till) do(t *testing.T, command string, args ...any) any {
	t.Helper()
	answer, err := c.server.Do(t.Context(), command, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", command, args, err)
	}
	return answer
}

// sells appends sales to a client, numbered from first to last, each with an id of its own.
func (c *till) sells(t *testing.T, client string, first, last int) {
	t.Helper()
	for n := first; n <= last; n++ {
		c.do(t, "XADD", "crm.sale:"+client, "*", "id", n, "type", "sale.sold", "data", fmt.Sprintf(`{"client":%q,"item":"%d"}`, client, n))
	}
}

func TestEventsOfAProgramThatOnlyAppendsAreAppliedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	b := newBooks()
	c.sells(t, "ada", 1, 200)
	app := run(t, c.config(c.file("books.db"), "books"), tills, b.handler(keyhold.Oldest))
	c.do(t, "SADD", "crm.sale:__partitions__", "bob") // who puts it there need not wait until it is found
	c.sells(t, "bob", 1, 2)
	c.sells(t, "ada", 200, 203) // the first once more
	b.has(t, 205)
	b.are(t, map[string][]string{"ada": numbers(1, 203), "bob": numbers(1, 2)})

	if err := keyhold.Publish(t.Context(), app, itemSold{"ada", "9"}); err == nil || !strings.Contains(err.Error(), "Polled") {
		t.Errorf("published among what other programs write: %v", err)
	}
	if err := c.server.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.sells(t, "ada", 202, 206) // its producer goes on, and is not sure of what it wrote last
	c.sells(t, "cy", 1, 1)
	b.has(t, 4)
	b.are(t, map[string][]string{"ada": numbers(1, 206), "bob": numbers(1, 2), "cy": numbers(1, 1)})
	if n := c.length(t, "crm.sale:ada"); n != 5 {
		t.Errorf("the stream of the program has %d entries, it wrote 5", n)
	}
}

// What is no event, or is of another key than its stream, halts its key where it stands, and a person has it passed over.
func TestAnEntryThatIsNoEventHaltsItsKey(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	b := newBooks()
	app := run(t, c.config(c.file("books.db"), "books"), tills, b.handler(keyhold.Oldest))
	c.sells(t, "ada", 1, 1)
	c.do(t, "XADD", "crm.sale:ada", "*", "item", "2") // no type, no data
	c.do(t, "XADD", "crm.sale:ada", "*", "type", "sale.sold", "data", `{"client":"bob","item":"3"}`)
	c.do(t, "XADD", "crm.sale:ada", "*", "type", "sale.sold", "data", `{"client"`)
	c.sells(t, "ada", 5, 5)
	c.sells(t, "bob", 1, 1)
	b.has(t, 2)
	for _, want := range []string{"it has no field type; it has no field data", `its field client is "bob", and the stream is that of "ada"`, "decode"} {
		var halts []keyhold.Halted
		c.until(t, func() bool {
			var err error
			if halts, err = app.Halts(t.Context(), "books", keyhold.Unit{}, 10); err != nil {
				t.Fatal(err)
			}
			return len(halts) > 0
		})
		if h := halts[0]; h.Unit.Key != "ada" || h.Reason != "undecodable" || !strings.Contains(h.Error, want) {
			t.Errorf("halted %+v, want %q", h, want)
		}
		b.are(t, map[string][]string{"ada": numbers(1, 1), "bob": numbers(1, 1)})
		skip := admin.ActRequest{Kind: eventstore.ActSkip, Handler: "books", Key: "ada", Actor: "ann", Reason: "no event"}
		if _, err := app.Admin().Act(t.Context(), skip); err != nil {
			t.Fatal(err)
		}
		c.until(t, func() bool {
			now, err := app.Halt(t.Context(), halts[0].Unit)
			if err != nil {
				t.Fatal(err)
			}
			return now == nil || now.Sequence != halts[0].Sequence
		})
	}
	b.has(t, 1)
	b.are(t, map[string][]string{"ada": {"1", "5"}, "bob": numbers(1, 1)})
}

// What was trimmed before it was taken in is counted where people look.
func TestWhatAProgramTrimmedTooEarlyIsTold(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	b := newBooks()
	app := keyhold.New(c.config(c.file("books.db"), "books"))
	app.Register(tills, b.handler(keyhold.Oldest))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.sells(t, "ada", 1, 2)
	b.has(t, 2)
	stop(t, app)
	c.sells(t, "ada", 3, 10)
	c.do(t, "XTRIM", "crm.sale:ada", "MAXLEN", 2)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, app) })
	b.has(t, 2)
	b.are(t, map[string][]string{"ada": {"1", "2", "9", "10"}})
	s, err := app.Admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Categories[0]; c.Name != "sale" || c.Lost != 6 || time.Since(c.LostAt) > time.Hour {
		t.Errorf("category %+v", c)
	}
}

func TestAHandlerOfWhatOtherProgramsWriteBeginsWhereItSays(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{"oldest": numbers(1, 6), "now": numbers(5, 6), "since": numbers(3, 6)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTill(t)
			c.sells(t, "ada", 1, 2)
			var entries []any
			c.until(t, func() bool { // its clock is that of the ids
				entries = c.do(t, "TIME").([]any)
				newest := c.do(t, "XREVRANGE", "crm.sale:ada", "+", "-", "COUNT", 1).([]any)[0].([]any)[0].(string)
				return fmt.Sprint(entries[0])+"999" > newest[:13] && newest[:10] < fmt.Sprint(entries[0])
			})
			var seconds int64
			if _, err := fmt.Sscan(fmt.Sprint(entries[0]), &seconds); err != nil {
				t.Fatal(err)
			}
			from := map[string]keyhold.Start{"oldest": keyhold.Oldest, "now": keyhold.Now, "since": keyhold.Since(time.Unix(seconds, 0))}[name]
			c.sells(t, "ada", 3, 4)
			b := newBooks()
			run(t, c.config(c.file("books.db"), "books"), tills, b.handler(from))
			c.sells(t, "ada", 5, 6)
			b.has(t, len(want))
			b.are(t, map[string][]string{"ada": want})
		})
	}
}

// Events that were taken in are this application's: another one reads them as those of any producer, and what Redis loses comes back.
func TestWhatWasTakenInIsReadByOtherApplicationsAndRebuilt(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	own, other := newBooks(), newBooks()
	run(t, c.config(c.file("books.db"), "books"), tills, own.handler(keyhold.Oldest))
	run(t, c.config(c.file("audit.db"), "audit"), theirs, other.named("audit"))
	c.sells(t, "ada", 1, 3)
	own.has(t, 3)
	other.has(t, 3)
	if err := c.server.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.until(t, func() bool { return c.newest(t, "sale:ada") == "3" }) // published again
	c.sells(t, "ada", 4, 4)
	other.has(t, 1)
	other.are(t, map[string][]string{"ada": numbers(1, 4)})
}

func TestPolledDeclarationsThatCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	run(t, a.config(a.file("shop.db"), "shop"), sales, newBooks().named("shelf"))
	run(t, a.config(a.file("tills.db"), "tills"), keyhold.Category{Name: "till", Key: "client", Polled: "kiosk", Events: tills.Events})
	b := newBooks()
	h := b.handler(keyhold.Oldest)
	h.Name, h.Categories = "books2", []string{"sold"}
	declare := func(change func(c *keyhold.Category)) []keyhold.Declaration {
		c := keyhold.Category{Name: "sold", Key: "client", Polled: "crm.sale", Events: tills.Events}
		change(&c)
		return []keyhold.Declaration{c, h}
	}
	onLocal := a.config(a.file("local.db"), "books")
	onLocal.Transport = local.New()
	keyless := h
	keyless.SequentialBy = ""
	for name, c := range map[string]struct {
		with []keyhold.Declaration
		want []string
	}{
		"of a category that a database produces": {declare(func(c *keyhold.Category) { c.Polled = "sale" }), []string{"category sale", "(Polled)", "the broker has it with store", "Foreign"}},
		"produced by a database":                 {[]keyhold.Declaration{keyhold.Category{Name: "kiosk", Key: "client", Events: tills.Events}}, []string{"category kiosk", "store", "(Polled)"}},
		"read as another application's":          {[]keyhold.Declaration{keyhold.Category{Name: "kiosk", Key: "client", Foreign: true, Events: tills.Events}}, []string{"category kiosk", "(Foreign)", "(Polled)"}},
		"with another key":                       {declare(func(c *keyhold.Category) { c.Key, c.Polled = "item", "kiosk" })[:1], []string{"category kiosk", "the key item", "the key client"}},
		"foreign as well":                        {declare(func(c *keyhold.Category) { c.Foreign = true }), []string{"Foreign and Polled"}},
		"of its own name":                        {declare(func(c *keyhold.Category) { c.Polled = "sold" }), []string{"the name of the category itself"}},
		"of another category here":               {append(declare(func(c *keyhold.Category) { c.Polled = losses.Name }), losses), []string{"which is a category of this application"}},
		"in buckets":                             {declare(func(c *keyhold.Category) { c.Key, c.Buckets = "", 4 }), []string{"Polled with Buckets"}},
		"without a key":                          {append(declare(func(c *keyhold.Category) { c.Key = "" })[:1], keyless), []string{"Polled without a Key"}},
		"without events":                         {declare(func(c *keyhold.Category) { c.Events = nil })[:1], []string{"Polled without Events"}},
		"with a name that is none":               {declare(func(c *keyhold.Category) { c.Polled = "crm:sale" }), []string{"Polled", "contains ':'"}},
		"twice": {append(declare(func(c *keyhold.Category) {}), keyhold.Category{Name: "sold2", Key: "client", Polled: "crm.sale", Events: losses.Events}),
			[]string{`Polled is "crm.sale", as is that of category "sold"`}},
		"an entity's":            {[]keyhold.Declaration{cart, keyhold.Category{Name: "cart", Polled: "crm.cart", Events: losses.Events}}, []string{"Polled", `entity "cart"`}},
		"a transport of its own": {declare(func(c *keyhold.Category) {}), []string{"Polled", "redis.Open"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := a.config(a.file(strings.ReplaceAll(name, " ", "-")+".db"), "books")
			if slices.Contains(c.want, "redis.Open") {
				cfg = onLocal
			}
			app := keyhold.New(cfg)
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

// A projection reads what was taken in, and what is no event does not stop it.
func TestAProjectionReadsWhatWasTakenIn(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	seen := make(chan string, 10)
	board := keyhold.Projection[struct{}]{
		Name: "board", Categories: []string{"sale"}, New: func() struct{} { return struct{}{} },
		On: keyhold.ProjectionCases[struct{}]{keyhold.Project(func(_ struct{}, _ keyhold.ProjectionContext, e itemSold) error {
			if e.Item == "" {
				return errors.New("no item")
			}
			seen <- e.Item
			return nil
		})},
	}
	run(t, c.config(c.file("books.db"), "books"), tills, board)
	c.sells(t, "ada", 1, 1)
	c.do(t, "XADD", "crm.sale:ada", "*", "item", "2")
	c.sells(t, "ada", 3, 3)
	got := []string{<-seen, <-seen}
	if diff := cmp.Diff([]string{"1", "3"}, got); diff != "" {
		t.Error(diff)
	}
}

// Quiet streams cost a look at many of them, and nothing each.
func TestQuietStreamsCostAFewCommandsAHeartbeat(t *testing.T) {
	t.Parallel()
	c := newTill(t)
	const streams, looks = 600, 3 // of 256
	for n := range streams {
		c.sells(t, fmt.Sprint("client-", n), 1, 1)
	}
	app := run(t, c.config(c.file("books.db"), "books"), tills)
	c.until(t, func() bool {
		s, err := app.Admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Categories) > 0 && s.Categories[0].Records == streams
	})
	c.do(t, "CONFIG", "RESETSTAT")
	calls := func(name string) (n int) {
		stats, err := c.server.Info(t.Context(), "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		if text := stats["cmdstat_"+name]; text != "" {
			if _, err := fmt.Sscanf(text, "calls=%d", &n); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	const rounds = 6
	c.until(t, func() bool { return calls("xread") >= rounds*looks })
	xread, scan, closely := calls("xread"), calls("scan"), calls("xinfo|stream")
	t.Logf("%d streams: %d XREAD, %d SCAN, %d streams looked at closely", streams, xread, scan, closely)
	if most := (scan + 1) * looks; xread > most {
		t.Errorf("%d XREAD in %d rounds, want %d in each", xread, scan, looks)
	}
	if most := (scan + 1) * 2; closely > most {
		t.Errorf("%d streams were looked at closely in %d rounds, want 2 in each", closely, scan)
	}
}
