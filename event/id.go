package event

import (
	"strconv"

	"github.com/google/uuid"
)

// NewID makes an id that nothing else has: a UUID of version 7, so ids made later by one process sort later.
// It is safe for concurrent use.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String() // crypto/rand does not return errors
}

// derived is the name space of [DerivedID]. It is part of every derived id, so it must never change.
var derived = uuid.MustParse("6a1f3c52-0d5e-5b7c-9d0b-4b6579686f6c")

// DerivedID is the id of the n-th event, command or timer that by emits because of the event or command parent: a UUID of
// version 5 of the three. A behavior that runs again after a crash emits the same ids, so whoever saw them before can tell.
// by is needed because two handlers of one event emit different things; use the unit's text.
func DerivedID(parent string, n int, by string) string {
	// The length makes the text unambiguous whatever the parts contain.
	text := strconv.Itoa(len(parent)) + ":" + parent + ":" + strconv.Itoa(n) + ":" + by
	return uuid.NewSHA1(derived, []byte(text)).String()
}
