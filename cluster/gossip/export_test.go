package gossip

import (
	"log/slog"
	"net/netip"
	"time"

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

// Roster is what a node has heard.
type Roster struct{ r *roster }

func NewRoster(id string) *Roster {
	return &Roster{newRoster(transport.Member{ID: id, StoreID: "store"}, sumOf(nil))}
}

func (r *Roster) Alive(id string, now time.Time) {
	r.r.alive(transport.Member{ID: id, StoreID: "store"}, sumOf(nil), now)
}
func (r *Roster) Left(id string, now time.Time) { r.r.left(id, now) }
func (r *Roster) Leavers() []string             { return r.r.leavers() }

// Merge takes over what another one tells.
func (r *Roster) Merge(other *Roster, now time.Time) {
	r.r.merge(state{Store: "store", Left: other.Leavers()}, now)
}

func DecodeKeys(text string) ([][]byte, error) { return decodeKeys("keys", text) }

// Logs are the warnings of a gossip.
type Logs = logs

func NewLogs(out *slog.Logger) *Logs { return newLogs(out) }

func (l *logs) CatchUp() { l.catchUp() }
