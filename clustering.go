package keyhold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// ClusterConfig says how the nodes of an application reach one another, where the transport is a broker such as redis.Open. Without it they use what the transport brings along: on
// Redis gossip and a node service that this machine alone reaches. Nodes on several machines need both Gossip and Peers, with an address that the others reach and with keys;
// docs/guide/cluster.md has a whole configuration.
//
// Neither decides who may run what: that is the lease's doing alone. Without gossip nodes learn of each other a heartbeat later; without the node service [Ask] and [Tell] reach only
// entities of this node, and what another one has is refused with ErrUnavailable.
type ClusterConfig struct {
	Gossip transport.Gossip // gossip.New(gossip.Config{...}); default what the transport brings along
	Peers  transport.Peers  // the node service: grpc.New(grpc.Config{...}); default what the transport brings along
	// ListOnly does without both: no port is opened, nodes know of each other by the broker's list, and do not ask one another.
	ListOnly bool
	// Weight is how large this node's share is beside those of the others; default 1. A node of weight 2 gets twice as many keys as one of weight 1.
	Weight int
	// Version of the program, for people; default what the Go toolchain has noted in the binary.
	Version string
}

const mostWeight = 1000

func (c ClusterConfig) faults(t transport.Transport) error {
	var all []error
	add := func(format string, args ...any) { all = append(all, fmt.Errorf("config: Cluster: "+format, args...)) }
	if c.Weight < 0 || c.Weight > mostWeight {
		add("Weight is %d: it must be from 1 to %d, or 0 for 1", c.Weight, mostWeight)
	}
	if err := event.CheckID("Version", c.Version); err != nil { // others read it
		add("%w", err)
	}
	if c.ListOnly && (c.Gossip != nil || c.Peers != nil) {
		add("ListOnly does without Gossip and Peers, and one of them is set: leave out the one or the other")
	}
	if _, shares := t.(transport.Broker); !shares && t != nil && (c.Gossip != nil || c.Peers != nil) {
		add("Gossip or Peers is set, and transport %q has one node alone: leave them out, or use redis.Open(url)", t.Name())
	}
	if c, checks := c.Gossip.(transport.Checked); checks {
		if err := c.Check(); err != nil {
			add("%w", err)
		}
	}
	return errors.Join(all...)
}

// asks reports whether nodes ask one another.
func (c ClusterConfig) asks(t transport.Transport) bool {
	broker, shares := t.(transport.Broker)
	_, brings := broker.(transport.Introducer)
	return shares && !c.ListOnly && (c.Peers != nil || brings)
}

// crosses reports all types of commands, queries and replies that could not go to the node that has the entity.
func (p *plan) crosses(types *codec.Registry) error {
	var all []error
	for _, d := range p.descriptions {
		if d.Kind != eventstore.EntityKind {
			continue
		}
		for _, t := range d.Types {
			if t.Use == actors.UseEvent || t.Type == reflect.TypeFor[struct{}]() { // which says nothing
				continue
			}
			if _, _, err := types.NameOf(t.Type); err != nil {
				all = append(all, fmt.Errorf("entity %q: a %s goes to the node that has the entity: %w", d.Name, t.Use, err))
			}
		}
	}
	return errors.Join(all...)
}

// neighbours are how this node reaches the others.
type neighbours struct {
	gossip transport.Gossip // nil = by the broker's list alone
	peers  transport.Peers  // nil = not at all
}

// logTo gives a gossip or a node service that has no logger of its own this one.
func logTo(what any, logger *slog.Logger) {
	if w, takes := what.(interface{ LogTo(*slog.Logger) }); takes {
		w.LogTo(logger)
	}
}

// neighbours gives what is configured, and else what the broker brings along.
func (a *App) neighbours(broker transport.Broker) (neighbours, error) {
	c := a.cfg.Cluster
	n := neighbours{c.Gossip, c.Peers}
	logTo(n.gossip, a.cfg.Logger)
	logTo(n.peers, a.cfg.Logger)
	if c.ListOnly || n.gossip != nil && n.peers != nil {
		return n, nil
	}
	brings, ok := broker.(transport.Introducer)
	if !ok {
		return n, nil
	}
	gossip, peers, err := brings.Introduce(a.cfg.Logger)
	if err != nil {
		return n, fmt.Errorf("what %s brings along to reach other nodes: %w", broker.Name(), err)
	}
	if n.gossip == nil {
		n.gossip = gossip
	}
	if n.peers == nil {
		n.peers = peers
	}
	return n, nil
}

// routes makes what brings asks to the nodes that have the entities. It is used once c.node is there.
func (c *shared) routes(ttl time.Duration) (*cluster.Router, error) {
	return cluster.NewRouter(cluster.RouterConfig{
		Peers: c.near.peers, Self: c.broker.OwnerID(), Placement: func() *cluster.Placement { return c.node.Placement() }, Local: served{c}, TTL: ttl, Observer: c.routed(),
	})
}

