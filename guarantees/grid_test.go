package guarantees

import (
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/internal/netns"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// The networks between hosts. Each carries one thing, so that one thing can be cut. What the test itself asks, and the marks, go by Unix sockets, which
// no network carries.
const gossipNet, peersNet, redisNet, postgresNet = "gossip", "peers", "redis", "postgres"

// grid is what fleets share whose nodes are on hosts of their own.
type grid struct {
	networks *netns.Networks
	postgres *postgresserver.Server
}

// openGrid gives no grid, and why, where this system has no hosts to give.
func openGrid(t *testing.T) (_ *grid, why error) {
	t.Helper()
	networks, err := netns.Open(gossipNet, peersNet, redisNet, postgresNet)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { networks.Close() })
	g := &grid{networks: networks}
	err = networks.Within(func() (err error) {
		g.postgres, err = postgresserver.Start(t.Context(), postgresserver.Options{
			Listen: networks.Addr(postgresNet).String(), Config: []string{"max_connections=500"},
		})
		return err
	})
	if errors.Is(err, postgresserver.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.postgres.Stop() })
	return g, nil
}

func (g *grid) newRedis(t *testing.T, o redisserver.Options) (s *redisserver.Server) {
	t.Helper()
	o.Listen = g.networks.Addr(redisNet).String()
	err := g.networks.Within(func() (err error) {
		s, err = redisserver.Start(t.Context(), o)
		return err
	})
	if err != nil { // there is one: the marks are in it
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

// at is where hosts reach a server of the centre, whose own address is known.
func (g *grid) at(network, own string) string {
	_, port, err := net.SplitHostPort(own)
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort(g.networks.Addr(network).String(), port)
}

// host is that of a node, which keeps it when it starts again.
func (f *fleet) host(name string) *netns.Host {
	f.t.Helper()
	if f.hosts[name] == nil {
		h, err := f.settings.grid.networks.Host()
		if err != nil {
			f.t.Fatal(err)
		}
		f.hosts[name] = h
	}
	return f.hosts[name]
}

// cut has networks carry nothing from and to the hosts of nodes; heal has them carry again.
func (f *fleet) cut(networks []string, nodes ...string) {
	f.t.Helper()
	for _, name := range nodes {
		if err := f.hosts[name].Cut(networks...); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) mend(networks []string, nodes ...string) {
	f.t.Helper()
	for _, name := range nodes {
		if err := f.hosts[name].Heal(networks...); err != nil {
			f.t.Fatal(err)
		}
	}
}

func databaseOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// onNetwork is the URL of a database as it is elsewhere.
func onNetwork(address, at string) string { return postgresserver.URL(at, databaseOf(address)) }
