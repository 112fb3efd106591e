package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// clusterOf is a Cluster of which these servers are known, the first as the one that has all slots. stop waits for whoever asks them.
func clusterOf(t *testing.T, cfg Config, addrs ...string) (s *servers, stop func() error) {
	t.Helper()
	cfg.URL = "redis://" + addrs[0]
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var group lifecycle.Group
	if err := group.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = &servers{cluster: true, open: cfg.server, aside: group.Go}
	s.mu.byAddr, s.mu.bySlot = make(map[string]*server), make([]*server, slots)
	stop = func() error { return group.Stop(context.Background()) }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		_ = s.close()
	})
	for i := range addrs {
		if _, err := s.at(addrs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for slot := range s.mu.bySlot {
		s.mu.bySlot[slot] = s.mu.byAddr[addrs[0]]
	}
	return s, stop
}

// muteServer is a server that hangs: the kernel takes a connection, and nobody answers.
func muteServer(t *testing.T) (addr string) {
	t.Helper()
	mute, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	return mute.Addr().String()
}

func get(key string) *call { return &call{keys: []string{key}, args: []any{"get", key}} }

// TestSlotsAreLearnedOfWhoeverAnswers: after failovers most of the servers that a process has known may be gone, without a word.
func TestSlotsAreLearnedOfWhoeverAnswers(t *testing.T) {
	t.Parallel()
	live := redisserver.Run(t, redisserver.Options{Cluster: true})
	var addrs []string
	for range 8 {
		addrs = append(addrs, muteServer(t))
	}
	s, _ := clusterOf(t, Config{Timeout: 10 * time.Second}, append(addrs, live.Addr())...)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.relearn(ctx); err != nil || s.of("order:{k-1}").addr != live.Addr() {
		t.Errorf("got %v, and the slot is that of %v", err, s.of("order:{k-1}").addr)
	}
}

// TestAServerThatHangsIsLeft: the others have given its slots to another one, and it does not say so. When a call has told that it hangs, the time of the call is over.
func TestAServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	live := redisserver.Run(t, redisserver.Options{Cluster: true})
	for name, cfg := range map[string]Config{
		"its kernel takes connections": {},
		"its host is gone": {Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == live.Addr() {
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Timeout = 200 * time.Millisecond
			s, _ := clusterOf(t, cfg, muteServer(t), live.Addr())
			var last error
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeout)
				_, last = s.run(ctx, onWork, get("k"))
				cancel()
				if errors.Is(last, goredis.Nil) {
					return
				}
			}
			t.Errorf("twenty calls, and the last one went to the server that hangs: %v", last)
		})
	}
}

// TestWhoeverIsAskedForSlotsSaysNothingOfTheCall: that another server was not reached does not make it one that was not sent.
func TestWhoeverIsAskedForSlotsSaysNothingOfTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dialed dials
		s, _ := clusterOf(t, Config{Timeout: 3 * time.Second, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "gone:1" {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return dialed.dial(ctx, network, addr)
		}}, "a:1", "gone:1")
		if _, err := s.run(t.Context(), onWork, get("k")); !errors.Is(outcome(err), partitions.ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
	})
}

// TestTheFirstToAnswerCounts: a later answer may be of a server that knows less.
func TestTheFirstToAnswerCounts(t *testing.T) {
	t.Parallel()
	s, _ := clusterOf(t, Config{}, "former:1", "first:1", "second:1")
	all := func(addr string) []goredis.ClusterSlot {
		return []goredis.ClusterSlot{{Start: 0, End: slots - 1, Nodes: []goredis.ClusterNode{{Addr: addr}}}}
	}
	q := new(question)
	for _, addr := range []string{"first:1", "second:1"} {
		if err := s.note(s.mu.byAddr[addr], all(addr), q); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.of("k").addr; got != "first:1" {
		t.Errorf("the slot is that of %s", got)
	}
}

// TestServersThatHangAreNotAskedAgainAndAgain: one connection to each is what it costs to ask them for as long as they hang, and whoever stops waits for a moment only.
func TestServersThatHangAreNotAskedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dialed dials
		s, stop := clusterOf(t, Config{Timeout: 3 * time.Second, Dial: dialed.dial}, "a:1", "b:1", "c:1", answers)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), relearning+time.Millisecond)
			if err := s.relearn(ctx); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			cancel()
		}
		stopped := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took > answering {
			t.Errorf("it took %v to stop", took)
		}
		dialed.mu.Lock()
		defer dialed.mu.Unlock()
		want := map[string]int{"a:1": 1, "b:1": 1, "c:1": 1, answers: 1}
		if diff := cmp.Diff(want, dialed.mu.most); diff != "" {
			t.Errorf("connections at once (-want +got):\n%s", diff)
		}
	})
}

// dials counts connections to servers that read, and do not answer, but for one.
type dials struct {
	mu struct {
		sync.Mutex
		open, most map[string]int
	}
}

const answers = "d:1" // that nobody has any slots

func (d *dials) dial(_ context.Context, _, addr string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		d.count(addr, 1)
		defer d.count(addr, -1)
		for buf := make([]byte, 1024); ; {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			switch {
			case addr != answers:
			case bytes.Contains(buf[:n], []byte("slots")):
				_, _ = far.Write([]byte("*0\r\n"))
			default:
				_, _ = far.Write([]byte("-ERR unknown command\r\n"))
			}
		}
	}()
	return near, nil
}

func (d *dials) count(addr string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.most == nil {
		d.mu.open, d.mu.most = make(map[string]int), make(map[string]int)
	}
	d.mu.open[addr] += n
	d.mu.most[addr] = max(d.mu.most[addr], d.mu.open[addr])
}
