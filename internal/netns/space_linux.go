package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// space is a network namespace, held by an open file.
type space struct {
	mu struct {
		sync.RWMutex
		file *os.File // nil when closed
	}
}

// newSpace makes a namespace in which nothing is up.
func newSpace() (*space, error) {
	for _, program := range []string{"ip", "bridge"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrMissing
		}
	}
	s := &space{}
	err := away(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("%w: unshare: %w (it takes root)", ErrRefused, err)
		}
		var err error
		s.mu.file, err = os.Open(current)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// current is the namespace of the calling thread.
const current = "/proc/thread-self/ns/net"

// away runs f on a thread whose namespace f may change, and goes back.
func away(f func() error) (err error) {
	runtime.LockOSThread() // f is the whole life of a thread that cannot go back
	home, err := os.Open(current)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	defer func() {
		back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
		home.Close()
		if back != nil {
			panic(fmt.Sprint("netns: this thread cannot go back to where it came from: ", back))
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// path names the namespace for as long as it is open.
func (s *space) path() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.mu.file.Fd())
}

func (s *space) within(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.file == nil {
		return errors.New("netns: the namespace is closed")
	}
	return away(func() error {
		if err := unix.Setns(int(s.mu.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: enter a namespace: %w", err)
		}
		return f()
	})
}

// have has ip or bridge do so much, in the namespace.
func (s *space) have(program string, lines ...string) error {
	return s.within(func() error {
		c := exec.Command(program, "-batch", "-")
		c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		said, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(said))
		}
		return nil
	})
}

func (s *space) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.file == nil {
		return nil
	}
	err := s.mu.file.Close()
	s.mu.file = nil
	return err
}
