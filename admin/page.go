package admin

// MaxLimit is the most that a page may hold, and DefaultLimit what it holds when the query says 0.
const (
	MaxLimit     = 10_000
	DefaultLimit = 100
)

// Page is a page of a list. Items is never null in JSON.
type Page[T any] struct {
	Items []T `json:"items"`
	// Next is what a query gives as Cursor to get the next page; "" when this is the last. It is opaque, fit for a URL, and stays
	// valid whatever changes in between. A page may be short, or empty, and not be the last.
	Next string `json:"next,omitempty"`
}
