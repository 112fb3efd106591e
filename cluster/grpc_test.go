package cluster_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// plain is a node that has every entity for which it ranks first, or is told to decide.
type plain struct {
	id      string
	members atomic.Pointer[[]transport.Member]
	peers   *grpc.Peers
}

func (p *plain) Ask(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	if !q.Decide && cluster.NewPlacement(*p.members.Load()).First(q.To) != p.id {
		return transport.PeerReply{}, &transport.PeerError{Code: transport.PeerNotOwner, Text: "not here"}
	}
	return transport.PeerReply{Type: p.id, Generation: 1}, nil
}
func (p *plain) Tell(ctx context.Context, q transport.PeerAsk) error {
	_, err := p.Ask(ctx, q)
	return err
}
func (*plain) Wake([]event.Unit)           {}
func (*plain) Probe([]transport.PeerProbe) {}
func (p *plain) Status(context.Context) (transport.PeerStatus, error) {
	return transport.PeerStatus{Members: *p.members.Load()}, nil
}

// The same over real links: nodes that are there, one that has gone, one that never was.
func TestAClientAsksOverRealLinks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var nodes []*plain
	var members []transport.Member
	for _, id := range []string{"a", "b"} {
		n := &plain{id: id, peers: grpc.New(grpc.Config{})}
		if err := n.peers.Start(ctx, transport.PeerIdentity{Application: "shop"}, n); err != nil {
			t.Fatal(err)
		}
		defer n.peers.Stop(context.WithoutCancel(ctx))
		nodes = append(nodes, n)
		members = append(members, transport.Member{ID: id, Node: id, Names: []string{"order"}, Address: n.peers.Address()})
	}
	for _, n := range nodes {
		n.members.Store(&members)
	}
	c, err := cluster.NewClient(cluster.ClientConfig{Peers: grpc.New(grpc.Config{}), Identity: transport.PeerIdentity{Application: "shop"}, Nodes: []string{"127.0.0.1:1", nodes[0].peers.Address()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer c.Stop(context.WithoutCancel(ctx))
	p := cluster.NewPlacement(members)
	for i := range 20 {
		q := asking(i)
		if reply, err := c.Ask(ctx, q, transport.PeerOwner{}); err != nil || reply.Type != p.First(q.To) {
			t.Errorf("ask %d: answered by %s: %v", i, reply.Type, err)
		}
		if err := c.Tell(ctx, q, transport.PeerOwner{}); err != nil {
			t.Error(err)
		}
	}
	if err := nodes[0].peers.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		q := asking(i)
		q.CommandID = "again" // the link to a may not be known to have closed when the question is written
		if reply, err := c.Ask(ctx, q, transport.PeerOwner{}); err != nil || reply.Type != "b" {
			t.Errorf("ask %d: answered by %s: %v", i, reply.Type, err)
		}
	}
	left := members[1:]
	nodes[1].members.Store(&left)
	if all, err := c.Members(ctx); err != nil || len(all) != 1 {
		t.Errorf("members: %v, %v", all, err)
	}
}
