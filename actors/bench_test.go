package actors_test

import (
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold/actors"
)

// silent takes the recorder away: it keeps everything it is told.
func silent(c *actors.Config) { c.Observer = actors.Observer{} }

func BenchmarkAskOneEntityFrom64Callers(b *testing.B) {
	rt := setup(b, []actors.Definition{accounts()}, silent)
	b.SetParallelism(32) // times GOMAXPROCS
	b.ReportAllocs()
	b.ResetTimer()
	var failed atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := actors.Ask[*Total](b.Context(), rt, actors.Ref{Kind: "account", ID: "a"}, &Deposit{Client: "c", Amount: 1}); err != nil {
				failed.Add(1)
			}
		}
	})
	if failed.Load() > 0 {
		b.Errorf("%d asks failed", failed.Load())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}
