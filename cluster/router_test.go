package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/peertest"
)

func TestEveryNodeAndClientReachesEveryEntityAtOnce(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		p := client.placement.Load()
		for i := range 40 {
			q := asking(i)
			for _, from := range w.nodes {
				if by, took, err := from.ask(t, q); err != nil || by != p.First(q.To) || took != 0 {
					t.Errorf("%s asks for %s: answered by %s, which %s ranks first for, after %v: %v", from.name, q.To, by, p.First(q.To), took, err)
				}
			}
		}
		for _, s := range w.nodes {
			if n := s.redirected.Load() + s.repeated.Load() + s.remembered.Load() + s.gaveUp.Load(); n != 0 {
				t.Errorf("%s: %d detours", s.name, n)
			}
		}
	}, "a", "b", "c")
}

func TestAnExceptionIsRedirectedOnceAndRememberedThen(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		q := asking(1)
		other := map[string]string{"a": "b", "b": "a"}[client.placement.Load().First(q.To)]
		w.give(q.To, other)
		for range 3 { // confirmed each time
			if by, _, err := client.ask(t, q); err != nil || by != other {
				t.Fatalf("answered by %s: %v", by, err)
			}
			elapse(t, fleetTTL-time.Second)
		}
		if red, hits := client.redirected.Load(), client.remembered.Load(); red != 1 || hits != 2 {
			t.Errorf("%d redirects, %d remembered", red, hits)
		}
		if err := client.Tell(t.Context(), q, transport.PeerOwner{}); err != nil {
			t.Error(err)
		}
		elapse(t, fleetTTL-time.Second)
		if by, _, err := client.ask(t, q); err != nil || by != other || client.remembered.Load() != 4 {
			t.Errorf("after a tell: by %s, %d remembered: %v", by, client.remembered.Load(), err)
		}
		elapse(t, fleetTTL+time.Second)
		if by, _, err := client.ask(t, q); err != nil || by != other || client.redirected.Load() != 2 {
			t.Errorf("not confirmed for a lease: by %s, %d redirects: %v", by, client.redirected.Load(), err)
		}
		first := client.placement.Load().First(q.To)
		w.give(q.To, first)
		if by, took, err := client.ask(t, q); err != nil || by != first || took != 0 {
			t.Errorf("handed over: by %s after %v: %v", by, took, err)
		}
		before := client.remembered.Load()
		if by, _, err := client.ask(t, q); err != nil || by != first || client.remembered.Load() != before {
			t.Errorf("the first is remembered: by %s, %v", by, err)
		}
	}, "a", "b")
}

func TestWhoIsToTryHereFirst(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		a, u := w.nodes["a"], asking(1).To
		a = w.nodes[a.placement.Load().First(u)]
		others := func(change func(m *transport.Member)) {
			all := a.placement.Load().Members()
			for i := range all {
				if all[i].ID != a.name {
					change(&all[i])
				}
			}
			a.placement.Store(cluster.NewPlacement(all))
		}
		if !a.Here(u) {
			t.Error("it ranks first")
		}
		b := w.nodes[map[string]string{"a": "b", "b": "a"}[a.name]]
		if b.Here(u) {
			t.Error("another one ranks first")
		}
		if a.Here(event.Unit{Name: "cart", Key: "1"}) {
			t.Error("it does not run the kind")
		}
		w.give(u, b.name)
		if by, _, err := a.ask(t, asking(1)); err != nil || by != b.name {
			t.Fatalf("answered by %s: %v", by, err)
		}
		if a.Here(u) {
			t.Error("another one is remembered to have it")
		}
		others(func(m *transport.Member) { m.Address = "" })
		if !a.Here(u) {
			t.Error("the other cannot be asked")
		}
		others(func(m *transport.Member) { m.Names = []string{"cart"} })
		if !a.Here(u) {
			t.Error("nobody else runs it")
		}
		a.placement.Store(nil)
		if !a.Here(u) {
			t.Error("nobody is known")
		}
		if w.open("client", false).Here(u) {
			t.Error("a client runs nothing")
		}
	}, "a", "b")
}

func TestADeadOwnersEntityIsAskedAsSoonAsItsLeaseLapses(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		q := asking(1)
		first, _, err := client.ask(t, q)
		if err != nil {
			t.Fatal(err)
		}
		w.kill(first)
		by, took, fault := client.ask(t, q) // the client still believes that it is there
		if fault != nil || by == first || took < fleetTTL || took > fleetTTL+300*time.Millisecond {
			t.Errorf("answered by %s after %v: %v", by, took, fault)
		}
		if n := client.repeated.Load(); n > 300 {
			t.Errorf("asked %d times", n)
		}
		if _, took, fault := client.ask(t, q); fault != nil || took != 0 || client.remembered.Load() == 0 {
			t.Errorf("it is not remembered: %v, after %v", fault, took)
		}
	}, "a", "b", "c")
}

