package event_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keyhold/keyhold/event"
)

func TestIdentifiersThatCannotBeKeptAreRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "c-1", "order:7/{x}", "__a__", "Zoë", strings.Repeat("i", event.MaxID), strings.Repeat("k", event.MaxKey) + "/" + strings.Repeat("k", event.MaxKey) + "/1-0"} {
		if err := event.CheckID("command id", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for id, want := range map[string]string{
		"a\x00b":                           `command id "a\x00b" contains the control character U+0000`,
		"a\nb":                             "control character U+000A",
		"\x1b[31mred":                      "control character U+001B",
		"a\xffb":                           `command id "a\xffb" is not valid UTF-8: use text`,
		strings.Repeat("i", event.MaxID+1): "is 1025 bytes long, at most 1024 are allowed: use a shorter identifier, or a hash",
		strings.Repeat("i", 1<<20):         "is 1048576 bytes long",
	} {
		err := event.CheckID("command id", id)
		typed, is := errors.AsType[*event.IDError](err)
		if !is || !errors.Is(err, event.ErrBadID) || typed.ID != id || typed.What != "command id" {
			t.Errorf("%.20q: %v, want an *IDError", id, err)
			continue
		}
		if s := err.Error(); !strings.Contains(s, want) || len(s) > 300 {
			t.Errorf("%.20q: it says %.400s, want %s", id, s, want)
		}
	}
}

func TestATraceThatCannotBeKeptIsNone(t *testing.T) {
	t.Parallel()
	good := event.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=b"}
	for _, of := range []struct{ given, want event.Trace }{
		{good, good},
		{event.Trace{}, event.Trace{}},
		{event.Trace{Parent: "00-\x00", State: "a=b"}, event.Trace{}},
		{event.Trace{Parent: strings.Repeat("0", 1<<20)}, event.Trace{}},
		{event.Trace{Parent: good.Parent, State: "\xff"}, event.Trace{Parent: good.Parent}},
	} {
		if got := of.given.Fit(); got != of.want {
			t.Errorf("%.40q is %v, want %v", of.given, got, of.want)
		}
	}
}

func TestTextsForPeopleAreMadeFit(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		given string
		most  int
		want  string
	}{
		{"", 10, ""},
		{"no stock", 10, "no stock"},
		{"no\nstock", 10, "no\nstock"},
		{"no\x00stock", 20, "no\uFFFDstock"},
		{"no\xff\xfestock", 20, "no\uFFFDstock"},
		{"no stock at all", 10, "no sto ..."},
		{"ééééé", 8, "éé ..."},
		{"\x00\x00\x00\x00\x00\x00", 10, "\uFFFD\uFFFD ..."},
		{"\xff", 1, " ..."},
	} {
		if got := event.Text(of.given, of.most); got != of.want {
			t.Errorf("%q in %d bytes is %q, want %q", of.given, of.most, got, of.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("no\x00stock\xff", 7)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = 4 + max(most, -most)%100
		if got := event.Text(s, max(most, 4)); !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > max(most, 4) {
			t.Errorf("%q in %d bytes is %q", s, most, got)
		}
		if err := event.CheckID("id", s); err == nil && event.Text(s, event.MaxID) != s {
			t.Errorf("%q is an identifier, and no text", s)
		}
	})
}
