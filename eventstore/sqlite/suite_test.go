package sqlite

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
)

func TestStoreKeepsThePromisesOfThePort(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness {
		path := filepath.Join(t.TempDir(), "store.db")
		store := Open(path)
		id, err := store.Start(t.Context(), eventstore.StartOptions{Node: "first"})
		if err != nil {
			t.Fatal(err)
		}
		last := store
		return eventstoretest.Harness{
			Store: store, Identity: id,
			Reopen: func() eventstore.Store {
				last = Open(path)
				return last
			},
			Crash: func() {
				path = crashImage(t, path)
				stopNow(t, last)
			},
		}
	})
}

// crashImage copies the database as it is on disk, as kill -9 at this moment would leave it, and gives the copy's path.
func crashImage(t *testing.T, path string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "store.db")
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, path+suffix, image+suffix)
	}
	return image
}

// stopNow stops a store without waiting for anybody.
func stopNow(t *testing.T, s *Store) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
