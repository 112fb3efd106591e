package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/peertest"
)

func TestAClientLearnsTheMembersFromAnyNodeThatAnswers(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{}, "nowhere:7000", "b:7000")
		p := w.nodes["a"].placement.Load()
		for i := range 20 {
			q := asking(i)
			by, took, fault := ask(t, c, q)
			if fault != nil || by != p.First(q.To) || took > 10*time.Millisecond || i > 0 && took != 0 {
				t.Errorf("ask %d: answered by %s after %v: %v", i, by, took, fault)
			}
			if err := c.Tell(t.Context(), q, transport.PeerOwner{}); err != nil || w.times(q.Type) != 2 {
				t.Errorf("tell %d: done %d times: %v", i, w.times(q.Type), err)
			}
		}
		if c.Here(asking(1).To) {
			t.Error("a client is to try for an entity")
		}
		all, err := c.Members(t.Context())
		if err != nil || len(all) != 3 || all[0].ID != "a" {
			t.Errorf("%v: %v", all, err)
		}
	}, "a", "b", "c")
}

func TestWhenNoNodeIsReachedTheErrorSaysWhichWereTriedAndWhy(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		w.nodes["a"].placement.Store(cluster.NewPlacement(nil))
		find := func(context.Context) ([]string, error) {
			return []string{"gone:7000", "nowhere:7000"}, errors.New("no such domain")
		}
		var log bytes.Buffer
		c := w.client(cluster.ClientConfig{Find: find, Logger: slog.New(slog.NewTextHandler(&log, nil))}, "nowhere:7000", "nonsense", "a:7000")
		_, took, fault := ask(t, c, asking(1))
		if fault == nil || fault.Code != transport.PeerUnavailable || fault.Unknown || took < 2*fleetTTL-time.Second || took > 2*fleetTTL {
			t.Fatalf("%v after %v", fault, took)
		}
		_, err := c.Members(t.Context())
		for _, text := range []string{fault.Text, err.Error()} {
			for _, says := range []string{"node nowhere:7000 cannot be reached", "nonsense: the address", "a:7000: it knows no members yet", "node gone:7000 cannot be reached", "Find: no such domain"} {
				if strings.Count(text, says) != 1 {
					t.Errorf("%q does not say %q once", text, says)
				}
			}
		}
		if n := w.looks(); n < 20 || n > 80 {
			t.Errorf("asked for the members %d times", n)
		}
		if n := strings.Count(log.String(), "no node says"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		if _, err := c.Ask(ctx, asking(1), transport.PeerOwner{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := c.Members(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		w.tell()
		if by, took, fault := ask(t, c, asking(1)); fault != nil || by != "a" || took > 2*time.Second {
			t.Errorf("once a node knows: by %s after %v: %v", by, took, fault)
		}
		if _, err := c.Members(t.Context()); err != nil {
			t.Error(err)
		}
	}, "a")
}

func TestAClientThatFindsNobodySaysSo(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{Find: func(context.Context) ([]string, error) { return nil, nil }})
		if _, err := c.Members(t.Context()); err == nil || !strings.Contains(err.Error(), "Find gave none") {
			t.Error(err)
		}
	})
}

func TestAFindThatHangsIsNotWaitedForLong(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{Find: func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, context.Cause(ctx) }})
		begun := time.Now()
		if _, err := c.Members(t.Context()); err == nil || !strings.Contains(err.Error(), "Find: context deadline exceeded") || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// What is under way when somebody asks may be older than the question.
func TestAClientGivesTheMembersOfNow(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{}, "a:7000")
		w.net.Delay(400*time.Millisecond, 400*time.Millisecond)
		go c.Members(t.Context())
		elapse(t, 500*time.Millisecond) // the answer is under way
		w.join("b")
		w.tell()
		if all, err := c.Members(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("%v: %v", all, err)
		}
	}, "a")
}

// A node that does not answer holds up the question for others for a moment only.
func TestAClientDoesNotWaitLongForOneNode(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{Find: func(context.Context) ([]string, error) { return []string{"b:7000"}, nil }}, "a:7000")
		w.net.Partition([]string{"a"})
		begun := time.Now()
		if _, err := c.Members(t.Context()); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	}, "a", "b")
}

func TestAClientOfAnotherApplicationIsToldSoAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &fleet{t: t, net: peertest.NewNetwork(1), nodes: map[string]*station{}}
		node := w.net.Peers("a", peertest.Limits{})
		if err := node.Start(t.Context(), transport.PeerIdentity{Application: "shop"}, answering{}); err != nil {
			t.Fatal(err)
		}
		defer node.Stop(context.Background())
		c := w.client(cluster.ClientConfig{Identity: transport.PeerIdentity{Application: "bakery"}}, "a:7000")
		_, took, fault := ask(t, c, asking(1))
		if fault == nil || fault.Code != transport.PeerDenied || took > 100*time.Millisecond || !strings.Contains(fault.Text, "bakery") {
			t.Errorf("%v after %v", fault, took)
		}
	})
}

