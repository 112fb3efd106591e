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

// claims are the databases that the stores of this process have open, or are about to.
var claims struct {
	sync.Mutex
	taken []os.FileInfo
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
	return errors.Join(err, unlock(c.file), c.file.Close())
}
