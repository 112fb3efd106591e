package event

import (
	"errors"
	"fmt"
)

// MaxData is the greatest length of [Envelope.Data], in bytes: what every store and broker carries without special settings.
const MaxData = 1 << 20

// ErrTooLarge is what the error of [CheckData] is.
var ErrTooLarge = errors.New("too large")

// CheckData reports whether data may be the data of an event or a command of this type. What is too large must be refused before it
// is committed: no later step could pass it on.
func CheckData(typ string, data []byte) error {
	if len(data) <= MaxData {
		return nil
	}
	return fmt.Errorf("%q is %w: %d bytes, at most %d are carried: keep the bulk elsewhere and refer to it", typ, ErrTooLarge, len(data), MaxData)
}
