package grpc_test

import (
	"testing"

	"github.com/keyhold/keyhold/transport/grpc"
)

// One ask over loopback, as it is and with TLS: time is its latency, or with many callers at once what they get in sum.
func BenchmarkAsk(b *testing.B) {
	for name, files := range map[string]*grpc.TLS{"plain": nil, "tls": newAuthority(b).issue(b, certificate{})} {
		to, from := start(b, grpc.Config{TLS: files}, echo{}), start(b, grpc.Config{TLS: files}, nil)
		ctx, address := b.Context(), to.Address()
		b.Run(name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := from.Ask(ctx, address, question()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/many", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := from.Ask(ctx, address, question()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
