package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// BenchmarkCounts compares groups of units of work that keep the counts with groups that do not, one after the other in one run, each an
// event of an entity and a checkpoint. It reports the ratio of the medians.
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
				began := time.Now()
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
				return time.Since(began)
			}
			var with, without []time.Duration
			for b.Loop() {
				with, without = append(with, group(true)), append(without, group(false))
			}
			slices.Sort(with)
			slices.Sort(without)
			b.ReportMetric(float64(with[len(with)/2])/float64(without[len(without)/2]), "ratio")
			b.ReportMetric(float64(without[len(without)/2].Microseconds())/float64(size), "us/unit")
		})
	}
}
