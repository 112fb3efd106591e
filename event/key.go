package event

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxKey is the greatest length of a partition key or a name, in bytes.
	MaxKey = 255

	// DefaultBackfillSuffix marks backfill lanes when [KeyRules] do not say otherwise.
	DefaultBackfillSuffix = "backfill"

	// CommandsSuffix ends the category of the commands of an entity kind.
	CommandsSuffix = ".commands"

	deadLetterSuffix = "dlq"
	ownPrefix        = "keyhold."
)

var (
	// ErrBadKey is what a [*KeyError] is.
	ErrBadKey = errors.New("bad partition key")
	// ErrBadName is what a [*NameError] is.
	ErrBadName = errors.New("bad name")
)

// KeyError: a value cannot be a partition key. Reason completes "partition key X ..." and says what to do about it.
type KeyError struct {
	Key    string
	Reason string
}

func (e *KeyError) Error() string {
	if e.Key == "" {
		return "partition key " + e.Reason
	}
	return "partition key " + show(e.Key) + " " + e.Reason
}
func (e *KeyError) Is(target error) bool { return target == ErrBadKey }

// NameError: a text cannot be a name, or is none. Reason completes "name X ...".
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string        { return "name " + show(e.Name) + " " + e.Reason }
func (e *NameError) Is(target error) bool { return target == ErrBadName }

// KeyRules decide which values may be partition keys. They hold for the whole application: a key that one process
// accepts and another refuses would strand its events. The zero value is ready to use.
//
// The rules keep [Names] unambiguous. A key that breaks them is refused in the transaction of whoever emits the event, never
// replaced by another: two entities under one substitute key would lose their order without a word.
type KeyRules struct {
	BackfillSuffix string // marks backfill lanes; "" is [DefaultBackfillSuffix]
}

// Validate reports whether the rules themselves can hold; the error is a [*NameError].
func (r KeyRules) Validate() error {
	suffix := r.suffix()
	reason := fault(suffix)
	if suffix == deadLetterSuffix {
		reason = "is taken by dead letters: choose another"
	}
	if reason != "" {
		return fmt.Errorf("backfill suffix: %w", &NameError{Name: suffix, Reason: reason})
	}
	return nil
}

// Check gives a [*KeyError] unless key is a valid partition key.
func (r KeyRules) Check(key string) error {
	reason := fault(key)
	switch key {
	case "":
		reason = "is empty: give its field a value before the event is emitted"
	case deadLetterSuffix, r.suffix():
		reason = "is the name of a lane: use another identifier"
	}
	if reason != "" {
		return &KeyError{Key: key, Reason: reason}
	}
	return nil
}

func (r KeyRules) suffix() string {
	if r.BackfillSuffix == "" {
		return DefaultBackfillSuffix
	}
	return r.BackfillSuffix
}

// CheckName gives a [*NameError] unless name may name a category, a handler, a process manager, an entity kind or a type.
func CheckName(name string) error {
	if reason := fault(name); reason != "" {
		return &NameError{Name: name, Reason: reason}
	}
	return nil
}

// CheckDeclaredName is [CheckName] for names that an application chooses. It also refuses names that end in
// [CommandsSuffix], which belong to the categories made for entity kinds, leaves room for that suffix, and refuses names that begin
// with "keyhold.", which are kept for Keyhold itself.
func CheckDeclaredName(name string) error {
	if strings.HasPrefix(name, ownPrefix) {
		return &NameError{Name: name, Reason: "begins with " + ownPrefix + ", which is kept for Keyhold itself: choose another"}
	}
	if strings.HasSuffix(name, CommandsSuffix) {
		return &NameError{Name: name, Reason: "ends in " + CommandsSuffix + ", which is kept for the commands of entity kinds: choose another"}
	}
	if limit := MaxKey - len(CommandsSuffix); len(name) > limit {
		return &NameError{Name: name, Reason: tooLong(name, limit)}
	}
	return CheckName(name)
}

// CommandsOf is the category of the commands of an entity kind.
func CommandsOf(kind string) string { return kind + CommandsSuffix }

// fault says what is wrong with s as one part of a name, "" if nothing is.
func fault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxKey:
		return tooLong(s, MaxKey)
	case !utf8.ValidString(s):
		return "is not valid UTF-8: use text, such as the hexadecimal form of the bytes"
	case reserved(s):
		return "has the form __name__, which is kept for Keyhold itself: use another identifier"
	}
	for _, r := range s {
		switch {
		case r == ':' || r == '{' || r == '}':
			return fmt.Sprintf("contains %q, which structures the names of streams: use an identifier without it", r)
		case unicode.IsControl(r):
			return fmt.Sprintf("contains the control character %U: use an identifier without it", r)
		}
	}
	return ""
}

func tooLong(s string, limit int) string {
	return fmt.Sprintf("is %d bytes long, at most %d are allowed: use a shorter identifier, or a hash of this one", len(s), limit)
}

// reserved reports whether s has the form __name__, which is kept for what Keyhold itself stores.
func reserved(s string) bool {
	return len(s) >= 4 && strings.HasPrefix(s, "__") && strings.HasSuffix(s, "__")
}

// show quotes foreign text for a message: nothing unprintable, nothing long.
func show(s string) string {
	const limit = 64
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}
