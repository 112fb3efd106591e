package sqlite

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// claim is a lock on the database file itself, whatever it is called. It is of the kind of flock, which on Linux has nothing
// to do with the locks that SQLite takes on the same file; elsewhere the two get in each other's way.
//
// SQLite's locks have a trap: a process loses those that it has on a file when it closes any descriptor of that file. So the file is
// opened only where no other store of this process has it, which is what claims tells, and it is closed when SQLite has.
type claim struct{ file *os.File }

// claims are the databases that the stores of this process have open, or are about to, and those that operators have attached to. A
// store that ends before an operator leaves the file to them to close.
var claims struct {
	sync.Mutex
	taken    []os.FileInfo
	attached []os.FileInfo // once for each
	left     []*os.File
}

// attached notes that this process has the database open for an operator, until detach is called after SQLite has closed it.
func attached(info os.FileInfo) (detach func() error) {
	claims.Lock()
	defer claims.Unlock()
	claims.attached = append(claims.attached, info)
	return func() error {
		claims.Lock()
		defer claims.Unlock()
		at := slices.IndexFunc(claims.attached, func(t os.FileInfo) bool { return os.SameFile(t, info) })
		claims.attached = slices.Delete(claims.attached, at, at+1)
		return closeLeft(info)
	}
}

// closeLeft closes what was left of a database that nothing of this process has open any more.
func closeLeft(info os.FileInfo) error {
	same := func(t os.FileInfo) bool { return os.SameFile(t, info) }
	if slices.ContainsFunc(claims.attached, same) || slices.ContainsFunc(claims.taken, same) {
		return nil
	}
	var errs []error
	claims.left = slices.DeleteFunc(claims.left, func(f *os.File) bool {
		left, err := f.Stat()
		if err == nil && !same(left) {
			return false
		}
		errs = append(errs, err, f.Close())
		return true
	})
	return errors.Join(errs...)
}

// take tries once. The file is made where it is not there; SQLite takes an empty one for a new database.
func (c *claim) take(path string) error {
	if c.file == nil {
		if err := c.open(path); err != nil {
			return err
		}
	}
	return lock(c.file)
}

// open opens the file, unless another store of this process has it: then errLocked.
func (c *claim) open(path string) error {
	claims.Lock()
	defer claims.Unlock()
	if info, err := os.Stat(path); err == nil && isClaimed(info) {
		return errLocked
	}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("store %s cannot be opened: check the rights on the file and its directory: %w", path, err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	c.file, claims.taken = file, append(claims.taken, info)
	return nil
}

func isClaimed(info os.FileInfo) bool {
	return slices.ContainsFunc(claims.taken, func(t os.FileInfo) bool { return os.SameFile(t, info) })
}

// release gives the claim up, if there is one.
func (c *claim) release() error {
	if c.file == nil {
		return nil
	}
	claims.Lock()
	defer claims.Unlock()
	info, err := c.file.Stat()
	if err == nil {
		claims.taken = slices.DeleteFunc(claims.taken, func(t os.FileInfo) bool { return os.SameFile(t, info) })
	}
	// Not by Close alone: a process that is being forked has the descriptor for a moment, too.
	unlocked := unlock(c.file)
	if err != nil {
		return errors.Join(err, unlocked, c.file.Close())
	}
	claims.left = append(claims.left, c.file)
	return errors.Join(unlocked, closeLeft(info))
}
