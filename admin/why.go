package admin

import (
	"context"
	"time"
)

// WhyQuery names what is to be explained: what becomes of the events of a key. Category may also be the name of a handler or entity kind,
// which then is what Handler is.
type WhyQuery struct {
	Category string
	Key      string
	Handler  string // "" = all that read the category
}

// Explanation says where the events of a key are and what keeps them there, one unit at a time, those that need a person first.
type Explanation struct {
	At         time.Time `json:"at"`
	Category   string    `json:"category,omitempty"`
	Key        string    `json:"key"`
	OwnerWords string    `json:"owner_words"`
	Units      []WhyUnit `json:"units"`
	Words      string    `json:"words"` // one line: "1 of 2 handlers of order:client-17 is stopped"
}

// WhyUnit is one unit, explained.
type WhyUnit struct {
	Unit
	// Because is what is going on, in sentences, the reason first: "halted for 4 m at order:client-17 #5 (order.placed): retries
	// exhausted after 5 attempts: card declined".
	Because []string `json:"because"`
	// Behind is what waits, in words: "3 events wait behind it: order.placed (2 m), order.paid (1 m), order.placed (3 s)"; "" when nothing does.
	Behind string `json:"behind,omitempty"`
	// Next is what to do now, the most likely first; empty when there is nothing to do.
	Next []Step `json:"next"`
}

// Step is something that a person may do.
type Step struct {
	Command string `json:"command"` // as typed: "keyhold partitions retry shipping client-17"
	Words   string `json:"words"`   // what it does: "try the event again, once the cause is mended"
}

// Why explains what becomes of the events of a key.
func (d *Desk) Why(ctx context.Context, q WhyQuery) (Explanation, error) {
	return Explanation{}, errUnbuilt
}
