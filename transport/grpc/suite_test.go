package grpc_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
	"github.com/keyhold/keyhold/transport/peertest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestSuite(t *testing.T) {
	t.Parallel()
	peertest.Run(t, func(*testing.T) peertest.Open {
		return func(_ *testing.T, l peertest.Limits) transport.Peers {
			return grpc.New(grpc.Config{MaxMessage: l.MaxMessage, MaxInside: l.MaxInside, Logger: quiet})
		}
	})
}

func TestSuiteOverTLS(t *testing.T) {
	t.Parallel()
	peertest.Run(t, func(t *testing.T) peertest.Open {
		files := newAuthority(t).issue(t, certificate{})
		return func(_ *testing.T, l peertest.Limits) transport.Peers {
			return grpc.New(grpc.Config{TLS: files, MaxMessage: l.MaxMessage, MaxInside: l.MaxInside, Logger: quiet})
		}
	})
}

// nodeOfShop starts and stops as anything else does.
type nodeOfShop struct{ *grpc.Peers }

func (n nodeOfShop) Start(ctx context.Context) error {
	return n.Peers.Start(ctx, transport.PeerIdentity{Application: "shop"}, echo{})
}

func TestStartsAndStopsOfManyAtOnce(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress(t, nodeOfShop{grpc.New(grpc.Config{Logger: quiet})})
}
