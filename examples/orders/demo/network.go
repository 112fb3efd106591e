package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/transport"
)

// nodeName is how a process calls itself.
func nodeName(number int) string { return fmt.Sprintf("process-%d", number) }

// trip is the way that one ask takes through the nodes.
type trip struct{ elsewhere atomic.Bool }

type tripKey struct{}

// of has the node service see what becomes of an ask.
func (t *trip) of(ctx context.Context) context.Context { return context.WithValue(ctx, tripKey{}, t) }

// counted is a node service that notes which asks another node has answered.
type counted struct{ transport.Peers }

func (c counted) Ask(ctx context.Context, address string, q transport.PeerAsk) (transport.PeerReply, error) {
	r, err := c.Peers.Ask(ctx, address, q)
	if t, ok := ctx.Value(tripKey{}).(*trip); ok {
		t.elsewhere.Store(err == nil)
	}
	return r, err
}

// heard gives the other nodes that an application hears by gossip, in order of name.
func heard(ctx context.Context, app *keyhold.App) (names []string, err error) {
	status, err := app.Admin().Status(ctx)
	if err != nil {
		return nil, err
	}
	talks := map[string]bool{}
	for _, m := range app.Members() {
		talks[m.Node] = m.Gossip != ""
	}
	for _, m := range status.Members {
		if !m.Here && !m.Unheard && talks[m.Node] {
			names = append(names, m.Node)
		}
	}
	slices.Sort(names)
	return names, nil
}
