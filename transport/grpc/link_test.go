package grpc_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// until looks again and again; what it looks at changes by itself, and sends no signals.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for ctx := limit(t); !so(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("did not happen: ", what)
		}
	}
}

// A frozen process, or a cut network: what was sent is acknowledged by a kernel, or by nobody, and nothing comes back.
func TestABrokenLinkIsNoticedOnBothSides(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b := start(t, grpc.Config{}, h)
	way := proxy.Run(t, b.Address())
	a := start(t, grpc.Config{}, nil)
	got := asking(limit(t), a, way.Addr())
	within(t, "an ask inside", h.inside)
	way.Blackhole(proxy.Both)
	begun := time.Now()
	fails(t, within(t, "the end of the ask", got), transport.PeerUnavailable, true)
	if took := time.Since(begun); took > 2*grpc.Silence {
		t.Errorf("the caller noticed it after %v", took)
	}
	within(t, "the end of the service's context", h.over)
	if took := time.Since(begun); took > 2*grpc.Silence {
		t.Errorf("the service noticed it after %v", took)
	}
	// On the next link all is well again.
	way.Pass()
	until(t, "a new link", func() bool {
		_, err := a.Status(limit(t), way.Addr())
		return err == nil
	})
}

func TestAStopInGoodOrderIsNoError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := grpc.New(grpc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := p.Start(t.Context(), transport.PeerIdentity{}, echo{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(limit(t)); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("it logged: %s", &log)
	}
}

// Of the two sides only the caller can notice this one: the other sends nothing, and closes nothing.
func TestACallerNoticesByItselfThatNothingComes(t *testing.T) {
	t.Parallel()
	frozen := peer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	begun := time.Now()
	_, err := start(t, grpc.Config{}, nil).Ask(limit(t), frozen, question())
	fails(t, err, transport.PeerUnavailable, true)
	if took := time.Since(begun); took > 2*grpc.Silence {
		t.Errorf("it noticed it after %v", took)
	}
}

func TestALinkOnWhichNothingIsAskedStays(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b := start(t, grpc.Config{}, h)
	way := proxy.Run(t, b.Address())
	a := start(t, grpc.Config{}, nil)
	got := asking(limit(t), a, way.Addr())
	within(t, "an ask inside", h.inside)
	// Longer than the silence that breaks it: the other side sends its pings meanwhile.
	begun := time.Now()
	until(t, "time passes", func() bool { return len(got) > 0 || time.Since(begun) > grpc.Silence+2*time.Second })
	close(h.let)
	if err := within(t, "the answer", got); err != nil {
		t.Error(err)
	}
}

func TestACutLinkEndsItsCallsAndTheNextOneIsNew(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b := start(t, grpc.Config{}, h)
	way := proxy.Run(t, b.Address())
	a := start(t, grpc.Config{}, nil)
	got := asking(limit(t), a, way.Addr())
	within(t, "an ask inside", h.inside)
	way.Cut()
	fails(t, within(t, "the end of the ask", got), transport.PeerUnavailable, true)
	within(t, "the end of the service's context", h.over)
	if _, err := a.Status(limit(t), way.Addr()); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

func TestALinkThatDoesNotOpenEndsItsCallsInTime(t *testing.T) {
	t.Parallel()
	b := start(t, grpc.Config{ConnectTimeout: time.Hour}, echo{}) // so that it is not the other side which gives up
	way := proxy.Run(t, b.Address())
	way.Blackhole(proxy.Both)
	a := start(t, grpc.Config{ConnectTimeout: 50 * time.Millisecond}, nil)
	begun := time.Now()
	_, err := a.Ask(limit(t), way.Addr(), question())
	fails(t, err, transport.PeerUnavailable, false)
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

func TestThereIsOneLinkToANode(t *testing.T) {
	t.Parallel()
	b, a := start(t, grpc.Config{}, echo{}), start(t, grpc.Config{}, nil)
	ctx := limit(t)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := a.Ask(ctx, b.Address(), question()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	out, _ := a.Links()
	if _, in := b.Links(); out != 1 || in != 1 {
		t.Errorf("%d links, of which %d arrived", out, in)
	}
}

func TestUnusedLinksAreClosed(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b, c := start(t, grpc.Config{}, h), start(t, grpc.Config{}, echo{})
	a := start(t, grpc.Config{IdleAfter: 20 * time.Millisecond}, nil)
	got := asking(limit(t), a, b.Address())
	within(t, "an ask inside", h.inside)
	if _, err := a.Status(limit(t), c.Address()); err != nil {
		t.Fatal(err)
	}
	until(t, "the unused link is closed, and the used one is not", func() bool {
		out, _ := a.Links()
		_, in := c.Links()
		return out == 1 && in == 0
	})
	close(h.let)
	if err := within(t, "the answer", got); err != nil {
		t.Error(err)
	}
	until(t, "the other one is closed too", func() bool {
		out, _ := a.Links()
		_, in := b.Links()
		return out == 0 && in == 0
	})
	if _, err := a.Status(limit(t), b.Address()); err != nil {
		t.Errorf("by a new link: %v", err)
	}
}

func TestALinkTakesNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b := start(t, grpc.Config{}, h)
	a := start(t, grpc.Config{MaxInside: 2}, nil)
	one, two := asking(limit(t), a, b.Address()), asking(limit(t), a, b.Address())
	within(t, "an ask inside", h.inside)
	within(t, "another", h.inside)
	fails(t, within(t, "the third", asking(limit(t), a, b.Address())), transport.PeerBusy, false)
	close(h.let)
	for _, got := range []<-chan error{one, two} {
		if err := within(t, "the answer", got); err != nil {
			t.Error(err)
		}
	}
}

func TestOneCallerDoesNotKeepOutTheOthers(t *testing.T) {
	t.Parallel()
	h := newHolding()
	b := start(t, grpc.Config{MaxInside: 8}, h)
	greedy, modest, late := start(t, grpc.Config{}, nil), start(t, grpc.Config{}, nil), start(t, grpc.Config{}, nil)
	var asked []<-chan error
	ask := func(p *grpc.Peers) {
		asked = append(asked, asking(limit(t), p, b.Address()))
		within(t, "an ask inside", h.inside)
	}
	for range 6 {
		ask(greedy)
	}
	fails(t, within(t, "one more of the greedy", asking(limit(t), greedy, b.Address())), transport.PeerBusy, false)
	ask(modest)
	fails(t, within(t, "the last place, for one that has some", asking(limit(t), modest, b.Address())), transport.PeerBusy, false)
	ask(late)
	fails(t, within(t, "one more than there is room for", asking(limit(t), late, b.Address())), transport.PeerBusy, false)
	close(h.let)
	for _, got := range asked {
		if err := within(t, "the answer", got); err != nil {
			t.Error(err)
		}
	}
	if _, err := greedy.Ask(limit(t), b.Address(), question()); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

func TestWhoIsAdmitted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, inside, own int
		want              bool
	}{
		{1, 0, 0, true}, {1, 1, 0, false}, {2, 1, 1, true}, {3, 2, 2, true}, {8, 5, 5, true}, {8, 6, 6, false}, {8, 6, 0, true}, {8, 6, 2, true}, {8, 6, 3, false}, {8, 7, 0, true}, {8, 7, 1, false},
		{8, 8, 0, false}, {1024, 767, 767, true}, {1024, 768, 768, false}, {1024, 876, 438, true}, {1024, 877, 439, false},
	} {
		if got := grpc.Admits(c.most, c.inside, c.own); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// Whatever a few links take, and in whatever order, there is room for one that has nothing.
func TestGreedyLinksLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for greedy := 1; greedy <= 9; greedy++ {
		const most, message, kibi = 256, 16 << 10, 1 << 10
		s := grpc.NewStock(64*message, message, 0)
		var own [40]int
		inside := 0
		for i := range 5000 {
			link := random.IntN(greedy)
			if greedy%2 == 1 { // one after the other
				link = i * greedy / 5000
			}
			if grpc.Admits(most, inside, own[link]) {
				own[link]++
				inside++
			}
			switch random.IntN(3) {
			case 0:
				s.Comes(t.Context(), link)
			case 1:
				if s.Comes(t.Context(), link) {
					s.Came(link, message)
				}
			case 2:
				s.Answer(link, message)
			}
		}
		if !grpc.Admits(most, inside, 0) {
			t.Errorf("%d greedy links have %d calls inside, and nobody else finds room", greedy, inside)
		}
		if inside < most*3/4 {
			t.Errorf("%d greedy links have no more than %d calls inside", greedy, inside)
		}
		const link = 39
		if !s.Comes(t.Context(), link) || !s.Came(link, message) {
			coming, held, _ := s.Counted()
			t.Fatalf("%d greedy links: a question finds no room beside %d bytes on their way and %d held", greedy, coming, held)
		}
		s.Done(link, message)
		if !s.Answer(link, 6*kibi) || !s.Answer(link, 10*kibi) {
			t.Errorf("%d greedy links: two answers find no room", greedy)
		}
	}
}
