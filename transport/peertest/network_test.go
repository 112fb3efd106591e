package peertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/peertest"
)

func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("KEYHOLD_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", s)
	return s
}

func open(t *testing.T) peertest.Open {
	n := peertest.NewNetwork(seed(t))
	return func(_ *testing.T, l peertest.Limits) transport.Peers { return n.Peers("", l) }
}

func TestSuite(t *testing.T) {
	t.Parallel()
	peertest.Run(t, open)
}

func TestSuiteInVirtualTime(t *testing.T) {
	t.Parallel()
	peertest.RunVirtual(t, open)
}

// counting answers, after a while, and counts how often it was asked.
type counting struct {
	asked atomic.Int64
	after time.Duration
}

func (c *counting) Ask(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	c.asked.Add(1)
	ctx, cancel := context.WithTimeout(ctx, c.after)
	defer cancel()
	<-ctx.Done()
	return transport.PeerReply{Type: q.To.Key}, nil
}
func (c *counting) Tell(context.Context, transport.PeerAsk) error { c.asked.Add(1); return nil }
func (*counting) Wake([]event.Unit)                               {}
func (*counting) Probe([]transport.PeerProbe)                     {}
func (*counting) Status(context.Context) (transport.PeerStatus, error) {
	return transport.PeerStatus{}, nil
}

// pair runs f in virtual time with two nodes, a and b.
func pair(t *testing.T, after time.Duration, f func(t *testing.T, n *peertest.Network, a *peertest.Peers, b string, s *counting)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, s := peertest.NewNetwork(seed(t)), &counting{after: after}
		a, b := n.Peers("a", peertest.Limits{}), n.Peers("b", peertest.Limits{})
		for _, p := range []*peertest.Peers{a, b} {
			if err := p.Start(t.Context(), transport.PeerIdentity{}, s); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}()
		}
		f(t, n, a, b.Address(), s)
	})
}

func ask(p *peertest.Peers, address string) (time.Duration, *transport.PeerError) {
	begun := time.Now()
	_, err := p.Ask(context.Background(), address, transport.PeerAsk{To: event.Unit{Name: "order", Key: "1"}, Type: "x"})
	var e *transport.PeerError
	errors.As(err, &e)
	return time.Since(begun), e
}

func TestLostMessagesEndTheCallAfterTheSilence(t *testing.T) {
	pair(t, 0, func(t *testing.T, n *peertest.Network, a *peertest.Peers, b string, s *counting) {
		n.Lose(1)
		if took, e := ask(a, b); took != peertest.Silence || e == nil || e.Code != transport.PeerUnavailable || !e.Unknown {
			t.Errorf("%v after %v", e, took)
		}
		if got := s.asked.Load(); got != 0 {
			t.Errorf("asked %d times", got)
		}
		n.Heal()
		if took, e := ask(a, b); took != 0 || e != nil {
			t.Errorf("healed: %v after %v", e, took)
		}
	})
}

func TestDoubledQuestionsAreAskedTwice(t *testing.T) {
	pair(t, time.Second, func(t *testing.T, n *peertest.Network, a *peertest.Peers, b string, s *counting) {
		n.Duplicate(1)
		if took, e := ask(a, b); took != time.Second || e != nil {
			t.Errorf("%v after %v", e, took)
		}
		synctest.Wait()
		if got := s.asked.Load(); got != 2 {
			t.Errorf("asked %d times", got)
		}
	})
}

func TestDelaysCountOnBothWays(t *testing.T) {
	pair(t, 0, func(t *testing.T, n *peertest.Network, a *peertest.Peers, b string, _ *counting) {
		n.Delay(2*time.Second, 3*time.Second)
		if took, e := ask(a, b); took < 4*time.Second || took > 6*time.Second || e != nil {
			t.Errorf("%v after %v", e, took)
		}
	})
}

func TestPartitionsCutWhatIsUnderWayAndWhatIsNew(t *testing.T) {
	pair(t, time.Second, func(t *testing.T, n *peertest.Network, a *peertest.Peers, b string, s *counting) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if took, e := ask(a, b); took != time.Second+peertest.Silence || e == nil || e.Code != transport.PeerUnavailable || !e.Unknown {
				t.Errorf("under way: %v after %v", e, took)
			}
		})
		synctest.Wait()
		n.Partition([]string{"a"}, []string{"b"})
		if took, e := ask(a, b); took != peertest.ConnectTime || e == nil || e.Code != transport.PeerUnavailable || e.Unknown {
			t.Errorf("new: %v after %v", e, took)
		}
		wg.Wait()
		if _, e := ask(a, a.Address()); e != nil {
			t.Errorf("its own side: %v", e)
		}
		n.Partition([]string{"a", "b"})
		if _, e := ask(a, b); e != nil {
			t.Errorf("on one side: %v", e)
		}
		if got := s.asked.Load(); got != 3 {
			t.Errorf("asked %d times", got)
		}
	})
}

func TestOneSeedDrawsTheSame(t *testing.T) {
	t.Parallel()
	draw := func() (out string) {
		synctest.Test(t, func(t *testing.T) {
			n := peertest.NewNetwork(7)
			p := n.Peers("a", peertest.Limits{})
			if err := p.Start(t.Context(), transport.PeerIdentity{}, &counting{}); err != nil {
				t.Fatal(err)
			}
			n.Lose(0.5)
			n.Delay(0, time.Second)
			for range 20 {
				took, e := ask(p, p.Address())
				out += fmt.Sprint(took, e != nil, " ")
			}
			if err := p.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return out
	}
	if one, two := draw(), draw(); one != two {
		t.Errorf("%s\n%s", one, two)
	}
}
