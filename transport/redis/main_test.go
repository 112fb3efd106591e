package redis

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := stopShared(); err != nil {
			fmt.Fprintln(os.Stderr, "stop redis:", err)
			code = 1
		}
		os.Exit(code)
	}))
}
