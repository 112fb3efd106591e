package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestCleanTextIsFitForATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"client-17":                   "client-17",
		"größe 大 😀":                   "größe 大 😀",
		`C:\temp`:                     `C:\temp`,
		"\x1b[2J\x1b[31mred":          `\x1b[2J\x1b[31mred`,
		"a\tb\nc\r":                   `a\tb\nc\r`,
		"\u009b31m csi in one rune":   `\u009b31m csi in one rune`,
		"pay\u202egnp.exe":            `pay\u202egnp.exe`,
		"zero\u200bwidth":             `zero\u200bwidth`,
		"\xff\xfe not text":           `\xff\xfe not text`,
		"line\u2028separator":         `line\u2028separator`,
		"\x7f delete":                 `\x7f delete`,
		"\x1b]0;title\a rings a bell": `\x1b]0;title\a rings a bell`,
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) is %q, want %q", in, got, want)
		}
	}
}

func FuzzWhatIsShownIsPrintable(f *testing.F) {
	for _, s := range []string{"", "client-17", "\x1b[2J", "\xff", "\u009b", "\U000e0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range clean(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("clean(%q) has %U", s, r)
			}
		}
		text, err := document(map[string]string{"key": s}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(string(text), "\n") {
			if !unicode.IsPrint(r) {
				t.Fatalf("document of %q has %U", s, r)
			}
		}
		var back map[string]string
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(s) && back["key"] != s {
			t.Fatalf("%q came back as %q", s, back["key"])
		}
		if n := cells(cut(clean(s), 5)); n > 5 {
			t.Fatalf("cut(%q) takes %d cells", s, n)
		}
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 400 * time.Millisecond: "0s", 12*time.Second + 900*time.Millisecond: "12s", 4*time.Minute + 12*time.Second: "4m12s",
		3*time.Hour + 5*time.Minute: "3h05m", 124 * time.Hour: "5d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) is %s, want %s", d, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %s, want %s", n, got, want)
		}
	}
	if got := amount(1, "event") + ", " + amount(2, "event") + ", " + amount(1200, "category"); got != "1 event, 2 events, 1,200 categories" {
		t.Error(got)
	}
}

func TestCutKeepsWhatFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{{"client-17", 9, "client-17"}, {"client-17", 8, "client-…"}, {"größe", 4, "grö…"}, {"größe", 1, "…"}, {"größe", 0, ""},
		{"注文番号", 8, "注文番号"}, {"注文番号", 7, "注文番…"}, {"注文番号", 6, "注文…"}, {"注文", 2, "…"}, {"e\u0301te\u0301", 3, "e\u0301te\u0301"}, {"e\u0301te\u0301s", 3, "e\u0301t…"}} {
		if got := cut(c.in, c.width); got != c.want {
			t.Errorf("cut(%q, %d) is %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func TestTablesGiveUpWidthWhereThereIsMost(t *testing.T) {
	t.Parallel()
	table := &table{columns: []column{{title: "KEY", give: true}, {title: "N", right: true}, {title: "WHY", give: true}, {title: "MORE", wide: true}},
		rows: [][]cell{{plain("client-17"), plain("5"), plain(strings.Repeat("x", 200)), plain(strings.Repeat("y", 200))}, {plain(""), plain("1,000"), plain("short"), plain("z")}}}
	draw := func(wide bool, width int) string {
		var b bytes.Buffer
		if err := table.write(&b, palette(false), wide, width); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got, want := draw(false, 40), "KEY            N  WHY\nclient-17      5  xxxxxxxxxxxxxxxxxxxxx…\n-          1,000  short\n"; got != want {
		t.Errorf("at 40 columns:\n%s", got)
	}
	if got := draw(false, 10); !strings.Contains(got, "client-…") {
		t.Errorf("keys are given up where nothing of them is left:\n%s", got)
	}
	if got := draw(false, 0); !strings.Contains(got, strings.Repeat("x", loose-1)+"…") || strings.Contains(got, "MORE") {
		t.Errorf("without a terminal:\n%s", got)
	}
	if got := draw(true, 40); !strings.Contains(got, strings.Repeat("x", 200)) || !strings.Contains(got, "yy") {
		t.Errorf("wide:\n%s", got)
	}
}

// Columns stay in line whatever script the keys are in.
func TestColumnsOfWideScriptsAreInLine(t *testing.T) {
	t.Parallel()
	table := &table{columns: []column{{title: "KEY", give: true}, {title: "BEHIND", right: true}, {title: "WHY"}}}
	for _, key := range []string{"client-17", "顧客十七", "e\u0301te\u0301", "🛒", "ｗｉｄｅ", "顧客番号一二三四五六七八九〇"} {
		table.rows = append(table.rows, []cell{plain(key), {text: "7"}, plain("poison")})
	}
	var out strings.Builder
	if err := table.write(&out, false, false, 36); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		at := max(strings.Index(line, "WHY"), strings.Index(line, "poison"))
		if got := cells(line[:at]); got != 30 {
			t.Errorf("the last column begins in cell %d: %s", got, line)
		}
	}
}

// A driver sets out its reasons line by line, each behind a tab: an escape there would be all that a person sees.
func TestReasonsOfADriverAreSetOut(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	Report(&b, errors.New("no way in:\n\thost a: refused\n\thost\tb"))
	if got, want := b.String(), "error: no way in:\n  host a: refused\n  host\\tb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
