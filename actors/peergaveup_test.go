package actors_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/actors"
)

// gaveUp are entities of which a asks b, b asks c, and c asks a, but only after a gave up and told so to late, if it is set. What c got is in asked.
type gaveUp struct {
	nodes map[string]*peer
	asked chan error
}

func newGaveUp(t *testing.T, w *joined, at map[string]int, late func(c actors.Command) error) *gaveUp {
	t.Helper()
	g := &gaveUp{nodes: map[string]*peer{}, asked: make(chan error, 1)}
	begun, over := make(chan struct{}), make(chan struct{})
	e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		switch n := g.nodes[c.ID()]; c.ID() {
		case "a":
			ctx, giveUp := context.WithCancel(c)
			go func() { <-begun; giveUp() }()
			if _, err := n.Ask(ctx, ref("b"), in); !errors.Is(err, context.Canceled) {
				t.Errorf("a gives up: %v", err)
			}
			close(over)
			return &Total{}, late(c)
		case "b":
			ctx := context.WithoutCancel(c) // it does not care who waits for it
			return actors.Ask[*Total](ctx, n, ref("c"), in)
		case "c":
			close(begun)
			<-over
			_, err := n.Ask(context.WithoutCancel(c), ref("a"), &Balance{})
			g.asked <- err
			return &Total{}, nil
		}
		pass2(10 * time.Second)
		return &Total{}, nil
	})
	e.Timeout = -1
	var all []*peer
	for range 3 {
		all = append(all, w.node(t, []actors.Definition{e}))
	}
	for id, i := range at {
		g.nodes[id], w.first[id] = all[i], all[i].id
	}
	return g
}

// An ask that was given up holds up nobody, although what it led to goes on: whoever that asks is no circle.
func TestAChainThatWasGivenUpIsNoCircle(t *testing.T) {
	for name, at := range map[string]map[string]int{
		"one node":            {"a": 0, "b": 0, "c": 0},
		"three nodes":         {"a": 0, "b": 1, "c": 2},
		"the first alone":     {"a": 0, "b": 1, "c": 1},
		"the second alone":    {"a": 0, "b": 1, "c": 0},
		"the third alone":     {"a": 0, "b": 0, "c": 1},
		"one that asks again": {"a": 0, "b": 1, "c": 2, "d": 1},
		"one that asks here":  {"a": 0, "b": 1, "c": 2, "d": 0},
	} {
		for _, way := range []time.Duration{0, 30 * time.Millisecond} {
			t.Run(name+" "+way.String(), func(t *testing.T) {
				asking(t, func(t *testing.T, w *joined) {
					var g *gaveUp
					g = newGaveUp(t, w, at, func(c actors.Command) error {
						n := g.nodes["d"]
						if n == nil {
							pass2(5 * time.Second) // while c waits in the mailbox
							return nil
						}
						_, err := g.nodes["a"].Ask(c, ref("d"), &Deposit{})
						return err
					})
					w.network.Delay(way, way)
					if _, err := g.nodes["a"].Ask(t.Context(), ref("a"), &Deposit{}); err != nil {
						t.Error(err)
					}
					if err := <-g.asked; err != nil {
						t.Errorf("c asks a, which gave up: %v", err)
					}
					pass2(time.Second)
					nothingWaits(t, g.nodes["a"], g.nodes["b"], g.nodes["c"])
				})
			})
		}
	}
}

// A node of a release that knows no probes leaves circles to the deadlines of asks, and all other asks as they are.
func TestNodesThatKnowNoProbes(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		e := chained(w, &nodes, nil)
		e.Timeout = 5 * time.Second
		for _, id := range []string{"a", "b", "c"} {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			w.first[id], nodes[len(nodes)-1].way.older = nodes[len(nodes)-1].id, true
		}
		for chain, circle := range map[string]bool{"b c": false, "b c a": true} {
			began := time.Now()
			_, err := nodes[0].Ask(t.Context(), ref("a"), &Deposit{Client: chain})
			switch took := time.Since(began); {
			case circle && (err == nil || strings.Contains(err.Error(), "waiting for this very call") || took != 5*time.Second):
				t.Errorf("a circle: %v after %v", err, took)
			case !circle && (err != nil || took != 0):
				t.Errorf("no circle: %v after %v", err, took)
			}
			pass2(time.Minute)
			nothingWaits(t, nodes...)
		}
		if n := nodes[0].way.probed.Load(); n == 0 {
			t.Error("no probe was tried")
		}
	})
}
