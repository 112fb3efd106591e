package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
)

// aliases are other ways to a database at path, which may not be there yet.
func aliases(t *testing.T, path string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	names := map[string]string{"link": filepath.Join(dir, "link.db"), "link to a link": filepath.Join(dir, "second.db"), "relative link": path + ".link"}
	for link, target := range map[string]string{names["link"]: path, names["link to a link"]: names["link"], names["relative link"]: filepath.Base(path)} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func refuseSecondOwner(t *testing.T, name, path string) {
	t.Helper()
	s := Open(path)
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); !errors.Is(err, eventstore.ErrOwned) {
		t.Errorf("%s: a second owner starts: %v", name, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("%s: stop: %v", name, err)
	}
}

func TestStoreHasOneOwnerByWhateverNameItIsOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	names := aliases(t, path)
	for first, name := range names { // the first time, a link to nothing
		s := Open(name)
		if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		refuseSecondOwner(t, first+", then path", path)
		for second, name := range names {
			refuseSecondOwner(t, first+", then "+second, name)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The owner is in turn this process and another one.
func TestHardLinkAndDeletedLockFileLetNoSecondOwnerIn(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(t *testing.T, path string){
		"this process": func(t *testing.T, path string) {
			s := Open(path)
			if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		},
		"another process": func(t *testing.T, path string) { startChild(t, "hold", path).line(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store.db")
			own(t, path)
			other := filepath.Join(t.TempDir(), "hard.db")
			if err := os.Link(path, other); err != nil {
				t.Fatal(err)
			}
			refuseSecondOwner(t, "hard link", other)
			if err := os.Remove(path + ".lock"); err != nil {
				t.Fatal(err)
			}
			refuseSecondOwner(t, "deleted lock file", path)
			refuseSecondOwner(t, "once more", path)
		})
	}
}

// A second store that is refused must not take the first one's locks of SQLite away, on which other programs rely.
func TestRefusedOwnerLeavesTheLocksOfTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := filepath.Join(t.TempDir(), "hard.db")
	b.must(os.Link(b.path, other))
	before := locksOn(t, b.path)
	refuseSecondOwner(t, "hard link", other)
	if after := locksOn(t, b.path); before == 0 || after != before {
		t.Errorf("%d locks on the file, %d before", after, before)
	}
}

// locksOn counts the locks of fcntl that this process has on a file.
func locksOn(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(all)) {
		// 1: POSIX  ADVISORY  READ 4711 08:02:131090 1073741826 1073742335
		f := strings.Fields(line)
		if len(f) > 5 && f[1] == "POSIX" && f[4] == strconv.Itoa(os.Getpid()) && strings.HasSuffix(f[5], fmt.Sprintf(":%d", info.Sys().(*syscall.Stat_t).Ino)) {
			n++
		}
	}
	return n
}

// SQLite's locks on a file go when this process closes any descriptor of it. An operator who lost them would write into a log that the next
// owner deletes.
func TestOperatorKeepsItsLocksWhenAStoreOfItsProcessEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register([]string{"shipping", "order"})
	b.mustCommit(publish("e-1"))
	a := attach(t, b.path)
	if _, err := a.Overview(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !hasLock(t, b.path) {
		t.Fatal("no lock is seen")
	}
	b.stop()
	if !hasLock(t, b.path) {
		t.Error("the operator's lock went with the store")
	}
	next := startChild(t, "hold", b.path)
	next.line(t)
	if err := next.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next.Wait(); err != nil {
		t.Fatal(err)
	}
	done, err := a.Act(t.Context(), pausing(shipping))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if last, err := attach(t, b.path).LastAct(t.Context()); err != nil || last != done.ID {
		t.Errorf("the last act is %d, %v, want %d: it is lost", last, err, done.ID)
	}
	claims.Lock()
	defer claims.Unlock()
	for _, f := range claims.left {
		if f.Name() == b.path {
			t.Errorf("%s is still open", f.Name())
		}
	}
}

// hasLock reports whether this process has a lock of SQLite's kind on a file.
func hasLock(t *testing.T, path string) bool {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "POSIX") && strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) && strings.Contains(line, file) {
			return true
		}
	}
	return false
}
