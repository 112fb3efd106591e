package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// mark puts a second lock on the owner's file, beside that of flock, of a kind that can be asked for without being taken. Like the first, it
// belongs to the open file and goes with it.
func mark(f *os.File) error { return setMark(f, unix.F_WRLCK) }

func unmark(f *os.File) error { return setMark(f, unix.F_UNLCK) }

func setMark(f *os.File, kind int16) error {
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Whence: int16(io.SeekStart)})
		if !errors.Is(err, unix.EINTR) {
			return pathError("lock", f, err)
		}
	}
}

// isMarked reports whether a process has the mark on the file, now.
func isMarked(f *os.File, _ int) (bool, error) {
	wanted := unix.Flock_t{Type: unix.F_WRLCK, Whence: int16(io.SeekStart)}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &wanted); err != nil {
		return false, pathError("ask for the lock of", f, err)
	}
	return wanted.Type != unix.F_UNLCK, nil
}

func pathError(op string, f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, f.Name(), err)
}
