package postgres

import (
	"errors"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

func TestMigrateMakesTheStoreWhileNobodyHasIt(t *testing.T) {
	t.Parallel()
	url := postgresserver.Database(t)
	found, known, pending, err := MigrationStatus(t.Context(), url)
	if err != nil || found != 0 || known == 0 || len(pending) != known || pending[0].Number != 1 || pending[0].SQL == "" {
		t.Fatalf("of an empty database: %d, %d, %d steps, %v", found, known, len(pending), err)
	}
	done, err := Migrate(t.Context(), url)
	if err != nil || len(done) != known {
		t.Fatalf("took %d steps, %v", len(done), err)
	}
	store := Open(url)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "orders@test", NoMigrate: true}); err != nil {
		t.Fatal(err)
	}
	var owned *eventstore.OwnedError
	if _, err := Migrate(t.Context(), url); !errors.As(err, &owned) || owned.Node != "orders@test" {
		t.Errorf("while a process has it: %v", err)
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := Migrate(t.Context(), url); err != nil || len(done) > 0 {
		t.Errorf("again: took %d steps, %v", len(done), err)
	}
	if found, _, pending, err := MigrationStatus(t.Context(), url); err != nil || found != known || len(pending) > 0 {
		t.Errorf("at the end: %d, %d steps, %v", found, len(pending), err)
	}
}

func TestMigrationStatusOfWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	url := postgresserver.URL("127.0.0.1:1", "orders")
	if _, _, _, err := MigrationStatus(t.Context(), url); err == nil {
		t.Error("status: no error")
	}
	if _, err := Migrate(t.Context(), url); err == nil {
		t.Error("migrate: no error")
	}
	if _, _, _, err := MigrationStatus(t.Context(), ""); err == nil {
		t.Error("no url: no error")
	}
}
