package sqlite

import (
	"errors"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
)

// fault is an error as SQLite gives it.
type fault int

func (f fault) Error() string { return "injected fault" }
func (f fault) Code() int     { return int(f) }

func TestErrorOfCommitIsForAllOfTheGroupAndUnknownOnlyWhereItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fault   commitFault
		unknown bool
		trouble bool
		reopens int32
	}{
		{"disk full", commitFault{err: fault(sqlite3.SQLITE_FULL)}, false, true, 0},
		{"busy", commitFault{err: fault(sqlite3.SQLITE_BUSY)}, false, true, 0},
		{"write failed", commitFault{err: fault(sqlite3.SQLITE_IOERR_WRITE)}, true, false, 1},
		{"sync failed, and yet it is there", commitFault{err: fault(sqlite3.SQLITE_IOERR_FSYNC), done: true}, true, false, 1},
		{"no error of SQLite", commitFault{err: errors.New("odd")}, true, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, d := setupSeen(t)
			tx, db := b.visit(t.Context())
			b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
			first, refused := b.commit(emit("o-1", 0)), b.commit(emit("o-1", 0))
			opened := d.opened.Load()
			d.next.Store(&c.fault)
			_, err := tx.Commit(t.Context(), eventstore.Changes{})
			for name, err := range map[string]error{"with SQL": err, "data": <-first, "refused": <-refused} {
				if errors.Is(err, eventstore.ErrUnknownCommit) != c.unknown || errors.Is(err, eventstore.ErrTrouble) != c.trouble || !errors.Is(err, c.fault.err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			there := 0
			if c.fault.done {
				there = 1
			}
			if b.shipments() != there || int(b.tail()) != there {
				t.Errorf("%d shipments, tail %d, want %d of each", b.shipments(), b.tail(), there)
			}
			// Whatever it was, work goes on, and on sequences as they are.
			b.must(<-b.commit(emit("o-1", uint64(there))))
			if tail := b.tail(); int(tail) != there+1 {
				t.Errorf("tail is %d after the next commit", tail)
			}
			if n := d.opened.Load() - opened; n != c.reopens {
				t.Errorf("connection was opened %d more times, want %d", n, c.reopens)
			}
		})
	}
}
