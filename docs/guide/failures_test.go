package guide_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/local"
)

// The samples of failures.md: a shop that ships orders of clients, and a carrier that does not know an address.

type ParcelOrdered struct {
	ClientID string `json:"client_id"`
	Parcel   int    `json:"parcel"`
}

var _ = keyhold.Type[ParcelOrdered]("parcel.ordered", 1)

// carrier is a service of others that may be down, or say no.
type carrier interface {
	Label(ctx context.Context, client string, parcel int) (string, error)
}

var (
	errUnknownAddress = errors.New("the carrier does not know the address")
	errCarrierBusy    = errors.New("the carrier is busy")
)

type parcels struct{ carrier carrier }

func (p *parcels) ordered(ctx keyhold.Context, e ParcelOrdered) error {
	label, err := p.carrier.Label(ctx, e.ClientID, e.Parcel)
	switch {
	case errors.Is(err, errCarrierBusy):
		return keyhold.Retry(err) // another attempt may do better, whatever RetryPolicy.If says
	case errors.Is(err, errUnknownAddress):
		return keyhold.Poison(err) // none will: do not wait for five of them
	case err != nil:
		return err // the RetryPolicy decides
	}
	_, err = ctx.Tx().ExecContext(ctx, `INSERT INTO labels (client, parcel, label) VALUES ($1, $2, $3)`, e.ClientID, e.Parcel, label)
	return err
}

func parcelHandler(c carrier) keyhold.Handler[*parcels] {
	return keyhold.Handler[*parcels]{
		Name:         "parcels",
		Categories:   []string{"parcel"},
		SequentialBy: "client_id",
		New:          func(string) *parcels { return &parcels{c} },
		On:           keyhold.Behavior[*parcels]{keyhold.On((*parcels).ordered)},
		Retry:        keyhold.RetryPolicy{Attempts: 3, Min: 10 * time.Millisecond, Max: time.Second},
	}
}

// mailingHandler parks: what one client must be told in order does not hold up what is read of other categories.
func mailingHandler(c carrier) keyhold.Handler[*parcels] {
	return keyhold.Handler[*parcels]{
		Name:         "mailing",
		Categories:   []string{"parcel"},
		SequentialBy: "client_id",
		OnPoison:     keyhold.ParkSequence,
		MaxParked:    500, // then the key halts
		New:          func(string) *parcels { return &parcels{c} },
		On:           keyhold.Behavior[*parcels]{keyhold.On((*parcels).ordered)},
	}
}

// auditingHandler goes on without what it cannot apply: its order does not matter.
func auditingHandler(c carrier) keyhold.Handler[*parcels] {
	return keyhold.Handler[*parcels]{
		Name:       "auditing",
		Categories: []string{"parcel"},
		OnPoison:   keyhold.Release, // the default without SequentialBy
		New:        func(string) *parcels { return &parcels{c} },
		On:         keyhold.Behavior[*parcels]{keyhold.On((*parcels).ordered)},
	}
}

// addresses is a carrier that knows some clients.
type addresses struct {
	mu    sync.Mutex
	known map[string]bool
}

func (a *addresses) learn(client string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[client] = true
}

func (a *addresses) Label(_ context.Context, client string, parcel int) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known[client] {
		return "", fmt.Errorf("%w of %s", errUnknownAddress, client)
	}
	return fmt.Sprintf("%s/%d", client, parcel), nil
}

