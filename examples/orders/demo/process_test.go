package main

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// alone is the one process of a plan without servers.
func alone(dir string, life int) role {
	return role{at: at{DB: databaseIn(dir)}, incarnation: incarnation{1, life}}
}

func TestAnAskWhoseProcessIsKilledIsSafeToAskAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := startProcess(t.Context(), dir, alone(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	o := order{ID: "o-1", Client: "client-01", Cents: 100}
	if _, err := first.call(t.Context(), call{Verb: place, Order: o}); err != nil {
		t.Fatal(err)
	}
	if err := first.kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.call(t.Context(), call{Verb: progress}); !unanswered(err) {
		t.Errorf("a call to a dead process: %v", err)
	}

	second, err := startProcess(t.Context(), dir, alone(dir, 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.call(t.Context(), call{Verb: place, Order: o}); err != nil {
		t.Errorf("the same ask again: %v", err)
	}
	if _, err := second.call(t.Context(), call{Verb: "dance"}); err == nil || !strings.Contains(err.Error(), `unknown verb "dance"`) {
		t.Errorf("a verb that is none: %v", err)
	}
	if err := second.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, err := gather(t.Context(), at{DB: databaseIn(dir)}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Placed) != 1 || e.Placed[0].Order != "o-1" {
		t.Errorf("the log has %+v", e.Placed)
	}
}

func TestAProcessThatDoesNotStartSaysWhereToLook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(databaseIn(dir), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := startProcess(t.Context(), dir, alone(dir, 1))
	if err == nil || !strings.Contains(err.Error(), logIn(dir)) {
		t.Fatal(err)
	}
	log, err := os.ReadFile(logIn(dir))
	if err != nil || !strings.Contains(string(log), "is not a SQLite database") {
		t.Errorf("the log says %q (%v)", log, err)
	}
}

func TestOneProcessAtATimeHasTheDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := startProcess(t.Context(), dir, alone(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := startProcess(t.Context(), dir, alone(dir, 2)); err == nil {
		t.Error("a second process has started on it", errors.Join(second.kill()))
	}
	if err := first.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
