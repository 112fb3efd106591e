package sqlite

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyhold/keyhold/eventstore"
)

// BenchmarkCounts compares groups of units of work that keep the counts with groups that do not, one after the other in one run, each an
// event of an entity and a checkpoint. It reports the ratio of the processor time that they take, of which others on the machine take nothing.
func BenchmarkCounts(b *testing.B) {
	for _, size := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("%d in a group", size), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "store.db")
			w, err := New(Config{Path: path}).openWriter(b.Context(), path, eventstore.StartOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer w.close()
			n := 0
			group := func(counted bool) time.Duration {
				began := used(b)
				err := w.begin()
				for range size {
					c := emit(fmt.Sprint("o-", n), 0)
					c.Fence, c.Advance = passing(shipping, 0, 1).Fence, passing(shipping, 0, 1).Advance
					c.Advance[0].Lane.Key = fmt.Sprint("k-", n)
					n++
					if err == nil {
						_, err = w.apply(&c)
					}
					w.counts.keep()
				}
				if !counted {
					w.counts.forget()
				}
				if err == nil {
					err = w.writeCounts()
				}
				if err == nil {
					err = w.commit()
				}
				if err != nil {
					b.Fatal(err)
				}
				return used(b) - began
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var spent [2]time.Duration
			rounds := 0
			for b.Loop() {
				spent[rounds%2] += group(rounds%2 == 1)
				rounds++
			}
			counted, plain := float64(spent[1])/float64(rounds/2), float64(spent[0])/float64(rounds-rounds/2)
			b.ReportMetric(counted/plain, "ratio")
			b.ReportMetric(plain/1000/float64(size), "us/unit")
		})
	}
}

// used is the processor time of this thread.
func used(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