func (c *shared) routed() cluster.RouterObserver {
	told := c.r.app.toldOfNodes()
	how := func(word string) func() { return func() { call(told.Routed, word) } }
	return cluster.RouterObserver{
		Remembered: how("remembered"), Redirected: how("redirected"), Repeated: how("repeated"),
		GaveUp: func(code transport.PeerCode) { call(told.GivenUp, string(code)) },
	}
}

// serve has the node service listen. The units are started.
func (c *shared) serve(ctx context.Context) error {
	if c.near.peers == nil {
		return nil
	}
	id := transport.PeerIdentity{Application: c.r.app.cfg.Name, StoreID: c.declares.StoreID}
	c.serves = true
	if err := c.near.peers.Start(ctx, id, served{c}); err != nil {
		if errors.Is(err, lifecycle.ErrStarted) { // it is another's, who still needs it
			c.serves = false
			return fmt.Errorf("Cluster.Peers is in use by another application or client of this process: give each one of its own: %w", err)
		}
		return err
	}
	c.node.Serves(c.near.peers.Address())
	return nil
}

// unserve has it answer what is inside, and close.
func (c *shared) unserve(ctx context.Context) error {
	if !c.serves {
		return nil
	}
	return c.near.peers.Stop(ctx)
}

// served answers other nodes and clients.
type served struct{ c *shared }

func (s served) Ask(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	return s.c.runtime.ServeAsk(ctx, q)
}

func (s served) Tell(ctx context.Context, q transport.PeerAsk) error {
	return s.c.runtime.ServeTell(ctx, q)
}

// Wake passes over what is no unit of this node: nothing is to be looked for, counted or leased under a name that somebody made up.
func (s served) Wake(units []event.Unit) {
	names, keys := s.c.node.Self().Names, s.c.r.app.cfg.keyRules()
	for _, u := range units {
		if u.Name == event.PartName || slices.Contains(names, u.Name) && keys.Check(u.Key) == nil {
			s.c.node.Wake(u)
		}
	}
}

func (s served) Probe(probes []transport.PeerProbe) { s.c.runtime.ServeProbe(probes) }

func (s served) Status(context.Context) (transport.PeerStatus, error) {
	status := transport.PeerStatus{Member: s.c.node.Self(), Members: s.c.node.Placement().Members()}
	if err := s.c.r.app.Ready(); err != nil {
		status.Ready = err.Error()
	}
	return status, nil
}

// unheardFor is how long gossip may not reach a member until somebody should know: those who come, go or restart are not heard for less.
const unheardFor = 30 * time.Second

// hearing is since when there are members that gossip does not reach.
type hearing struct {
	sync.Mutex
	since time.Time
	said  bool
}

// note takes how many members gossip does not reach, and reports when somebody should be told, and when it is over.
func (h *hearing) note(unheard int, now time.Time) (tell, over bool) {
	h.Lock()
	defer h.Unlock()
	switch {
	case unheard == 0:
		over = h.said
		h.since, h.said = time.Time{}, false
	case h.since.IsZero():
		h.since = now
	case !h.said && now.Sub(h.since) >= unheardFor:
		h.said, tell = true, true
	}
	return tell, over
}

// listen says once that gossip does not reach members which are there by the broker's list, and once that it does again.
func (c *shared) listen() {
	log, unheard := c.r.app.cfg.Logger, c.node.Unheard()
	switch tell, over := c.hearing.note(len(unheard), time.Now()); {
	case over:
		log.Info("gossip reaches all members again")
	case tell:
		log.Warn("gossip does not reach members that take part: nothing is lost or moved, but what changes is known a heartbeat later, and asks may not reach them either. "+
			"Open the way to their gossip addresses, TCP and UDP, and see that all nodes have the same gossip keys; where they are on other machines, set Cluster.Gossip and Cluster.Peers with addresses that others reach",
			"members", nodeAddresses(unheard))
	}
}

func nodeAddresses(members []transport.Member) (all []string) {
	for i := range members {
		all = append(all, members[i].Node+" at "+members[i].Gossip)
	}
	return all
}

// Members gives the nodes of the application as this one knows them, itself among them; nil where it is alone, or not started.
func (a *App) Members() []transport.Member {
	r, err := a.live()
	if err != nil {
		return nil
	}
	c, is := r.carrier.(*shared)
	if !is {
		return nil
	}
	return c.node.Placement().Members()
}

// self is this node as the others are to know it.
func (c *shared) self(p *plan, id eventstore.Identity, pid int) transport.Member {
	cfg := c.r.app.cfg
	return transport.Member{
		ID: c.broker.OwnerID(), Node: cfg.Node, PID: pid, StoreID: id.StoreID, Start: id.StartGeneration, Names: p.names(),
		Weight: cfg.Cluster.Weight, Version: cfg.Cluster.Version,
	}
}

// programVersion is what the toolchain has noted: the version of the module, or the commit that it was built from.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}
