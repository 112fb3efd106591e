package gossip_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/cluster/gossip/internal/simnet"
	"github.com/keyhold/keyhold/transport"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// add starts a node with keys and a log, of a store.
func (c *crowd) add(store string, log *said, keys ...[]byte) *node {
	c.Helper()
	n := len(c.nodes) + 1
	x := &node{id: "id-" + string(rune('a'+n)), at: address(n)}
	x.Gossip = build(c.T, c.net, n, gossip.Config{Seeds: []string{address(1)}, Keys: keys, Logger: log.logger()})
	if err := x.Start(c.Context(), transport.Member{ID: x.id, Node: x.id, StoreID: store}, nil, func() {}); err != nil {
		c.Fatal(err)
	}
	c.nodes = append(c.nodes, x)
	return x
}

func bubble(t *testing.T, run func(c *crowd)) {
	seed := seedOf(t)
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, net: simnet.New(seed)}
		run(c)
		for _, x := range c.nodes {
			c.end(x)
		}
		c.pass(time.Minute)
	})
}

func TestAWrongKeyIsNamed(t *testing.T) {
	for name, keys := range map[string][][]byte{"another": {key(2)}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *crowd) {
				first, second := &said{}, &said{}
				a := c.add("store", first, key(1))
				b := c.add("store", second, keys...)
				c.pass(30 * time.Second)
				if len(alive(a)) != 0 || len(alive(b)) != 0 {
					t.Error("they hear one another")
				}
				if !second.has("level=WARN", "Keys: give them the same", a.at) && !second.has("level=WARN", "give them the same", a.at) {
					t.Errorf("the one with the wrong key says:\n%s", second)
				}
				if !first.has("level=WARN", "give them the same") {
					t.Errorf("the other one says:\n%s", first)
				}
				for whose, log := range map[string]string{"first": first.String(), "second": second.String()} {
					if n := strings.Count(log, "level=WARN"); n != 1 {
						t.Errorf("the %s has %d warnings in half a minute:\n%s", whose, n, log)
					}
				}
				if keys == nil && !(first.has("this one has Keys, and the other one has none") && second.has("the other one has Keys, and this one has none")) {
					t.Errorf("who has no keys is not told:\n%s\n%s", first, second)
				}
			})
		})
	}
}

func TestWithoutALoggerItLogsToTheOneThatItIsGiven(t *testing.T) {
	bubble(t, func(c *crowd) {
		given, own, late := &said{}, &said{}, &said{}
		for n, cfg := range []gossip.Config{{Keys: [][]byte{key(1)}}, {Keys: [][]byte{key(2)}, Logger: own.logger()}} {
			x := &node{id: "id-" + string(rune('a'+n)), at: address(n + 1)}
			cfg.Seeds = []string{address(1)}
			x.Gossip = build(t, c.net, n+1, cfg)
			x.LogTo(given.logger())
			if err := x.Start(t.Context(), transport.Member{ID: x.id, StoreID: "store"}, nil, func() {}); err != nil {
				t.Fatal(err)
			}
			x.LogTo(late.logger())
			c.nodes = append(c.nodes, x)
		}
		c.pass(30 * time.Second)
		if !given.has("level=WARN", "give them the same") {
			t.Errorf("the logger given says:\n%s", given)
		}
		if given.has("address="+c.nodes[0].at) || !own.has("level=WARN", "give them the same") {
			t.Errorf("the logger of the other's own says:\n%s", own)
		}
		if late.String() != "" {
			t.Errorf("while it runs another logger says:\n%s", late)
		}
	})
}

func TestKeysAreChangedWhileNodesRun(t *testing.T) {
	bubble(t, func(c *crowd) {
		log := &said{}
		for range 3 {
			c.add("store", log, key(1))
		}
		c.pass(20 * time.Second)
		for _, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
			for _, x := range c.nodes {
				if err := x.SetKeys(keys); err != nil {
					t.Fatal(err)
				}
				c.pass(10 * time.Second)
				c.whole(c.nodes...)
			}
		}
		if log.has("WARN") {
			t.Errorf("it says:\n%s", log)
		}
		late := c.add("store", log, key(1))
		c.pass(20 * time.Second)
		if len(alive(late)) != 0 {
			t.Error("the old key still opens")
		}
		if err := late.SetKeys([][]byte{key(2)}); err != nil {
			t.Fatal(err)
		}
		c.pass(30 * time.Second)
		c.whole(c.nodes...)
	})
}

func TestAnotherApplicationIsRefusedAloud(t *testing.T) {
	bubble(t, func(c *crowd) {
		first, second := &said{}, &said{}
		c.add("store", first)
		c.add("elsewhere", second)
		c.pass(30 * time.Second)
		for _, log := range []*said{first, second} {
			if !log.has("refuses to become one list", "elsewhere", "store") {
				t.Errorf("it says:\n%s", log)
			}
		}
	})
}

func TestACopyOfANodeIsNamed(t *testing.T) {
	bubble(t, func(c *crowd) {
		log := &said{}
		a := c.add("store", log)
		b := c.add("store", log)
		c.pass(10 * time.Second)
		copied := build(t, c.net, 7, gossip.Config{Seeds: []string{a.at}})
		if err := copied.Start(t.Context(), transport.Member{ID: b.id, StoreID: "store"}, nil, func() {}); err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)
		if !log.has("two nodes that go by one id", b.at, address(7)) {
			t.Errorf("it says:\n%s", log)
		}
		if err := copied.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestBlockedUDPIsNamed(t *testing.T) {
	bubble(t, func(c *crowd) {
		log := &said{}
		c.add("store", log)
		c.add("store", log)
		c.net.Set(simnet.Faults{NoPackets: true})
		c.pass(time.Minute)
		if !log.has("not over UDP", "TCPOnly") {
			t.Errorf("it says:\n%s", log)
		}
		c.whole(c.nodes...)
	})
}
