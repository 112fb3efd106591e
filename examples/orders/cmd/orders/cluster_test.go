package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// faults starts what a network is made of, and stops it again.
func (n network) faults(t *testing.T) error {
	t.Helper()
	c, err := n.cluster()
	if err != nil {
		return err
	}
	self := transport.Member{ID: "a", StoreID: "s"}
	if err := c.Gossip.Start(t.Context(), self, nil, func() {}); err != nil {
		return err
	}
	defer c.Gossip.Stop(t.Context())
	if err := c.Peers.Start(t.Context(), transport.PeerIdentity{Application: "orders", StoreID: "s"}, struct{ transport.PeerService }{}); err != nil {
		return err
	}
	return c.Peers.Stop(t.Context())
}

func TestNodesOfOneMachineNeedNoWord(t *testing.T) {
	t.Parallel()
	c, err := (&network{}).cluster()
	if err != nil || c.Gossip != nil || c.Peers != nil {
		t.Errorf("%+v %v", c, err)
	}
}

func TestANetworkSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	keys := file("# the newest first\n" + key + "\n\n" + key + "\n")
	for name, c := range map[string]struct {
		network
		says string // "" = it starts
	}{
		"all there is":            {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", keys: keys}, ""},
		"a closed network":        {network{gossip: "0.0.0.0:0", gossipAdvertise: "192.0.2.1", peers: "0.0.0.0:0", peersAdvertise: "192.0.2.1", insecure: true}, ""},
		"gossip alone":            {network{gossip: "127.0.0.1:0"}, "--gossip and --peers go together"},
		"peers alone":             {network{peers: "127.0.0.1:0"}, "--gossip and --peers go together"},
		"keys that nobody uses":   {network{keys: keys}, "set --gossip and --peers as well"},
		"seeds that nobody uses":  {network{seeds: []string{"a:1"}}, "set --gossip and --peers as well"},
		"no file of keys":         {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", keys: keys + ".gone"}, "no such file"},
		"an empty file of keys":   {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", keys: file("\n")}, "has none: make one with openssl"},
		"a key that is none":      {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", keys: file(key + "\nreplace-me\n")}, "line 2 of "},
		"a key that is too short": {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", keys: file("AAAA\n")}, "16, 24 or 32 random bytes"},
		"gossip without keys":     {network{gossip: "0.0.0.0:0", gossipAdvertise: "192.0.2.1", peers: "127.0.0.1:0"}, "there are no Keys"},
		"peers without TLS":       {network{gossip: "127.0.0.1:0", peers: "0.0.0.0:0", peersAdvertise: "192.0.2.1", keys: keys}, "without TLS"},
		"a certificate alone":     {network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0", cert: "tls.crt"}, "is not named"},
	} {
		err := c.faults(t)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "replace-me") {
			t.Errorf("%s: what is in the file is shown: %v", name, err)
		}
	}
}

func TestWhatIsSaidOfTheNetworkReachesGossipAndTheNodeService(t *testing.T) {
	t.Parallel()
	c, err := (&network{gossip: "127.0.0.1:0", peers: "127.0.0.1:0"}).cluster()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Gossip.(*gossip.Gossip); !ok {
		t.Errorf("gossip is %T", c.Gossip)
	}
	if _, ok := c.Peers.(*grpc.Peers); !ok {
		t.Errorf("the node service is %T", c.Peers)
	}
}
