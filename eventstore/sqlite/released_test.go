package sqlite

import (
	"testing"

	"github.com/keyhold/keyhold/internal/frozen"
)

// A release with a new script adds its line:
//
//	go test ./eventstore/sqlite -run TestReleasedFormatsAreFrozen -record-formats
func TestReleasedFormatsAreFrozen(t *testing.T) { frozen.Scripts(t, migrations) }
