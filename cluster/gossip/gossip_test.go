package gossip_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/cluster/gossip/internal/simnet"
	"github.com/keyhold/keyhold/cluster/gossiptest"
	"github.com/keyhold/keyhold/transport"
)

// seedOf gives the seed of a test, which it prints: the network's chances come from it.
func seedOf(t *testing.T) uint64 {
	seed := uint64(os.Getpid())
	if text := os.Getenv("KEYHOLD_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("KEYHOLD_SEED=%d", seed)
	return seed
}

// address is that of the n-th node.
func address(n int) string { return fmt.Sprintf("10.0.%d.%d:7946", n/250, n%250+1) }

// make makes the gossip of the n-th node.
func build(t *testing.T, network *simnet.Net, n int, cfg gossip.Config) *gossip.Gossip {
	t.Helper()
	cfg.Bind, cfg.Insecure = address(n), true
	return gossip.New(gossip.On(cfg, func(bind netip.AddrPort) (memberlist.NodeAwareTransport, error) { return network.Listen(bind) }))
}

func testSuite(t *testing.T, preset gossip.Preset, faults simnet.Faults, soon, late time.Duration) {
	gossiptest.Run(t, func(t *testing.T) gossiptest.World {
		network := simnet.New(seedOf(t))
		network.Set(faults)
		n := 0
		return gossiptest.World{
			Node: func() transport.Gossip {
				n++
				return build(t, network, n, gossip.Config{Preset: preset, Logger: slog.New(slog.DiscardHandler)})
			},
			Vanish: func(g transport.Gossip) {
				at := g.Address()
				network.Freeze(at, true)
			},
			Soon: soon, Late: late,
		}
	})
}

func TestGossipKeepsThePromisesOfThePort(t *testing.T) {
	usual := simnet.Faults{Delay: time.Millisecond, Jitter: 3 * time.Millisecond}
	t.Run("LAN", func(t *testing.T) { testSuite(t, gossip.LAN, usual, 5*time.Second, time.Minute) })
	t.Run("WAN", func(t *testing.T) {
		testSuite(t, gossip.WAN, simnet.Faults{Delay: 80 * time.Millisecond, Jitter: 40 * time.Millisecond}, 15*time.Second, 5*time.Minute)
	})
	t.Run("Local", func(t *testing.T) { testSuite(t, gossip.Local, usual, 5*time.Second, time.Minute) })
	t.Run("TCPOnly", func(t *testing.T) {
		testSuite(t, gossip.TCPOnly, simnet.Faults{NoPackets: true}, 20*time.Second, 2*time.Minute)
	})
}

func TestTheGossipInMemoryKeepsThem(t *testing.T) {
	gossiptest.Run(t, func(*testing.T) gossiptest.World {
		network := &gossiptest.Net{}
		return gossiptest.World{
			Node:   func() transport.Gossip { return network.Node() },
			Vanish: func(g transport.Gossip) { g.(*gossiptest.Node).Vanish() },
			Soon:   time.Second, Late: time.Second,
		}
	})
}
