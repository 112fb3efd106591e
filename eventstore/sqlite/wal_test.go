package sqlite

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

func (b *bundle) logSize() int64 {
	b.Helper()
	info, err := os.Stat(b.path + "-wal")
	b.must(err)
	return info.Size()
}

// write commits units of work with that many bytes in all.
func (b *bundle) write(bytes int) {
	b.Helper()
	const each = 64 << 10
	c := publish("big")
	c.Publish[0].Data = make([]byte, each)
	for range bytes / each {
		_, err := b.store.Begin("big").Commit(b.Context(), c)
		b.must(err)
	}
}

func setupSmallLog(t *testing.T, limit int64) *bundle {
	t.Helper()
	return setup(t, func(s *Store) {
		tune := s.tune
		s.tune = func(w *writer) {
			tune(w)
			w.log.limit = limit
			w.log.pause = 0
		}
	})
}

func TestWriteAheadLogOfABusyStoreStaysShort(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	b := setupSmallLog(t, limit)
	for range 20 {
		b.write(limit / 4)
		if size := b.logSize(); size > 2*limit {
			t.Fatalf("the log has %d bytes", size)
		}
	}
}

func TestWriteAheadLogThatAReaderKeepsIsReportedAndCutAfterwards(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	b := setupSmallLog(t, limit)
	conn, err := b.store.Reader().Conn(t.Context())
	b.must(err)
	tx, err := conn.BeginTx(t.Context(), nil)
	b.must(err)
	var n int
	b.must(tx.QueryRowContext(t.Context(), `SELECT count(*) FROM keyhold_log`).Scan(&n))
	b.write(2 * limit)
	notice := b.notices.WaitFor(t, func(n eventstore.Notice) bool { return n.What == "write-ahead log grows" })
	if notice.Error == nil || !strings.Contains(notice.Error.Error(), "end it") || !strings.HasSuffix(notice.Who, "-wal") {
		t.Errorf("notice: %+v", notice)
	}
	if size := b.logSize(); size < limit {
		t.Errorf("the log has %d bytes although a reader needs it", size)
	}
	b.must(tx.Rollback())
	b.must(conn.Close())
	b.write(128 << 10) // two commits: the log is cut behind the first
	if size := b.logSize(); size > limit {
		t.Errorf("the log has %d bytes after the reader has gone", size)
	}
}

func TestCuttingTheLogLeavesTheWaitForOtherProgramsAsItWas(t *testing.T) {
	t.Parallel()
	b := setupSmallLog(t, 1)
	b.must(<-b.commit(publish("e-1")))
	var timeout time.Duration
	err := b.store.change(t.Context(), "test", func(c *connection) error {
		_, err := c.get(`PRAGMA busy_timeout`, nil, &timeout)
		return err
	})
	b.must(err)
	if timeout != 5000 {
		t.Errorf("busy_timeout is %d", timeout)
	}
}
