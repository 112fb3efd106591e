package gossip

import (
	"net/netip"

	"github.com/hashicorp/memberlist"

	"github.com/keyhold/keyhold/transport"
)

// On gives cfg another network.
func On(cfg Config, listen func(bind netip.AddrPort) (memberlist.NodeAwareTransport, error)) Config {
	cfg.listen = func(bind netip.AddrPort, _ *logs) (memberlist.NodeAwareTransport, error) { return listen(bind) }
	return cfg
}

// Meta is what is said of a member in every message.
func Meta(m transport.Member) (text []byte, err error) {
	text, _, err = encodeMeta(&m)
	return text, err
}

// FaultOf is what Start would say of a configuration.
func FaultOf(cfg Config) error { return New(cfg).fault }
