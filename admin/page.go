package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/eventstore"
)

// MaxLimit is the most that a page may hold, and DefaultLimit what it holds when the query says 0.
const (
	MaxLimit     = eventstore.MaxLimit
	DefaultLimit = 100
)

// Page is a page of a list. Items is never null in JSON.
type Page[T any] struct {
	Items []T `json:"items"`
	// Next is what a query gives as Cursor to get the next page; "" when this is the last. It is opaque, fit for a URL, and stays
	// valid whatever changes in between. A page may be short, or empty, and not be the last.
	Next string `json:"next,omitempty"`
}

// paging is what a list needs to read a page: the place to begin after, and how many to ask the store for.
type paging struct {
	list  string // its name: a cursor of one list is none of another
	limit int
}

// page checks a limit and a cursor, which is read into after.
func page(list string, limit int, cursor string, after any) (paging, error) {
	p := paging{list: list, limit: limit}
	if limit == 0 {
		p.limit = DefaultLimit
	}
	var faults []string
	if limit < 0 || limit > MaxLimit {
		faults = append(faults, fmt.Sprintf("limit is %d: give 1 to %d, 0 for %d", limit, MaxLimit, DefaultLimit))
	}
	if cursor != "" && !readCursor(list, cursor, after) {
		faults = append(faults, fmt.Sprintf("cursor %q is not one that this list gave: give the next of a page as it was, or none", upTo(40, cursor)))
	}
	return p, usage(faults)
}

// ask is how many to ask the store for: one more than wanted tells whether there are more.
func (p paging) ask() int { return min(p.limit+1, MaxLimit) }

// pageOf makes a page of what the store gave when asked for p.ask().
func pageOf[R, T any](p paging, rows []R, view func(R) T, place func(R) any) Page[T] {
	out := Page[T]{Items: make([]T, 0, min(len(rows), p.limit))}
	more := len(rows) > p.limit || p.limit == MaxLimit && len(rows) == MaxLimit
	rows = rows[:min(len(rows), p.limit)]
	for _, r := range rows {
		out.Items = append(out.Items, view(r))
	}
	if more {
		out.Next = p.cursor(place(rows[len(rows)-1]))
	}
	return out
}

func (p paging) cursor(place any) string {
	b, err := json.Marshal([]any{p.list, place})
	if err != nil {
		panic(fmt.Sprintf("cursor of %s: %v", p.list, err)) // places are plain structs
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(list, cursor string, after any) bool {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return false
	}
	var of string
	var parts []json.RawMessage
	return json.Unmarshal(b, &parts) == nil && len(parts) == 2 && json.Unmarshal(parts[0], &of) == nil && of == list &&
		json.Unmarshal(parts[1], after) == nil
}

// usage makes an error of faults, if there are any.
func usage(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return &UsageError{Faults: faults}
}

// joinUsage adds a fault to what is wrong already.
func joinUsage(err error, fault string) error {
	if e, ok := errors.AsType[*UsageError](err); ok {
		return &UsageError{Faults: append(slices.Clone(e.Faults), fault)}
	}
	return &UsageError{Faults: []string{fault}}
}
