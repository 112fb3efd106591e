package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/transport/grpc"
)

// network says how nodes on several machines reach one another. Those of one machine find each other without a word of it.
type network struct {
	gossip, gossipAdvertise string
	seeds                   []string
	keys                    string
	peers, peersAdvertise   string
	cert, key, ca           string
	names                   []string
	insecure                bool
}

func (n *network) flags(c *cobra.Command) (names []string) {
	f := c.Flags()
	f.StringVar(&n.gossip, "gossip", "", "address and port for gossip, TCP and UDP, such as 0.0.0.0:7946; none: nodes of this machine alone")
	f.StringVar(&n.gossipAdvertise, "gossip-advertise", "", "where other nodes reach it, if --gossip does not say")
	f.StringSliceVar(&n.seeds, "gossip-seeds", nil, "nodes to find the others by while Redis is away, host:port, with commas between; names are looked up each time")
	f.StringVar(&n.keys, "gossip-keys", "", "file of the keys that seal it: in each line 32 random bytes in base64. The first seals, all of them open; read again when it changes")
	f.StringVar(&n.peers, "peers", "", "address and port at which other nodes ask this one, such as 0.0.0.0:7947; none: nodes of this machine alone")
	f.StringVar(&n.peersAdvertise, "peers-advertise", "", "where they reach it, if --peers does not say")
	f.StringVar(&n.cert, "peers-cert", "", "file of this node's certificate, by which nodes know each other")
	f.StringVar(&n.key, "peers-key", "", "file of its key")
	f.StringVar(&n.ca, "peers-ca", "", "file of the authority's certificate")
	f.StringSliceVar(&n.names, "peers-names", nil, "names in certificates that count, such as *.orders.internal; none: all that the authority has signed")
	f.BoolVar(&n.insecure, "insecure", false, "without keys and certificates: whoever reaches the ports may read and do everything")
	return []string{
		"gossip", "gossip-advertise", "gossip-seeds", "gossip-keys",
		"peers", "peers-advertise", "peers-cert", "peers-key", "peers-ca", "peers-names", "insecure",
	}
}

// cluster is what Config.Cluster is to be. What is wrong with the addresses is told when the application starts.
func (n *network) cluster() (c keyhold.ClusterConfig, err error) {
	if n.gossip == "" && n.peers == "" {
		return c, n.unused()
	}
	if n.gossip == "" || n.peers == "" {
		return c, errors.New("--gossip and --peers go together: a node that other machines hear of must be one that they can ask")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	talk := gossip.Config{Bind: n.gossip, Advertise: n.gossipAdvertise, Seeds: n.seeds, KeyFile: n.keys, Insecure: n.insecure, Logger: log}
	asks := grpc.Config{Bind: n.peers, Advertise: n.peersAdvertise, Insecure: n.insecure, Logger: log}
	if n.cert != "" || n.key != "" || n.ca != "" {
		asks.TLS = grpc.MutualTLS(n.cert, n.key, n.ca, n.names...)
	}
	return keyhold.ClusterConfig{Gossip: gossip.New(talk), Peers: grpc.New(asks)}, nil
}

// unused finds what would say nothing without --gossip and --peers.
func (n *network) unused() error {
	if n.gossipAdvertise+n.keys+n.peersAdvertise+n.cert+n.key+n.ca != "" || len(n.seeds)+len(n.names) > 0 {
		return errors.New("addresses, seeds, keys or certificates of nodes are given, but not where this one listens: set --gossip and --peers as well")
	}
	return nil
}
