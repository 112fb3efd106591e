package keyholdtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// fake is a test that records what it is told.
type fake struct {
	*testing.T // for Context
	cleanups   []func()
	said       []string
	fatal      bool
}

func (f *fake) Cleanup(c func())         { f.cleanups = append(f.cleanups, c) }
func (f *fake) Context() context.Context { return f.T.Context() }
func (f *fake) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

type stop struct{}

func (f *fake) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.fatal = true
	panic(stop{})
}

// pretend runs a test that is to fail, with its cleanups, and gives what it said.
func pretend(t *testing.T, test func(t *fake)) *fake {
	t.Helper()
	f := &fake{T: t}
	run := func(part func()) {
		defer func() {
			if v := recover(); v != nil && v != any(stop{}) {
				panic(v)
			}
		}()
		part()
	}
	run(func() { test(f) })
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		run(f.cleanups[i])
	}
	return f
}

// fails asserts that a test fails once, with a message that has all these words in it.
func fails(t *testing.T, test func(t *fake), words ...string) {
	t.Helper()
	f := pretend(t, test)
	if len(f.said) != 1 {
		t.Fatalf("said %d things, want 1:\n%s", len(f.said), strings.Join(f.said, "\n"))
	}
	said := strings.ReplaceAll(f.said[0], "\u00a0", " ") // go-cmp takes care that nobody compares its texts
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("the message does not say %q:\n%s", w, said)
		}
	}
}
