package sqlite

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

const (
	// checkpointPages is the length of the write-ahead log, in pages of 4 KiB, from which a commit also moves it into the
	// database.
	checkpointPages = 4000
	// logLimit is the size, in bytes, above which the log is cut. It gets there when readers overlap all the time, so that it
	// is never free to begin again.
	logLimit = 64 << 20
	// logPatience is how long the writer waits for readers when it cuts the log.
	logPatience = 50 * time.Millisecond
	// logPause is the time between two attempts.
	logPause = 5 * time.Second
)

// logWatch keeps the write-ahead log short. Only a reader that stays can prevent it.
type logWatch struct {
	path  string
	limit int64
	pause time.Duration
	next  time.Time // not before that
}

// watchLog cuts the log when it is too long, and reports it when it cannot.
func (w *writer) watchLog() {
	info, err := os.Stat(w.log.path)
	if err != nil || info.Size() <= w.log.limit || time.Now().Before(w.log.next) {
		return
	}
	w.log.next = time.Now().Add(w.log.pause)
	if err := w.cutLog(); err != nil {
		w.notice(eventstore.Notice{What: "write-ahead log grows", Who: w.log.path,
			Error: fmt.Errorf("%d MiB, and cannot be cut while a reader keeps a transaction or rows open: end it: %w", info.Size()>>20, err)})
	}
}

func (w *writer) cutLog() error {
	if _, err := w.get(fmt.Sprintf("PRAGMA busy_timeout = %d", logPatience.Milliseconds()), nil, new(int)); err != nil {
		return err
	}
	var busy bool
	var frames, moved int
	_, err := w.get("PRAGMA wal_checkpoint(TRUNCATE)", nil, &busy, &frames, &moved)
	if err == nil && busy {
		err = errors.New("a reader is in the way")
	}
	_, undo := w.get("PRAGMA busy_timeout = 5000", nil, new(int))
	return errors.Join(err, undo)
}