func parcelStore(path string) *sqlite.Store {
	return sqlite.New(sqlite.Config{Path: path, Setup: func(ctx context.Context, db eventstore.SQL) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS labels (client TEXT, parcel INTEGER, label TEXT)`)
		return err
	}})
}

// TestPolicies has one event go wrong under each policy.
func TestPolicies(t *testing.T) {
	t.Parallel()
	known := &addresses{known: map[string]bool{"client-4": true}}
	app := keyhold.New(keyhold.Config{
		Name: "shop", Store: parcelStore(filepath.Join(t.TempDir(), "shop.db")), Transport: inline.New(), Logger: slog.New(slog.DiscardHandler),
	})
	app.Register(keyhold.Category{Name: "parcel", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[ParcelOrdered]()}},
		parcelHandler(known), mailingHandler(known), auditingHandler(known))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Stop(context.Background()) }()
	for parcel, client := range []string{"client-17", "client-17", "client-4"} {
		if err := keyhold.Publish(t.Context(), app, ParcelOrdered{ClientID: client, Parcel: parcel + 1}); err != nil {
			t.Fatal(err)
		}
	}
	status, err := app.Admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range status.Handlers {
		got[h.Name] = fmt.Sprintf("behind %d, halted %d, parking %d, dead %d", h.Lag, h.Halted, h.Parking, h.Dead)
	}
	want := map[string]string{
		"parcels":  "behind 2, halted 1, parking 0, dead 0",
		"mailing":  "behind 0, halted 0, parking 1, dead 0",
		"auditing": "behind 0, halted 0, parking 0, dead 2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

var record = flag.Bool("record", false, "write the transcript of failures.md anew")

// TestTranscriptOfFailures does what failures.md shows, and compares what was shown: an operator finds a stuck client from the
// status, understands it, has it tried again, sees it move, and finds it in the audit.
func TestTranscriptOfFailures(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "shop.db")
	known := &addresses{known: map[string]bool{"client-4": true, "client-9": true}}
	app := keyhold.New(keyhold.Config{
		Name: "shop", Node: "shop@app-1", Store: parcelStore(db), Transport: local.New(), Logger: slog.New(slog.DiscardHandler),
	})
	app.Register(keyhold.Category{Name: "parcel", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[ParcelOrdered]()}}, parcelHandler(known))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Stop(context.Background()) }()
	for parcel, client := range []string{"client-4", "client-17", "client-9", "client-17", "client-4", "client-17"} {
		if err := keyhold.Publish(t.Context(), app, ParcelOrdered{ClientID: client, Parcel: parcel + 1}); err != nil {
			t.Fatal(err)
		}
	}
	c := &console{t: t, db: db}
	c.until("partitions ls --status behind", "No partition")
	c.until("partitions show parcels client-17", "halted")

	c.run("status")
	c.run("why parcel client-17")
	known.learn("client-17") // somebody tells the carrier
	c.run(`partitions retry parcels client-17 --expect 1 --actor ada --reason "the carrier has the address now"`)
	c.until("partitions show parcels client-17", "client-17: done")
	c.run("partitions show parcels client-17")
	c.run("status")
	c.run("audit parcels client-17")

	page := read(t, "failures.md")
	shown := regexp.MustCompile("(?s)```console\n(.*?)```").FindStringSubmatchIndex(page)
	if shown == nil {
		t.Fatal("failures.md shows no console")
	}
	if *record {
		page = page[:shown[2]] + c.said() + page[shown[3]:]
		if err := os.WriteFile("failures.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(squeezed(page[shown[2]:shown[3]]), squeezed(c.said())); d != "" {
		t.Errorf("the transcript has changed (-page +now); look whether it still reads well, then go test ./docs/guide -run Transcript -record:\n%s", d)
	}
}

// TestCommandsOnPagesExist holds that what a page tells to type is a command, with flags that it has.
func TestCommandsOnPagesExist(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile("(?m)(?:^\\$? ?keyhold |`keyhold |`(partitions |handlers |dlq |jobs ))(.*?)(?:`|  |$)")
	seen := 0
	for _, page := range pages(t) {
		for _, m := range said.FindAllStringSubmatch(read(t, page), -1) {
			line := strings.TrimSpace(m[1] + m[2])
			var args []string
			for _, quoted := range regexp.MustCompile(`"([^"]*)"|\S+`).FindAllString(strings.Split(line, ",")[0], -1) {
				args = append(args, strings.Trim(quoted, `"`))
			}
			k, rest, err := command.New(command.Options{}).Find(args)
			if err == nil {
				err = k.ParseFlags(rest)
			}
			if err != nil {
				t.Errorf("%s: keyhold %s: %v", page, line, err)
			}
			if !k.Runnable() || k.HasSubCommands() && len(rest) > 0 {
				t.Errorf("%s: keyhold %s is no command", page, line)
			}
			seen++
		}
	}
	if seen < 15 {
		t.Errorf("only %d commands were found", seen)
	}
}

// console is an operator's.
type console struct {
	t    *testing.T
	db   string
	text strings.Builder
}

func (c *console) execute(line string) (string, int) {
	c.t.Helper()
	var args []string
	for _, quoted := range regexp.MustCompile(`"([^"]*)"|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(quoted, `"`))
	}
	var out bytes.Buffer
	k := command.New(command.Options{})
	k.SetArgs(append([]string{"--db", c.db}, args...))
	k.SetOut(&out)
	k.SetErr(&out)
	code := command.Execute(c.t.Context(), k)
	return out.String(), code
}

// run shows a command and what it says.
func (c *console) run(line string) {
	c.t.Helper()
	out, code := c.execute(line)
	fmt.Fprintf(&c.text, "$ keyhold %s\n%s", line, out)
	if code != 0 {
		fmt.Fprintf(&c.text, "(exit code %d)\n", code)
	}
	c.text.WriteString("\n")
}

// until waits for what the application does.
func (c *console) until(line, says string) {
	c.t.Helper()
	for began := time.Now(); ; {
		out, _ := c.execute(line)
		if strings.Contains(out, says) {
			return
		}
		if time.Since(began) > time.Minute {
			c.t.Fatalf("%s does not say %q:\n%s", line, says, out)
		}
	}
}

// said is what was shown, with what differs each time made the same.
func (c *console) said() string {
	text := c.text.String()
	for _, same := range [][2]string{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "019f3b52-8a10-7cc4-9f27-5d0e6c1ab93e"},
		{`\b[0-9a-f]{32}\b`, "6f0c1f6ad7e64c0fb1a5f1a0c2f7d3b1"},
		{`process \d+`, "process 4711"},
		{`\b\d+ s\b`, "2 s"}, {`\b\d+s\b`, "2s"},
		{`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`, "2026-03-14 02:17:05"},
	} {
		text = regexp.MustCompile(same[0]).ReplaceAllString(text, same[1])
	}
	return strings.TrimRight(strings.ReplaceAll(text, " --db "+c.db, ""), "\n") + "\n" // as with $KEYHOLD_DB
}
