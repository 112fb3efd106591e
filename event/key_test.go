package event_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
)

func TestKeysThatIdentifySomethingAreAccepted(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"client-123",
		"0",
		"-17",
		"2f1c5a0e-9f0b-7c1e-8a55-0d7c2f1b9e11",
		"Zoë / Müller, 東京",
		"a.b%c?d=e&f#g",
		" ",
		"DLQ",
		"backfilled",
		"_", "__", "___", "__a", "a__", "_a_", "__a_",
		strings.Repeat("k", event.MaxKey),
		strings.Repeat("é", 127),
	} {
		if err := (event.KeyRules{}).Check(key); err != nil {
			t.Errorf("Check(%q) = %v, want nil", key, err)
		}
	}
}

// badParts are refused in keys and in names alike.
var badParts = map[string]string{ // value: what the message must say
	"":                                     "is empty",
	strings.Repeat("k", event.MaxKey+1):    "256 bytes long, at most 255",
	strings.Repeat("é", event.MaxKey/2+1):  "256 bytes long, at most 255",
	"\xff":                                 "not valid UTF-8",
	"client-\xc3":                          "not valid UTF-8",
	"\xed\xa0\x80":                         "not valid UTF-8", // a surrogate
	"a:b":                                  `contains ':'`,
	":":                                    `contains ':'`,
	"{a":                                   `contains '{'`,
	"a}":                                   `contains '}'`,
	"a\x00b":                               "control character U+0000",
	"a\nb":                                 "control character U+000A",
	"a\x7f":                                "control character U+007F",
	"a\u0085":                              "control character U+0085",
	"____":                                 "has the form __name__",
	"__partitions__":                       "has the form __name__",
	"__anything at all__":                  "has the form __name__",
	"__" + strings.Repeat("k", 250) + "__": "has the form __name__",
}

func TestKeysThatWouldBreakNamesAreRefused(t *testing.T) {
	t.Parallel()
	check := func(rules event.KeyRules, key, want string) {
		t.Helper()
		err := rules.Check(key)
		var typed *event.KeyError
		switch {
		case !errors.Is(err, event.ErrBadKey) || !errors.As(err, &typed):
			t.Errorf("Check(%q) = %v, want a *KeyError that is ErrBadKey", key, err)
		case typed.Key != key:
			t.Errorf("Check(%q): error has key %q", key, typed.Key)
		case !strings.Contains(err.Error(), want):
			t.Errorf("Check(%q) = %q, want it to say %q", key, err, want)
		}
	}
	for key, want := range badParts {
		check(event.KeyRules{}, key, want)
	}
	check(event.KeyRules{}, "dlq", "name of a lane")
	check(event.KeyRules{}, "backfill", "name of a lane")
	check(event.KeyRules{BackfillSuffix: "late"}, "late", "name of a lane")
	check(event.KeyRules{BackfillSuffix: "late"}, "dlq", "name of a lane")
	if err := (event.KeyRules{BackfillSuffix: "late"}).Check("backfill"); err != nil {
		t.Errorf("with another suffix, %q is a key like any other: %v", "backfill", err)
	}
}

func TestRefusedKeyIsShownQuotedAndCut(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"a\x1b[31m:\u202eb":                 `partition key "a\x1b[31m:\u202eb" contains `,
		strings.Repeat("k", 300):            `partition key "` + strings.Repeat("k", 64) + `"... is 300 bytes`,
		"x" + strings.Repeat("é", 40) + ":": `partition key "x` + strings.Repeat("é", 31) + `"... contains`,
		strings.Repeat("\x80", 100):         `partition key "` + strings.Repeat(`\x80`, 60) + `"... is not valid`,
		"":                                  `partition key is empty: give its field a value`,
	} {
		if got := (event.KeyRules{}).Check(key).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("Check(%q)\n got %s\nwant %s...", key, got, want)
		}
	}
}

func TestBackfillSuffixMustItselfBeUnambiguous(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "backfill", "late", "nachtrag-é"} {
		if err := (event.KeyRules{BackfillSuffix: suffix}).Validate(); err != nil {
			t.Errorf("suffix %q: %v", suffix, err)
		}
	}
	bad := map[string]string{"dlq": "taken by dead letters"}
	for suffix, want := range badParts {
		if suffix != "" {
			bad[suffix] = want
		}
	}
	for suffix, want := range bad {
		err := event.KeyRules{BackfillSuffix: suffix}.Validate()
		if !errors.Is(err, event.ErrBadName) || !strings.Contains(err.Error(), want) {
			t.Errorf("suffix %q: got %v, want ErrBadName that says %q", suffix, err, want)
		}
	}
}

func TestNamesFollowTheRulesOfKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"order", "order.commands", "Versand", "dlq", "backfill", strings.Repeat("n", event.MaxKey)} {
		if err := event.CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v, want nil", name, err)
		}
	}
	for name, want := range badParts {
		for _, check := range []func(string) error{event.CheckName, event.CheckDeclaredName} {
			err := check(name)
			var typed *event.NameError
			if !errors.Is(err, event.ErrBadName) || !errors.As(err, &typed) || typed.Name != name {
				t.Errorf("%q: got %v, want a *NameError of it that is ErrBadName", name, err)
			}
		}
		if err := event.CheckName(name); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckName(%q) = %q, want it to say %q", name, err, want)
		}
	}
}

func TestDeclaredNamesLeaveRoomForTheCategoryOfCommands(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", event.MaxKey-len(event.CommandsSuffix))
	if err := event.CheckDeclaredName(longest); err != nil {
		t.Errorf("longest name: %v", err)
	}
	if err := event.CheckName(event.CommandsOf(longest)); err != nil {
		t.Errorf("category of commands of the longest name: %v", err)
	}
	for _, name := range []string{longest + "n", event.CommandsOf("order"), event.CommandsSuffix, event.PartName} {
		if err := event.CheckDeclaredName(name); !errors.Is(err, event.ErrBadName) {
			t.Errorf("CheckDeclaredName(%q) = %v, want ErrBadName", name, err)
		}
	}
}

func TestCheckingAKeyAllocatesNothing(t *testing.T) {
	rules := event.KeyRules{}
	if n := testing.AllocsPerRun(100, func() { _ = rules.Check("2f1c5a0e-9f0b-7c1e-8a55-0d7c2f1b9e11") }); n != 0 {
		t.Errorf("Check of a good key makes %v allocations", n)
	}
}
