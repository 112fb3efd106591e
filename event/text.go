package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxID is the greatest length of an identifier that is neither key nor name, in bytes: of an event, a command, a correlation, a tenant. It leaves room for what is made of two
// keys and an id, and with two keys beside it an identifier still goes into an index of every store.
const MaxID = 1024

// ErrBadID is what an [*IDError] is.
var ErrBadID = errors.New("bad identifier")

// IDError: a text cannot be an identifier. Reason completes "What ID ...".
type IDError struct {
	What   string // "command id"
	ID     string
	Reason string
}

func (e *IDError) Error() string        { return e.What + " " + show(e.ID) + " " + e.Reason }
func (e *IDError) Is(target error) bool { return target == ErrBadID }

// CheckID gives an [*IDError] unless id may identify something, or is empty: it is text of at most [MaxID] bytes without control characters. what says of what it is.
func CheckID(what, id string) error {
	if id == "" {
		return nil
	}
	if reason := unfit(id); reason != "" {
		return &IDError{What: what, ID: id, Reason: reason}
	}
	return nil
}

func unfit(id string) string {
	switch {
	case len(id) > MaxID:
		return tooLong(id, MaxID)
	case plain(id): // as nearly all are
		return ""
	case !utf8.ValidString(id):
		return "is not valid UTF-8: use text, such as the hexadecimal form of the bytes"
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return fmt.Sprintf("contains the control character %U: use an identifier without it", r)
		}
	}
	return ""
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Fit gives the trace if it can be kept, and else none: whoever meets a trace that is none begins a new one.
func (t Trace) Fit() Trace {
	if unfit(t.Parent) != "" {
		return Trace{}
	}
	if unfit(t.State) != "" {
		t.State = ""
	}
	return t
}

// Text makes a text for people fit to be kept: valid UTF-8 without NUL, of at most so many bytes. What is not is replaced or cut off.
func Text(s string, most int) string {
	const more, other = " ...", "\uFFFD"
	clean := func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, other), "\x00", other) }
	if len(s) <= most {
		if s = clean(s); len(s) <= most { // what replaces may be longer
			return s
		}
	} else {
		s = clean(s[:most])
	}
	cut := max(min(most, len(s))-len(more), 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
