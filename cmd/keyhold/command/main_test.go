package command

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(ownerOf); path != "" {
		os.Exit(own(path))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if path, err := shop(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		os.Exit(code)
	}))
}

var update = flag.Bool("update", false, "write golden files anew")

// night is when the tests look at stores. It is before any clock that they run under, so that what a store notes by itself is never old.
var night = time.Date(2024, 2, 29, 3, 4, 5, 0, time.UTC)

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: write it with go test -run %s -update", err, t.Name())
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what is shown now (write it anew with -update, and look at the difference):\n%s", file, diff)
	}
}
