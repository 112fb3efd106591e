package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// The test binary runs itself as another process where a test needs one that can be killed.
const (
	childDoes = "KEYHOLD_TEST_CHILD"
	childPath = "KEYHOLD_TEST_PATH"
)

// runChild does what this process was started for as a child, and reports whether it was.
func runChild() bool {
	does := map[string]func(path string) error{"hold": holdStore, "commit": commitForEver, "fail": failToOpen, "full": commitOnFullDisk, "read": readWithoutRights}[os.Getenv(childDoes)]
	if does == nil {
		return false
	}
	if err := does(os.Getenv(childPath)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return true
}

// child is a process that does something with the store at a path.
type child struct {
	*exec.Cmd
	lines *bufio.Scanner
	stdin io.Closer
}

func startChild(t *testing.T, does, path string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.CommandContext(t.Context(), exe)}
	c.Env = append(os.Environ(), childDoes+"="+does, childPath+"="+path)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // where the test did not end it
		_ = c.Wait()
	})
	return c
}

// line is the next line of its output.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child's output ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// holdStore has the store until it is told to end.
func holdStore(path string) error {
	s := Open(path)
	ctx := context.Background()
	if _, err := s.Start(ctx, eventstore.StartOptions{Node: "child"}); err != nil {
		return err
	}
	fmt.Println("started")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Stop(ctx)
}

const childWriters = 6

// commitForEver commits units of work until it is killed, and says which it was told are durable.
func commitForEver(path string) error {
	s := New(Config{Path: path, Setup: createShipments})
	if _, err := s.Start(context.Background(), eventstore.StartOptions{Node: "child"}); err != nil {
		return err
	}
	var group sync.WaitGroup
	for w := range childWriters {
		group.Go(func() {
			for {
				id := event.NewID()
				if err := commitUnit(s, id, w%2 == 0); err != nil {
					fmt.Println("error:", err)
					os.Exit(1)
				}
				fmt.Println(id)
			}
		})
	}
	group.Wait()
	return nil
}

// commitUnit commits one unit of work that must be there whole or not at all: two events, or a row and an event.
func commitUnit(s *Store, id string, withSQL bool) error {
	ctx := context.Background()
	tx := s.Begin(id)
	c := publish(id)
	if withSQL {
		db, err := tx.SQL(ctx)
		if err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO shipments (id) VALUES ($1)`, id); err != nil {
			return err
		}
	} else {
		second := publish(id).Publish[0]
		second.Category = "audit"
		c.Publish = append(c.Publish, second)
	}
	_, err := tx.Commit(ctx, c)
	return err
}

// failToOpen says why a store cannot be started by a user without rights.
func failToOpen(path string) error {
	if err := dropRights(); err != nil {
		return err
	}
	_, err := Open(path).Start(context.Background(), eventstore.StartOptions{Node: "child"})
	return err
}

// readWithoutRights attaches as a user without rights, and says what it can do.
func readWithoutRights(path string) error {
	if err := dropRights(); err != nil {
		return err
	}
	ctx := context.Background()
	a, err := Attach(ctx, path)
	if err != nil {
		return err
	}
	events, _, err := a.ReadAll(ctx, "", nil, 1)
	if err != nil {
		return err
	}
	fmt.Println("read", events[0].ID)
	o, err := a.Overview(ctx)
	if err != nil {
		return err
	}
	if o.Owner == nil && !o.Unclean {
		fmt.Println("owner unknown")
	}
	_, err = a.Act(ctx, pausing(event.Unit{Name: "shipping"}))
	fmt.Println("act:", err)
	return a.Close()
}

// commitOnFullDisk commits while its files may not grow any more, and after that again; it says what became of each.
func commitOnFullDisk(path string) error {
	ctx := context.Background()
	s := New(Config{Path: path, Setup: createShipments})
	if _, err := s.Start(ctx, eventstore.StartOptions{Node: "child"}); err != nil {
		return err
	}
	tell := func(id string, err error) {
		switch {
		case err == nil:
			fmt.Println("done", id)
		case errors.Is(err, eventstore.ErrUnknownCommit):
			fmt.Println("unknown", id)
		case !errors.Is(err, eventstore.ErrTrouble):
			fmt.Println("its own doing:", err)
		default:
			fmt.Println("failed", id)
		}
	}
	for _, limit := range []uint64{unlimited, 512 << 10, unlimited} {
		if err := limitFiles(limit); err != nil {
			return err
		}
		var group sync.WaitGroup
		for w := range childWriters {
			group.Go(func() {
				for range 40 {
					id := event.NewID()
					tell(id, commitUnit(s, id, w%2 == 0))
				}
			})
		}
		group.Wait()
		fmt.Println("phase")
	}
	return s.Stop(ctx)
}

const unlimited = 1 << 40
