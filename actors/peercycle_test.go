package actors_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// chained are entities of which each asks the next that its command names, from the node on which it is.
func chained(w *joined, nodes *[]*peer, before func(c actors.Command)) actors.Entity[account] {
	e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if before != nil {
			before(c)
		}
		next, rest, more := strings.Cut(in.Client, " ")
		if next == "" {
			return &Total{}, nil
		}
		at := (*nodes)[slices.Index(w.order, w.first[c.ID()])]
		if !more {
			return actors.Ask[*Total](c, at, ref(next), &Balance{})
		}
		return actors.Ask[*Total](c, at, ref(next), &Deposit{Client: rest})
	})
	e.Timeout = -1
	return e
}

func TestACircleThroughNodesIsRefused(t *testing.T) {
	for chain, circle := range map[string]bool{
		"a b a": true, "a b c a": true, "a a2 b a": true, "a b b2 a2 c a2": true, "a a": true,
		"a b": false, "a b c": false, "a b b2 c c2": false,
	} {
		t.Run(chain, func(t *testing.T) {
			asking(t, func(t *testing.T, w *joined) {
				var nodes []*peer
				e := chained(w, &nodes, nil)
				for _, id := range []string{"a", "b", "c"} {
					nodes = append(nodes, w.node(t, []actors.Definition{e}))
					w.first[id], w.first[id+"2"] = nodes[len(nodes)-1].id, nodes[len(nodes)-1].id
				}
				began := time.Now()
				first, rest, _ := strings.Cut(chain, " ")
				_, err := nodes[2].Ask(t.Context(), ref(first), &Deposit{Client: rest})
				if !circle && err != nil {
					t.Errorf("refused: %v", err)
				}
				if circle && (err == nil || !strings.Contains(err.Error(), "waiting for this very call")) { // of a behavior's own error the text is left
					t.Errorf("a circle: %v", err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s", took)
				}
				nothingWaits(t, nodes...)
			})
		})
	}
}

func nothingWaits(t *testing.T, nodes ...*peer) {
	t.Helper()
	synctest.Wait()
	for _, n := range nodes {
		same(t, "waits left at "+n.id, 0, n.Waits())
	}
}

// Of units that wait behind the one that asks, none can be asked either.
func TestWhatWaitsInAMailboxIsPartOfACircle(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		enter, letGo := make(chan struct{}), make(chan struct{})
		e := chained(w, &nodes, func(c actors.Command) {
			if c.ID() == "a" {
				close(enter)
				<-letGo
			}
		})
		for _, id := range []string{"a", "b", "c"} {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			w.first[id] = nodes[len(nodes)-1].id
		}
		got := make(chan error, 2)
		ask := func(id, rest string) {
			_, err := nodes[0].Ask(t.Context(), ref(id), &Deposit{Client: rest})
			got <- err
		}
		go ask("a", "b c")
		<-enter
		go ask("c", "a") // waits in the mailbox of a
		synctest.Wait()
		close(letGo)
		var refused int
		for range 2 {
			if err := <-got; err != nil {
				refused++
				if !strings.Contains(err.Error(), "waiting for this very call") {
					t.Error(err)
				}
			}
		}
		same(t, "refused", 1, refused)
		if got := nodes[0].way.last.Load().Waiting; !slices.Equal(got, []event.Unit{{Name: "account", Key: "a"}}) {
			t.Errorf("b was asked for %v", got) // what c wants has nothing to do with it
		}
		nothingWaits(t, nodes...)
	})
}

// All begin before any asks, so that no node sees more than its part of the circle: one ask is refused all the same, long before any behavior's Timeout.
func TestEntitiesOfSeveralNodesThatAskInACircleAtTheSameTimeAreNotStuck(t *testing.T) {
	for name, circle := range map[string][]string{ // whom they ask; the first letter is the node
		"two nodes":                      {"a", "b"},
		"three nodes":                    {"a", "b", "c"},
		"five nodes":                     {"a", "b", "c", "d", "e"},
		"two entities of each node":      {"a1", "a2", "b1", "b2", "c1", "c2"},
		"to and fro between two nodes":   {"a1", "b1", "a2", "b2"},
		"one of a node, three of others": {"a1", "b1", "b2", "b3"},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, w *joined) {
				var nodes []*peer
				var all sync.WaitGroup
				all.Add(len(circle))
				e := chained(w, &nodes, func(actors.Command) {
					all.Done()
					all.Wait()
				})
				for i := range 5 {
					nodes = append(nodes, w.node(t, []actors.Definition{e}))
					for _, id := range circle {
						if id[0] == 'a'+byte(i) {
							w.first[id] = nodes[i].id
						}
					}
				}
				w.network.Delay(time.Millisecond, 5*time.Millisecond)
				began := time.Now()
				errs := make(chan error, len(circle))
				for i, from := range circle {
					go func() {
						_, err := nodes[0].Ask(t.Context(), ref(from), &Deposit{Client: circle[(i+1)%len(circle)]})
						errs <- err
					}()
				}
				refused := 0
				for range circle {
					if err := <-errs; err != nil {
						refused++
						if !errors.Is(err, actors.ErrAskCycle) && !strings.Contains(err.Error(), "waiting for this very call") {
							t.Error(err)
						}
					}
				}
				same(t, "refused", 1, refused)
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
				nothingWaits(t, nodes...)
			})
		})
	}
}

