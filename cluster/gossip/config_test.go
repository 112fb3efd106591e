package gossip_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/transport"
)

func TestAllFaultsOfAConfigAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	err := gossip.New(gossip.Config{Bind: "0.0.0.0:7946", Preset: 9, Seeds: []string{"here"}, Keys: [][]byte{{1}}}).Start(t.Context(), transport.Member{ID: "a", StoreID: "store"}, nil, nil)
	early := gossip.New(gossip.Config{Seeds: []string{"here"}, KeyFile: "none"}).Check()
	for _, part := range []string{"Seeds[0]", "open none"} {
		if early == nil || !strings.Contains(early.Error(), part) {
			t.Errorf("%q is not in what is told before the start: %v", part, early)
		}
	}
	for _, part := range []string{"Preset 9", "set Advertise", "Seeds[0]", "Keys[0] has 1 bytes"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	for _, c := range []struct {
		name string
		cfg  gossip.Config
		want string
	}{
		{"zero value", gossip.Config{}, ""},
		{"this machine", gossip.Config{Bind: "localhost:0"}, ""},
		{"open to others without keys", gossip.Config{Bind: "10.1.2.3:7946"}, "there are no Keys"},
		{"with keys", gossip.Config{Bind: "10.1.2.3:7946", Keys: [][]byte{key(1)}}, ""},
		{"insecure on purpose", gossip.Config{Bind: "10.1.2.3:7946", Insecure: true}, ""},
		{"all addresses, one of them advertised", gossip.Config{Bind: "0.0.0.0:7946", Advertise: "10.1.2.3", Insecure: true}, ""},
		{"advertised nowhere", gossip.Config{Advertise: "0.0.0.0:7946"}, "no address that others could connect to"},
		{"advertised here", gossip.Config{Bind: "0.0.0.0:7946", Advertise: "127.0.0.1", Insecure: true}, "leads other machines to themselves"},
		{"no port", gossip.Config{Bind: "127.0.0.1:x"}, "is not a number"},
		{"no address", gossip.Config{Bind: ":::"}, "is not an address"},
	} {
		err := gossip.FaultOf(c.cfg)
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// On the real network of this machine: two nodes hear one another, and a port that is taken is named.
func TestOnRealSockets(t *testing.T) {
	t.Parallel()
	news := make(chan struct{}, 100)
	start := func(id string, cfg gossip.Config) (*gossip.Gossip, error) {
		cfg.Preset, cfg.Keys = gossip.Local, [][]byte{key(1)}
		g := gossip.New(cfg)
		err := g.Start(t.Context(), transport.Member{ID: id, Node: id, StoreID: "store", Names: []string{"shipping"}}, nil, func() { news <- struct{}{} })
		if err == nil {
			t.Cleanup(func() {
				if err := g.Stop(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
		return g, err
	}
	a, err := start("a", gossip.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := start("b", gossip.Config{Seeds: []string{strings.Replace(a.Address(), "127.0.0.1", "localhost", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait := func(g *gossip.Gossip, id string, state transport.HeardState) {
		t.Helper()
		for {
			if h := g.Heard(); len(h) == 1 && h[0].Member.ID == id && h[0].State == state {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("hears %+v", g.Heard())
			case <-news:
			}
		}
	}
	wait(a, "b", transport.HeardAlive)
	wait(b, "a", transport.HeardAlive)
	if _, err := start("c", gossip.Config{Bind: a.Address()}); err == nil || !strings.Contains(err.Error(), "another process has it") {
		t.Errorf("on a port that is taken: %v", err)
	}
	if _, err := start("d", gossip.Config{Bind: "192.0.2.1:0"}); err == nil || !strings.Contains(err.Error(), "no address of this machine") {
		t.Errorf("on an address of others: %v", err)
	}
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	wait(a, "b", transport.HeardLeft)
	if conn, err := net.Dial("tcp", a.Address()); err != nil {
		t.Error(err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsSaidOfANodeIsBounded(t *testing.T) {
	t.Parallel()
	m := transport.Member{ID: "a", Node: strings.Repeat("n", 60), StoreID: strings.Repeat("s", 36), Address: "shop-0.shop.default.svc.cluster.local:9000", Version: strings.Repeat("v", 500), Since: time.Now(), PID: 4194304, Weight: 1000}
	for i := range 1000 {
		m.Names = append(m.Names, fmt.Sprintf("%0200d", i))
	}
	if text, err := gossip.Meta(m); err != nil || len(text) > 400 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	m.Node = strings.Repeat("n", 500)
	if _, err := gossip.Meta(m); err == nil || !strings.Contains(err.Error(), "shorten its name") {
		t.Errorf("a node with a name that is too long: %v", err)
	}
}
