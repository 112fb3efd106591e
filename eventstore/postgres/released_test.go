package postgres

import (
	"testing"

	"github.com/keyhold/keyhold/internal/frozen"
)

// A release with a new script adds its line:
//
//	go test ./eventstore/postgres -run TestReleasedFormatsAreFrozen -record-formats
func TestReleasedFormatsAreFrozen(t *testing.T) { frozen.Scripts(t, migrations) }
