package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// clean makes text of a store fit for a terminal and for one cell of a table: whatever could move the cursor, change colours, reverse
// the direction of writing or break the line is shown as its escape. A backslash stays one: what is shown is for people, not to be parsed.
func clean(s string) string {
	if fit(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case printable(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

func fit(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !printable(r) }) < 0
}

// printable: unicode.IsPrint has no control, format (bidirectional overrides among them), or line separator characters.
func printable(r rune) bool { return unicode.IsPrint(r) }

// cells is how much room a text takes on a terminal: the characters of wide scripts, and most pictures, take two cells, and marks that are drawn over another
// character none.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	switch {
	case r < 0x300: // before the first mark; most of what is shown
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens text to so many cells, the last of which is … where something is missing.
func cut(s string, room int) string {
	if cells(s) <= room {
		return s
	}
	if room < 1 {
		return ""
	}
	kept := 0
	for at, r := range s {
		if kept += cellsOf(r); kept > room-1 {
			return s[:at] + "…"
		}
	}
	return s
}

// span says how long in the two greatest units: 12s, 4m12s, 3h05m, 5d4h.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

const instant = "2006-01-02 15:04:05Z"

// count groups the digits of a number by thousands: 1,234,567.
func count[N ~int | ~int64 | ~uint64](n N) string {
	digits := strconv.FormatUint(uint64(max(n, 0)), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// amount is a count with its noun: 1 event, 2 events.
func amount[N ~int | ~int64 | ~uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if stem, ok := strings.CutSuffix(one, "y"); ok {
		return count(n) + " " + stem + "ies"
	}
	return count(n) + " " + one + "s"
}

// dash leaves a 0 out, so that other numbers of a column stand out.
func dash(n uint64) string {
	if n == 0 {
		return ""
	}
	return count(n)
}

// suffix ends a text that there is.
func suffix(text, end string) string {
	if text == "" {
		return ""
	}
	return text + end
}

// stamp is an instant, "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(instant)
}

// list names a few things in one line.
func list(all []string) string { return strings.Join(all, ", ") }

// prefix begins a text that there is.
func prefix(begin, text string) string {
	if text == "" {
		return ""
	}
	return begin + text
}

// plainCount is a number as it is typed.
func plainCount[N ~int | ~int64 | ~uint64](n N) string { return strconv.FormatUint(uint64(n), 10) }
