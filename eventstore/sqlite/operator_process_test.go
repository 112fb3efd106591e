//go:build linux || darwin

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestOperatorIsToldWhichProcessHasTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	c := startChild(t, "hold", path)
	c.line(t)
	a := attach(t, path)
	o, err := a.Overview(t.Context())
	if want := (eventstore.Owner{PID: c.Process.Pid, Node: "child", Generation: o.StartGeneration}); err != nil || o.Owner == nil || *o.Owner != want || o.Unclean {
		t.Errorf("overview %+v, owner %+v, %v, want %+v", o, o.Owner, err, want)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // says that it was killed
	if o, err = a.Overview(t.Context()); err != nil || o.Owner != nil || !o.Unclean {
		t.Errorf("after it was killed: owner %+v, unclean %v, %v", o.Owner, o.Unclean, err)
	}
	if _, err := Migrate(t.Context(), path); err != nil {
		t.Errorf("migrate what nobody has: %v", err)
	}
}

// The owner, another process, commits without a pause; each act gets its turn, and the owner fails nowhere.
func TestActsGetTheirTurnBesideAnOwnerThatWritesAllTheTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	first := Open(path)
	if _, err := first.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := first.SaveRegistry(t.Context(), eventstore.Registered{Handlers: []eventstore.Handler{{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}}}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "commit", path)
	c.line(t) // it is at work
	failed := make(chan string, 1)
	go func() { // it would wait for somebody to read what it says
		defer close(failed)
		for c.lines.Scan() {
			if line := c.lines.Text(); strings.HasPrefix(line, "error") {
				failed <- line
				return
			}
		}
	}()
	a := attach(t, path)
	const acts = 30
	for i := range acts {
		act := pausing(event.Unit{Name: "shipping"})
		if i%2 == 1 {
			act.Kind = eventstore.ActResume
		}
		if _, err := a.Act(t.Context(), act); err != nil {
			t.Fatalf("act %d: %v", i, err)
		}
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for line := range failed {
		t.Errorf("the owner says %s", line)
	}
	if last, err := a.LastAct(t.Context()); err != nil || last != acts {
		t.Errorf("last act %d, %v", last, err)
	}
	exact(t, "after it was killed", path)
}

func TestOperatorWithoutRightsReadsAndIsToldWhyItCannotAct(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("run as root: only root can give rights up in a child process")
		}
		t.Skip("only root can give rights up in a child process")
	}
	for _, c := range []struct {
		name    string
		dir     os.FileMode
		prepare func(t *testing.T, path string, s *Store) // with the store started
		want    []string
	}{
		{"stopped, file", 0o777, stopped, []string{"read e-1", "store cannot be written from here", "cannot be written"}},
		{"stopped, directory", 0o755, stopped, []string{"read e-1", "store cannot be written from here", "cannot be written"}},
		{"owned", 0o755, func(*testing.T, string, *Store) {}, []string{"read e-1", "store cannot be written from here"}},
		{"owned by who cannot be read", 0o755, func(t *testing.T, path string, _ *Store) {
			if err := os.Chmod(path+".lock", 0); err != nil {
				t.Fatal(err)
			}
		}, []string{"read e-1", "owner unknown", "store cannot be written from here"}},
		{"killed, without its shared memory", 0o755, func(t *testing.T, path string, s *Store) {
			image := crashImage(t, path)
			stopped(t, path, s)
			copyFile(t, image, path)
			copyFile(t, image+"-wal", path+"-wal")
		}, []string{"was not closed", "copy it together with"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "keyhold") // the directories of t.TempDir are closed to others
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "store.db")
			s := Open(path)
			if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stopped(t, path, s) })
			if _, err := s.Begin("test").Commit(t.Context(), publish("e-1")); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, path, s)
			for _, name := range []string{path, path + "-wal", path + "-shm"} {
				if err := os.Chmod(name, 0o444); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.dir); err != nil {
				t.Fatal(err)
			}
			child := startChild(t, "read", path)
			var said []string
			for child.lines.Scan() {
				said = append(said, child.lines.Text())
			}
			for _, want := range append(c.want, path) {
				if !strings.Contains(strings.Join(said, "\n"), want) {
					t.Errorf("the child says %q, want %q", said, want)
				}
			}
		})
	}
}

func stopped(t *testing.T, _ string, s *Store) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
		t.Error(err)
	}
}