// Whose time is over hears that, and of no circle, whatever is on its way to find one: asking again may succeed.
func TestADeadlineInACircleIsADeadline(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		waits, letGo := make(chan struct{}), make(chan struct{})
		e := chained(w, &nodes, func(c actors.Command) {
			if c.ID() == "b" {
				close(waits)
				<-letGo
			}
		})
		for _, id := range []string{"a", "b"} {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			w.first[id] = nodes[len(nodes)-1].id
		}
		first := make(chan error, 1)
		go func() {
			_, err := nodes[0].Ask(t.Context(), ref("a"), &Deposit{Client: "b "})
			first <- err
		}()
		<-waits
		q, way := asked(t, "a", &Balance{}), transport.PeerAskID{Node: 7, Number: 1}
		q.Waiting, q.ID = []event.Unit{{Name: "account", Key: "b"}}, way
		for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if end == context.Canceled {
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			_, err := nodes[0].ServeAsk(ctx, q)
			cancel()
			var got *transport.PeerError
			if !errors.As(err, &got) || got.Code != transport.PeerEnded || got.Unknown || !strings.Contains(got.Text, end.Error()) {
				t.Errorf("its time was over: %#v", err)
			}
		}
		close(letGo)
		if err := <-first; err != nil {
			t.Error(err)
		}
		nothingWaits(t, nodes...)
	})
}

// What is answered soon, or has nobody waiting behind it, sends none.
func TestProbesAreForAsksThatWaitForLong(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		slow := false
		e := chained(w, &nodes, func(actors.Command) {
			if slow {
				pass2(10 * time.Second)
			}
		})
		for _, id := range []string{"a", "b", "c"} {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			w.first[id] = nodes[len(nodes)-1].id
		}
		for range 100 {
			if _, err := nodes[2].Ask(t.Context(), ref("a"), &Deposit{Client: "b c"}); err != nil {
				t.Fatal(err)
			}
		}
		slow = true
		if _, err := nodes[2].Ask(t.Context(), ref("a"), &Deposit{Client: "b c"}); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			same(t, "probes of "+n.id, int64(0), n.way.probed.Load())
		}
		nothingWaits(t, nodes...)
	})
}

// An answer that was given is not waited for, although it is still on its way.
func TestEntitiesOfTwoNodesMayAskOneAnotherInTurn(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		answered := make(chan struct{}, 1)
		e := chained(w, &nodes, nil)
		e.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
			if q.ID() == "b" {
				answered <- struct{}{}
			}
			return &Total{Amount: s.Total}, nil
		})}
		for _, id := range []string{"a", "b"} {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			w.first[id] = nodes[len(nodes)-1].id
		}
		for i := range 20 {
			late := time.Duration(i) * 4 * time.Millisecond
			w.network.Delay(late, late)
			first := make(chan error, 1)
			go func() {
				_, err := nodes[0].Ask(t.Context(), ref("a"), &Deposit{Client: "b"})
				first <- err
			}()
			<-answered
			w.network.Delay(0, 0)
			if _, err := nodes[1].Ask(t.Context(), ref("b"), &Deposit{Client: "a"}); err != nil {
				t.Errorf("%s late: the other way: %v", late, err)
			}
			if err := <-first; err != nil {
				t.Errorf("%s late: %v", late, err)
			}
		}
		nothingWaits(t, nodes...)
	})
}

// Many at once, on three nodes: whatever is refused, nothing is stuck and nothing is left.
func TestAsksCriscrossNodes(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var nodes []*peer
		e := chained(w, &nodes, nil)
		for i := range 3 {
			nodes = append(nodes, w.node(t, []actors.Definition{e}))
			for j := range 4 {
				w.first[strconv.Itoa(i+3*j)] = nodes[i].id
			}
		}
		w.network.Delay(0, 3*time.Millisecond)
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				chain := []string{strconv.Itoa(i * 7 % 12), strconv.Itoa(i * 5 % 12), strconv.Itoa(i % 12)}
				_, err := nodes[i%3].Ask(t.Context(), ref(strconv.Itoa(i%11)), &Deposit{Client: strings.Join(chain, " ")})
				if err != nil && !strings.Contains(err.Error(), "waiting for this very call") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		nothingWaits(t, nodes...)
	})
}
