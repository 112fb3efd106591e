package event

import (
	"encoding/json"
	"fmt"
)

// SourcePlace is a place in a stream that another program writes, with ids of its own.
type SourcePlace struct {
	Entry string // id of the entry at this place; "" = before the first
	// Added is how many entries the stream had ever been given up to this place, those included that are gone; 0 = it is not known.
	Added uint64
}

// Malformed is the type of a record that takes the place of what another program wrote and is no event. It is poison to whoever comes to it; its Data is a [MalformedEntry].
const Malformed = ownPrefix + "malformed"

// MalformedEntry is what is known of an entry that is no event.
type MalformedEntry struct {
	Stream string            `json:"stream"` // as category:key, whatever the broker calls it
	Entry  string            `json:"entry"`  // its id
	Why    string            `json:"why"`
	Fields map[string]string `json:"fields"` // as far as there is room
}

// MalformedError: a record stands for an entry that is no event.
type MalformedError struct{ MalformedEntry }

func (e *MalformedError) Error() string {
	return fmt.Sprintf("entry %s of stream %s is no event: %s; skip it, and have its producer write what docs/wire.md says", e.Entry, e.Stream, e.Why)
}

// MalformedIn gives the error that a record of type [Malformed] stands for.
func MalformedIn(e *Envelope) *MalformedError {
	out := &MalformedError{}
	if err := json.Unmarshal(e.Data, &out.MalformedEntry); err != nil {
		out.Entry, out.Stream, out.Why = e.ID, e.Category+":"+e.Key, "what it was is lost"
	}
	return out
}