func TestBehindACutAnAskEndsOrGoesOnWhenItHeals(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		q := asking(1)
		first, _, err := client.ask(t, q)
		if err != nil {
			t.Fatal(err)
		}
		w.net.Partition([]string{first})
		_, took, fault := client.ask(t, q)
		if fault == nil || fault.Unknown || took < 2*fleetTTL-peertest.ConnectTime || took > 2*fleetTTL+2*peertest.ConnectTime {
			t.Fatalf("after %v: %v", took, fault)
		}
		for _, name := range []string{"a (a:7000) ", "b (b:7000) ", " times"} {
			if !strings.Contains(fault.Text, name) {
				t.Errorf("%q does not say %q", fault.Text, name)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if by, took, fault := client.ask(t, q); fault != nil || by != first || took < 5*time.Second || took > 5*time.Second+2*peertest.ConnectTime {
				t.Errorf("healed: answered by %s after %v: %v", by, took, fault)
			}
		})
		elapse(t, 5*time.Second)
		w.net.Heal()
		wg.Wait()
	}, "a", "b")
}

func TestALostAnswerIsAskedForAgainOnlyWithACommandIDOrOfAQuery(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		for i, id := range []string{"", "command", "reads"} {
			q := asking(i)
			if q.Reads = id == "reads"; !q.Reads {
				q.CommandID = id
			}
			w.nodes[client.placement.Load().First(q.To)].before = func(transport.PeerAsk) error {
				w.net.Lose(1) // the answer
				return nil
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				_, took, fault := client.ask(t, q)
				switch {
				case id == "" && (fault == nil || !fault.Unknown || took != peertest.Silence):
					t.Errorf("without an id: %v after %v", fault, took)
				case id != "" && (fault != nil || took < peertest.Silence || took > peertest.Silence+time.Second):
					t.Errorf("with an id: %v after %v", fault, took)
				}
			})
			synctest.Wait()
			for _, s := range w.nodes {
				s.before = nil
			}
			w.net.Lose(0)
			wg.Wait()
			if n := w.times(q.Type); n != 1 && !q.Reads || n != 2 && q.Reads {
				t.Errorf("id %q: done %d times", id, n)
			}
		}
	}, "a", "b")
}

func TestAnAskEndsWithItsContext(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		a := w.nodes["a"]
		a.placement.Store(cluster.NewPlacement([]transport.Member{{ID: "z", Node: "z", Names: []string{"order"}, Address: "z:7000"}}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		err := a.Tell(ctx, asking(1), transport.PeerOwner{})
		var fault *transport.PeerError
		if !errors.As(err, &fault) || fault.Code != transport.PeerUnavailable || fault.Unknown || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if !strings.Contains(fault.Text, "cannot be reached") || !strings.Contains(fault.Text, "z (z:7000)") {
			t.Errorf("it does not say why: %s", fault.Text)
		}
		if a.gaveUp.Load() != 1 {
			t.Errorf("gave up %d times", a.gaveUp.Load())
		}
	}, "a")
}

type place struct{ N int }

// An HTTP edge has less time than two leases. Whoever asks through it learns whether to ask again.
func TestAnAskWhoseTimeWasTooShortIsRetryable(t *testing.T) {
	late := errors.New("the page is not waited for")
	for name, c := range map[string]struct {
		node      string // whom the edge knows
		faults    func(w *fleet)
		end       func(ctx context.Context) (context.Context, context.CancelFunc)
		retryable bool
	}{
		"nobody is there":    {"z", func(*fleet) {}, within(3 * time.Second), true},
		"it is cut off":      {"a", func(w *fleet) { w.net.Partition([]string{"a"}) }, within(peertest.ConnectTime / 2), true},
		"its answer is lost": {"a", func(w *fleet) { w.net.Lose(1) }, within(time.Second), false},
		"the deadline has a cause": {"z", func(*fleet) {}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, late)
		}, true},
		"the caller had enough": {"z", func(*fleet) {}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(time.Second, cancel)
			return ctx, func() { timer.Stop(); cancel() }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fleetOf(t, func(t *testing.T, w *fleet) {
				edge := w.open("edge", false)
				edge.placement.Store(cluster.NewPlacement([]transport.Member{{ID: c.node, Node: c.node, Names: []string{"order"}, Address: c.node + ":7000"}}))
				types, err := codec.NewRegistry([]codec.Declaration{codec.Of[place]("order.place", 1)})
				if err != nil {
					t.Fatal(err)
				}
				remote, err := actors.NewRemote(actors.RemoteConfig{Codec: types, Elsewhere: edge})
				if err != nil {
					t.Fatal(err)
				}
				c.faults(w)
				ctx, cancel := c.end(t.Context())
				defer cancel()
				_, err = remote.Ask(ctx, actors.Ref{Kind: "order", ID: "1"}, &place{N: 1})
				if err == nil || actors.Retryable(err) != c.retryable || errors.Is(err, actors.ErrUnavailable) != c.retryable || !errors.Is(err, ctx.Err()) {
					t.Errorf("retryable %v, unavailable %v: %v", actors.Retryable(err), errors.Is(err, actors.ErrUnavailable), err)
				}
				if cause := context.Cause(ctx); !errors.Is(err, cause) {
					t.Errorf("%v is not %v", err, cause)
				}
			}, "a")
		})
	}
}

