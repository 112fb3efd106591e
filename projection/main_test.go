package projection

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childStore); path != "" {
		os.Exit(runChild(path))
	}
	goleak.VerifyTestMain(m)
}