func TestAnIdleClientIsSilentAndOneInUseAsksEveryFewSeconds(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{}, "a:7000")
		elapse(t, time.Minute)
		if n := w.looks(); n != 0 {
			t.Fatalf("before it was used, %d nodes were asked", n)
		}
		for range 600 { // one minute
			if _, _, fault := ask(t, c, asking(1)); fault != nil {
				t.Fatal(fault)
			}
			elapse(t, 100*time.Millisecond)
		}
		n := w.looks()
		if most, least := int64(17), int64(9); n < least || n > most {
			t.Errorf("in a minute of use nodes were asked %d times, expected from %d to %d", n, least, most)
		}
		if w.nodes["b"].looked.Load() == 0 {
			t.Error("b was never asked, which is a member as well")
		}
		elapse(t, time.Hour)
		if now := w.looks(); now != n {
			t.Errorf("unused, it asked %d times", now-n)
		}
	}, "a", "b")
}

func TestAClientLearnsAtOnceWhenAMemberCannotBeAsked(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{Refresh: time.Hour}, "a:7000", "b:7000", "c:7000")
		q := asking(1)
		first, _, fault := ask(t, c, q)
		if fault != nil {
			t.Fatal(fault)
		}
		w.kill(first)
		w.tell()
		w.mu.Lock()
		w.lease(q.To).owner = ""
		w.mu.Unlock()
		by, _, fault := ask(t, c, q)
		if fault != nil || by == first {
			t.Fatalf("answered by %s: %v", by, fault)
		}
		elapse(t, time.Second)
		before := w.nodes[by].asked.Load()
		for i := range 30 {
			if _, took, fault := ask(t, c, asking(i)); fault != nil || took != 0 {
				t.Errorf("ask %d took %v: %v", i, took, fault)
			}
		}
		if w.nodes[by].asked.Load() == before {
			t.Error("nobody was asked")
		}
	}, "a", "b", "c")
}

// The nodes that a client began with may all be gone one day.
func TestAClientGoesByTheMembersOnceItKnowsThem(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		c := w.client(cluster.ClientConfig{}, "a:7000")
		if _, _, fault := ask(t, c, asking(1)); fault != nil {
			t.Fatal(fault)
		}
		w.kill("a")
		w.join("c")
		w.tell()
		if _, _, fault := ask(t, c, asking(2)); fault != nil {
			t.Fatal(fault)
		}
		elapse(t, time.Minute)
		all, err := c.Members(t.Context())
		if names := func() (s []string) {
			for _, m := range all {
				s = append(s, m.ID)
			}
			return s
		}(); err != nil || !slices.Equal(names, []string{"b", "c"}) {
			t.Errorf("members are %v: %v", names, err)
		}
		w.net.Partition([]string{"client"})
		if _, err := c.Members(t.Context()); err == nil {
			t.Error("nobody is reached, and it says nothing")
		}
		w.net.Heal()
		if _, took, fault := ask(t, c, asking(3)); fault != nil || took != 0 {
			t.Errorf("the members were forgotten because nobody answered: %v after %v", fault, took)
		}
	}, "a", "b")
}

// A client that reached a node from host to host cannot reach one that is on loopback there.
func TestAClientElsewhereDoesNotAskWhoIsOnLoopback(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		w.nodes["a"].placement.Store(cluster.NewPlacement([]transport.Member{{ID: "a", Node: "a", Names: []string{"order"}, Address: "127.0.0.1:7000"}}))
		c := w.client(cluster.ClientConfig{}, "a:7000")
		if _, _, fault := ask(t, c, asking(1)); fault == nil || !strings.Contains(fault.Text, "a listens on 127.0.0.1:7000") {
			t.Error(fault)
		}
	}, "a")
}

func TestAClientThatStopsLetsGoOfWhoWaits(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		peers := w.net.Peers("other", peertest.Limits{})
		c, err := cluster.NewClient(cluster.ClientConfig{Peers: peers, Nodes: []string{"nowhere:7000"}})
		if err != nil {
			t.Fatal(err)
		}
		stopped := func() {
			t.Helper()
			if _, took, fault := ask(t, c, asking(1)); fault == nil || fault.Code != transport.PeerStopping || took != 0 {
				t.Errorf("%v after %v", fault, took)
			}
			var fault *transport.PeerError
			if _, err := c.Members(t.Context()); !errors.As(err, &fault) || fault.Code != transport.PeerStopping {
				t.Error(err)
			}
		}
		stopped()
		for range 2 {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err == nil {
				t.Error("started twice")
			}
			waiting := make(chan *transport.PeerError)
			go func() {
				_, _, fault := ask(t, c, asking(1))
				waiting <- fault
			}()
			elapse(t, time.Second)
			members := make(chan error)
			go func() {
				_, err := c.Members(t.Context())
				members <- err
			}()
			synctest.Wait()
			for range 2 {
				if err := c.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if fault := <-waiting; fault == nil || fault.Code != transport.PeerStopping {
				t.Error(fault)
			}
			var fault *transport.PeerError
			if err := <-members; !errors.As(err, &fault) || fault.Code != transport.PeerStopping {
				t.Errorf("members: %v", err)
			}
			stopped()
		}
	})
}

func TestWhatIsWrongWithAClientIsSaid(t *testing.T) {
	t.Parallel()
	peers := peertest.NewNetwork(1).Peers("a", peertest.Limits{})
	for says, cfg := range map[string]cluster.ClientConfig{
		"Peers must be set":       {},
		"give the addresses":      {Peers: peers},
		"Refresh must not":        {Peers: peers, Nodes: []string{"a:1"}, Refresh: -1},
		"TTL and Owners must not": {Peers: peers, Nodes: []string{"a:1"}, TTL: -1},
	} {
		if _, err := cluster.NewClient(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	c, err := cluster.NewClient(cluster.ClientConfig{Peers: peers, Nodes: []string{"a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