func within(d time.Duration) func(ctx context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func TestTheWayLeadsBackToThisNode(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		q := asking(1)
		first := w.nodes["a"].placement.Load().First(q.To)
		a := w.nodes[first]
		other := map[string]string{"a": "b", "b": "a"}[first]
		// The caller was told that the other one has it, which has put it away meanwhile.
		reply, err := a.Ask(t.Context(), q, transport.PeerOwner{ID: other, Generation: 3})
		if err != nil || reply.Type != first {
			t.Errorf("answered by %s: %v", reply.Type, err)
		}
		if n := w.nodes[other].asked.Load(); n != 1 {
			t.Errorf("the other was asked %d times", n)
		}
	}, "a", "b")
}

func TestANodeAsksItselfWithoutTheNetwork(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		w.net.Lose(1)
		if by, took, err := w.nodes["a"].ask(t, asking(1)); err != nil || by != "a" || took != 0 {
			t.Errorf("answered by %s after %v: %v", by, took, err)
		}
		if err := w.nodes["a"].Tell(t.Context(), asking(1), transport.PeerOwner{}); err != nil {
			t.Error(err)
		}
	}, "a")
}

// What is learned on the way counts for other asks before the answer is there.
func TestOthersLearnFromAnAskThatIsUnderWay(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		for i, hinted := range []bool{false, true} {
			q := asking(i)
			first := client.placement.Load().First(q.To)
			other := map[string]string{"a": "b", "b": "a"}[first]
			w.give(q.To, other)
			let, inside := make(chan struct{}), make(chan struct{}, 2)
			w.nodes[other].before = func(transport.PeerAsk) error { inside <- struct{}{}; <-let; return nil }
			var wg sync.WaitGroup
			asks := w.nodes[first].asked.Load()
			wg.Go(func() {
				var hint transport.PeerOwner
				if hinted {
					hint = transport.PeerOwner{ID: other, Generation: 1}
				}
				if _, err := client.Ask(t.Context(), q, hint); err != nil {
					t.Error(err)
				}
			})
			<-inside
			wg.Go(func() { client.ask(t, q) })
			<-inside
			if n := w.nodes[first].asked.Load() - asks; hinted && n != 0 || !hinted && n != 1 {
				t.Errorf("hinted %v: the first was asked %d times", hinted, n)
			}
			close(let)
			wg.Wait()
			w.nodes[other].before = nil

			// And that it has it no more.
			w.give(q.To, first)
			let, inside = make(chan struct{}), make(chan struct{}, 2)
			w.nodes[first].before = func(transport.PeerAsk) error { inside <- struct{}{}; <-let; return nil }
			asks = w.nodes[other].asked.Load()
			for range 2 {
				wg.Go(func() { client.ask(t, q) })
				<-inside
			}
			if n := w.nodes[other].asked.Load() - asks; n != 1 {
				t.Errorf("the one that had it was asked %d times", n)
			}
			close(let)
			wg.Wait()
			w.nodes[first].before = nil
		}
	}, "a", "b")
}

func TestAMemberOnLoopbackOfAnotherHostIsNotAsked(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		a := w.nodes["a"] // at a:7000, so it is reached from other hosts
		a.placement.Store(cluster.NewPlacement([]transport.Member{{ID: "b", Node: "shop-2", Names: []string{"order"}, Address: "127.0.0.1:7000"}}))
		_, took, fault := a.ask(t, asking(1))
		if fault == nil || took != 0 || fault.Code != transport.PeerUnavailable || !strings.Contains(fault.Text, "shop-2 listens on 127.0.0.1:7000") || !strings.Contains(fault.Text, "configure the node service") {
			t.Errorf("%v after %v", fault, took)
		}
	}, "a")
}

