package keyhold_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/transport/local"
)

// PostgreSQL keeps no zero byte in a text, nor what is not UTF-8, and a long one in no index.
func TestWhatPostgreSQLCannotKeepIsRefusedInWordsOrMadeText(t *testing.T) {
	t.Parallel()
	n := newNotes()
	halted := make(chan string, 10)
	cfg := keyhold.Config{Name: "shop", Store: postgres.Open(postgresserver.Database(t)), Transport: local.New(), Logger: quiet}
	cfg.Observer.Halted = func(h keyhold.Halted) { halted <- h.Error }
	app := run(t, cfg, cart, n.handler())
	for _, id := range []string{"a\x00b", "a\xffb", strings.Repeat("i", 1<<20)} {
		for what, option := range map[string]keyhold.AskOption{"command id": keyhold.CommandID(id), "correlation id": keyhold.CorrelationID(id), "tenant": keyhold.Tenant(id)} {
			_, err := keyhold.Ask[*added](t.Context(), app, cart.ID("c-1"), &addItem{"ada", "tea"}, option)
			if wrong, is := errors.AsType[*event.IDError](err); !is || wrong.What != what || strings.Contains(err.Error(), "SQLSTATE") {
				t.Errorf("%s of %.10q: %.300v", what, id, err)
			}
		}
	}
	unfit := keyhold.Unit{Name: "register", Key: "a\x00b"}
	for what, look := range map[string]func() error{
		"Halt":  func() error { _, err := app.Halt(t.Context(), unfit); return err },
		"Halts": func() error { _, err := app.Halts(t.Context(), "register", unfit, 1); return err },
		"Unit":  func() error { _, err := app.Admin().Unit(t.Context(), unfit, admin.ShowOptions{}); return err },
		"Why": func() error {
			_, err := app.Admin().Why(t.Context(), admin.WhyQuery{Category: "cart", Key: unfit.Key})
			return err
		},
		"Retry": func() error {
			_, err := app.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: unfit.Name, Key: unfit.Key})
			return err
		},
		"Pause": func() error {
			_, err := app.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActPause, Handler: unfit.Name, Key: unfit.Key})
			return err
		},
		"Skip": func() error {
			_, err := app.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActSkip, Handler: unfit.Name, Key: unfit.Key, Reason: "r"})
			return err
		},
		"Parked": func() error { _, err := app.Admin().Parked(t.Context(), unfit, "", 0); return err },
		"Events": func() error {
			_, err := app.Admin().Events(t.Context(), admin.EventQuery{Category: "cart", Key: unfit.Key})
			return err
		},
		"an Event": func() error {
			_, err := app.Admin().Event(t.Context(), admin.Place{Category: "cart", Key: unfit.Key, Sequence: 1}, false)
			return err
		},
		"an entity": func() error {
			_, err := app.Admin().Events(t.Context(), admin.EventQuery{Entity: event.Stream{Kind: "cart", ID: unfit.Key}})
			return err
		},
		"Audit": func() error {
			_, err := app.Admin().Audit(t.Context(), admin.AuditQuery{Handler: unfit.Name, Key: unfit.Key})
			return err
		},
		"a job": func() error {
			_, err := app.Admin().PlanJob(t.Context(), admin.JobRequest{Kind: eventstore.JobPurge, Reason: "r", Filter: admin.Filter{Handler: unfit.Name, Key: unfit.Key}})
			return err
		},
		"DeadLetter": func() error {
			_, err := app.Admin().DeadLetter(t.Context(), unfit, admin.Place{Category: "cart", Key: unfit.Key, Sequence: 1}, false)
			return err
		},
		"DeadLetters": func() error {
			_, err := app.Admin().DeadLetters(t.Context(), admin.DeadQuery{Filter: admin.Filter{Handler: unfit.Name, Key: unfit.Key}})
			return err
		},
		"Adopt": func() error {
			_, err := app.Admin().Adopt(t.Context(), admin.AdoptRequest{Category: "cart", Key: unfit.Key, Reason: "r"})
			return err
		},
	} {
		if err := look(); !errors.Is(err, event.ErrBadID) || strings.Contains(err.Error(), "SQLSTATE") {
			t.Errorf("%s of a key that cannot be: %.300v", what, err)
		}
	}
	const odd = "\x00 \x1b[2J"
	n.refuse(odd, true)
	add(t, app, "c-1", "ada", odd)
	if s := within(t, 20*time.Second, "the halt", halted); !strings.Contains(s, "cannot take \uFFFD") {
		t.Errorf("halted by %q", s)
	}
	halts, err := app.Halts(t.Context(), "register", keyhold.Unit{}, 10)
	if err != nil || len(halts) != 1 || !utf8.ValidString(halts[0].Error) || strings.Contains(halts[0].Error, "\x00") {
		t.Errorf("halts are %v, %v", halts, err)
	}
	if len(n.of("ada")) != 0 {
		t.Errorf("%q was applied", n.of("ada"))
	}
}
