package child

import (
	"context"
	"errors"
	"os"
)

// TB is what tests that run programs need of [testing.TB].
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Skip(args ...any)
	Fatal(args ...any)
}

// Check ends a test for an error. Where that is missing, a program that is not installed, the test is skipped, and fails when CI is set.
func Check(tb TB, err, missing error) {
	tb.Helper()
	if errors.Is(err, missing) && os.Getenv("CI") == "" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Verdict is what a test was told.
type Verdict struct {
	TB
	Skipped, Failed bool
}

// Judge has f run as a test would, and gives what it was told. Of everything else tb is told.
func Judge(tb TB, f func(TB)) (v *Verdict) {
	v = &Verdict{TB: tb}
	defer func() {
		if over := recover(); over != nil && over != any(v) {
			panic(over)
		}
	}()
	f(v)
	return v
}

// Skip implements [TB].
func (v *Verdict) Skip(...any) { v.Skipped = true; panic(v) }

// Fatal implements [TB].
func (v *Verdict) Fatal(...any) { v.Failed = true; panic(v) }