func TestAnErrorThatIsNoneOfAPeerLeavesOpenWhatWasDone(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		ink := errors.New("out of ink")
		w.nodes["a"].before = func(transport.PeerAsk) error { return ink }
		if _, _, fault := w.nodes["a"].ask(t, asking(1)); fault == nil || fault.Code != transport.PeerFailed || !fault.Unknown || !errors.Is(fault, ink) {
			t.Error(fault)
		}
	}, "a")
}

func TestANodeWhoseServiceStoppedAsksNobodyElse(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		w.give(asking(1).To, "b")
		w.nodes["a"].stop()
		if _, took, fault := w.nodes["a"].ask(t, asking(1)); fault == nil || fault.Code != transport.PeerStopping || took != 0 {
			t.Errorf("%v after %v", fault, took)
		}
	}, "a", "b")
}

func TestAFullNodeIsAskedAgain(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("client", false)
		w.tell()
		let := make(chan struct{})
		w.nodes["a"].before = func(transport.PeerAsk) error { <-let; return nil }
		var wg sync.WaitGroup
		for i := range 100 { // of which 64 fit
			wg.Go(func() {
				if _, _, fault := client.ask(t, asking(i)); fault != nil {
					t.Error(fault)
				}
			})
		}
		elapse(t, time.Second)
		close(let)
		wg.Wait()
		for i := range 100 {
			if n := w.times(asking(i).Type); n != 1 {
				t.Errorf("ask %d was done %d times", i, n)
			}
		}
		if client.repeated.Load() == 0 {
			t.Error("nobody was turned away")
		}
	}, "a")
}

func TestWhatIsWrongWithARouterIsSaid(t *testing.T) {
	t.Parallel()
	peers := peertest.NewNetwork(1).Peers("a", peertest.Limits{})
	placement := func() *cluster.Placement { return nil }
	for says, cfg := range map[string]cluster.RouterConfig{
		"Peers and Placement":        {},
		"Placement must be set":      {Peers: peers},
		"Self and Local go together": {Peers: peers, Placement: placement, Self: "a"},
		"must not be below 0":        {Peers: peers, Placement: placement, TTL: -1},
		"TTL and Owners":             {Peers: peers, Placement: placement, Owners: -1},
	} {
		if _, err := cluster.NewRouter(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// Nodes die and come, entities move, messages are late, doubled and lost, and the network falls apart: asks with an id are done once, and answered once things are quiet; those without
// are done once at most.
func TestAsksAmongFaults(t *testing.T) {
	fleetOf(t, func(t *testing.T, w *fleet) {
		client := w.open("station", false)
		w.tell()
		w.net.Delay(0, 20*time.Millisecond)
		w.net.Lose(0.05)
		var wg sync.WaitGroup
		var failed, unknown atomic.Int64
		from := []asker{client, w.nodes["a"], w.nodes["b"], w.client(cluster.ClientConfig{}, "d:7000", "a:7000")}
		for i := range 200 {
			wg.Go(func() {
				elapse(t, time.Duration(i)*100*time.Millisecond)
				q := transport.PeerAsk{To: event.Unit{Name: "order", Key: strconv.Itoa(i % 20)}, Type: fmt.Sprint("ask-", i)}
				if i%2 == 0 {
					q.CommandID = q.Type
				}
				_, took, fault := ask(t, from[i/2%4], q)
				n := w.times(q.Type)
				switch {
				case took > 2*fleetTTL+peertest.Silence+peertest.ConnectTime:
					t.Errorf("ask %d took %v: %v", i, took, fault)
				case fault == nil && n != 1:
					t.Errorf("ask %d was answered, and done %d times", i, n)
				case fault != nil && q.CommandID != "":
					t.Errorf("ask %d, with an id, after %v: %v", i, took, fault)
				case fault != nil && !fault.Unknown && n != 0, n > 1:
					t.Errorf("ask %d was done %d times: %v", i, n, fault)
				case fault != nil:
					failed.Add(1)
					if fault.Unknown {
						unknown.Add(1)
					}
				}
			})
		}
		elapse(t, 3*time.Second)
		w.join("e") // most do not know yet
		for i := range 10 {
			w.give(event.Unit{Name: "order", Key: strconv.Itoa(i)}, "c")
		}
		elapse(t, 2*time.Second)
		w.kill("d")
		elapse(t, time.Second)
		w.tell()
		w.net.Partition([]string{"c"}, []string{"a", "b", "station", "client", "e"})
		elapse(t, 4*time.Second)
		w.net.Heal()
		wg.Wait()
		t.Logf("%d of 100 asks without an id failed, %d of them with an outcome not known", failed.Load(), unknown.Load())
	}, "a", "b", "c", "d")
}
