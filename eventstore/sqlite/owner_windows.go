package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// region is what is locked: one byte far behind the text, which others must be able to read.
func region() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1} }

// lock tries once. The lock belongs to the open file, so a second one in the same process is refused as well.
func lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, region())
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return errLocked
	case err != nil:
		return &os.PathError{Op: "LockFileEx", Path: f.Name(), Err: err}
	}
	return nil
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, region())
}
