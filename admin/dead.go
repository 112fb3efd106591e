package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// DeadQuery selects dead letters. Zero fields select all.
type DeadQuery struct {
	Filter
	Cursor string
	Limit  int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// DeadLetter is an event that one handler set aside and went on without.
type DeadLetter struct {
	Handler  string    `json:"handler"`
	Key      string    `json:"key"` // of the unit
	At       Place     `json:"at"`
	Type     string    `json:"type"`
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since"`
	Event    *Event    `json:"event,omitempty"` // when one is shown
	Words    string    `json:"words,omitempty"` // when one is shown: how many later events were applied
}

// DeadGroup is how many dead letters of a handler have one reason and one type.
type DeadGroup struct {
	Handler string    `json:"handler"`
	Reason  string    `json:"reason"`
	Type    string    `json:"type"`
	Count   int       `json:"count"`
	Oldest  time.Time `json:"oldest"`
	Newest  time.Time `json:"newest"`
}

// DeadLetters lists dead letters in order of (handler, key, category, lane, sequence). A page looks at no more than [MaxLimit] of them.
func (d *Desk) DeadLetters(ctx context.Context, q DeadQuery) (Page[DeadLetter], error) {
	return Page[DeadLetter]{}, errUnbuilt
}

// DeadLetter shows one, named by its unit and its place (EventID does not count).
func (d *Desk) DeadLetter(ctx context.Context, u event.Unit, at Place, payload bool) (DeadLetter, error) {
	return DeadLetter{}, errUnbuilt
}

// DeadGroups counts dead letters by handler, reason and type, most first. more says that only the first [MaxLimit] of a handler were counted.
func (d *Desk) DeadGroups(ctx context.Context, handler string) (groups []DeadGroup, more bool, err error) {
	return nil, false, errUnbuilt
}
