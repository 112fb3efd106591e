package sqlite

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// mark and unmark have nothing to do: the owner's file tells its process, and takes that back when it gives the store up.
func mark(*os.File) error   { return nil }
func unmark(*os.File) error { return nil }

// isMarked reports whether the process that signed the file runs. No lock can be asked for here without taking it.
func isMarked(f *os.File, pid int) (bool, error) {
	if pid <= 0 {
		return false, nil
	}
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	switch {
	case errors.Is(err, windows.ERROR_INVALID_PARAMETER):
		return false, nil // no such process
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return true, nil // somebody else's
	case err != nil:
		return false, fmt.Errorf("ask for the owner of %s: %w", f.Name(), err)
	}
	defer windows.CloseHandle(process)
	state, err := windows.WaitForSingleObject(process, 0)
	if err != nil {
		return false, fmt.Errorf("ask for the owner of %s: %w", f.Name(), err)
	}
	return state == uint32(windows.WAIT_TIMEOUT), nil
}
