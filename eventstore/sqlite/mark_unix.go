//go:build unix && !linux

package sqlite

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mark and unmark have nothing to do: here the lock that the owner has is of one kind with those that can be asked for.
func mark(*os.File) error   { return nil }
func unmark(*os.File) error { return nil }

// isMarked reports whether a process has a lock on the file, now.
func isMarked(f *os.File, _ int) (bool, error) {
	wanted := unix.Flock_t{Type: unix.F_WRLCK, Whence: int16(os.SEEK_SET)}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &wanted); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", f.Name(), err)
	}
	return wanted.Type != unix.F_UNLCK, nil
}
