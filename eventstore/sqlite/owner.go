package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// errLocked: another open file has the lock.
var errLocked = errors.New("locked")

// ownerPoll is the distance between two looks at a lock that somebody else has.
const ownerPoll = 100 * time.Millisecond

// owner is the right to write a database: a lock of the operating system on a file beside it, free the instant its holder
// dies and kept while the holder is frozen. The file tells who the holder is. It is never deleted, since a lock on a
// file that has no name any more would keep nobody out.
//
// Where the system can, the database itself is locked as well (see claim), for those who come by a hard link or after somebody
// deleted the lock file all the same.
type owner struct {
	file  *os.File
	claim claim
}

// own takes the ownership of the database at path, for the process of that node. When somebody has it already, it gives
// [*eventstore.OwnedError], or waits until ctx is done. SQLite must not have the database open in this process, and
// must have closed it before release.
func own(ctx context.Context, path string, opts eventstore.StartOptions) (*owner, error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("own store %s: %w", path, err)
	}
	o := &owner{file: file}
	if err := o.wait(ctx, path, opts, func() error { return lock(file) }); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := o.wait(ctx, path, opts, func() error { return o.claim.take(path) }); err != nil {
		return nil, errors.Join(err, o.release())
	}
	if err := mark(file); err != nil {
		return nil, errors.Join(fmt.Errorf("own store %s: %w", path, err), o.release())
	}
	if err := o.sign(opts.Node); err != nil {
		return nil, errors.Join(fmt.Errorf("own store %s: %w", path, err), o.release())
	}
	return o, nil
}

// wait tries to lock, until it is done where opts say so.
func (o *owner) wait(ctx context.Context, path string, opts eventstore.StartOptions, try func() error) error {
	err := try()
	if !errors.Is(err, errLocked) {
		return err
	}
	owned := o.holder(path)
	if !opts.Wait {
		return owned
	}
	if opts.Observe != nil {
		opts.Observe(eventstore.Notice{What: "waiting for owner", Who: owned.Node, Error: owned})
	}
	ticker := time.NewTicker(ownerPoll)
	defer ticker.Stop()
	for errors.Is(err, errLocked) {
		select {
		case <-ticker.C:
			err = try()
		case <-ctx.Done():
			return fmt.Errorf("wait for owner: %w: %w", context.Cause(ctx), owned)
		}
	}
	return err
}

// sign writes who the owner is.
func (o *owner) sign(node string) error {
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	_, err := o.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+" "+node+"\n"), 0)
	return err
}

// holder reads who the owner is, as far as the file tells.
func (o *owner) holder(path string) *eventstore.OwnedError {
	who := signature(o.file)
	return &eventstore.OwnedError{Path: path, PID: who.PID, Node: who.Node}
}

// signature reads what sign wrote, as far as it can be made out.
func signature(file *os.File) (who eventstore.Owner) {
	const most = 1024
	text, err := io.ReadAll(io.NewSectionReader(file, 0, most))
	if err != nil {
		return who
	}
	pid, node, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	if who.PID, err = strconv.Atoi(pid); err == nil {
		who.Node = node
	}
	return who
}

// holderOf tells who owns the database at path, nil when nobody does. It takes no lock, not for a moment either: a process that
// starts must not find one that is none of an owner.
func holderOf(path string) (*eventstore.Owner, error) {
	file, err := os.Open(path + ".lock")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the owner of store %s: %w", path, err)
	}
	defer file.Close()
	who := signature(file)
	marked, err := isMarked(file, who.PID)
	if err != nil || !marked {
		return nil, err
	}
	return &who, nil
}

// release gives the ownership up.
func (o *owner) release() error {
	return errors.Join(o.claim.release(), o.file.Truncate(0), unmark(o.file), unlock(o.file), o.file.Close())
}
