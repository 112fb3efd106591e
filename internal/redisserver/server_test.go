package redisserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/netns"
	"github.com/keyhold/keyhold/internal/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func do(t *testing.T, s *redisserver.Server, command string, args ...any) any {
	t.Helper()
	answer, err := s.Do(t.Context(), command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestStartsFast(t *testing.T) {
	best := time.Hour
	for range 3 {
		began := time.Now()
		s := redisserver.Run(t, redisserver.Options{})
		best = min(best, time.Since(began))
		if pong := do(t, s, "PING"); pong != "PONG" {
			t.Errorf("PING gave %v", pong)
		}
	}
	if t.Logf("best of 3: %v", best); best > 300*time.Millisecond {
		t.Errorf("took %v to start, want at most 300 ms", best)
	}
}

func TestForgetsOrRemembers(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{AOF: true})
	addr := s.Addr()
	do(t, s, "SET", "a", "1")
	if err := s.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, "GET", "a"); got != "1" || s.Addr() != addr {
		t.Errorf("after a restart with data, at %s: a is %v, want 1 at %s", s.Addr(), got, addr)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), "PING"); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, "GET", "a"); got != nil {
		t.Errorf("after a restart without data: a is %v, want nothing", got)
	}
}

func TestFreezes(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{})
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	var timeout net.Error
	if err := c.Ping(ctx).Err(); !errors.As(err, &timeout) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server: %v, want a timeout", err)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	do(t, s, "PING")
}

// TestListensForOthers has a host of its own ask a server that runs elsewhere.
func TestListensForOthers(t *testing.T) {
	t.Parallel()
	n := netns.Run(t, "data")
	h, err := n.Host()
	if err != nil {
		t.Fatal(err)
	}
	var s *redisserver.Server
	if err := n.Within(func() (err error) {
		s, err = redisserver.Start(t.Context(), redisserver.Options{Listen: n.Addr("data").String()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	_, port, _ := net.SplitHostPort(s.Addr())
	c := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(n.Addr("data").String(), port), MaxRetries: -1, Dialer: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = h.Within(func() (err error) { c, err = (&net.Dialer{}).DialContext(ctx, network, addr); return err })
		return c, err
	}})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("from another host: %v", err)
	}
	do(t, s, "PING")
}

func TestReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	primary := redisserver.Run(t, redisserver.Options{})
	replica := redisserver.Run(t, redisserver.Options{ReplicaOf: primary})
	do(t, primary, "SET", "a", "1")
	if n := do(t, primary, "WAIT", "1", "5000"); n != int64(1) {
		t.Fatalf("%v replicas have it", n)
	}
	if _, err := replica.Do(t.Context(), "SET", "a", "2"); err == nil {
		t.Error("a replica was written to")
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, replica, "SET", "b", "2")
	if got := do(t, replica, "GET", "a"); got != "1" {
		t.Errorf("a is %v, want 1", got)
	}
	if err := primary.Promote(t.Context()); err == nil {
		t.Error("a primary was promoted")
	}
}

func TestClusterHasAllSlots(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{Cluster: true})
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer c.Close()
	for _, key := range []string{"a", "b", "c", "order:{client-1}"} {
		if err := c.Set(t.Context(), key, "1", 0).Err(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
	}
	if err := s.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, "GET", "a"); got != nil {
		t.Errorf("a is %v, want nothing", got)
	}
}

func TestMaxMemoryACLAndTLS(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{MaxMemory: "1mb", TLS: true,
		ACL: []string{"user app on >secret ~order:* &* +@all", "user default on nopass ~* &* +@all"}})
	if _, err := s.Do(t.Context(), "SET", "a", string(make([]byte, 100_000))); err == nil {
		t.Error("more than the memory was taken")
	}
	options := &redis.Options{Addr: s.Addr(), Username: "app", Password: "secret", TLSConfig: s.TLS()}
	c := redis.NewClient(options)
	defer c.Close()
	if err := c.Get(t.Context(), "order:1").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("over TLS as app: %v", err)
	}
	if err := c.Get(t.Context(), "invoice:1").Err(); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("a key that the user may not read: %v", err)
	}
}

func TestCountsCalls(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{})
	for range 3 {
		do(t, s, "SET", "a", "1")
	}
	calls, err := s.Calls(t.Context())
	if err != nil || calls["set"] != 3 {
		t.Errorf("calls are %v, %v, want set 3", calls, err)
	}
	if err := s.ResetCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	if calls, err := s.Calls(t.Context()); err != nil || calls["set"] != 0 {
		t.Errorf("calls are %v, %v, want no set", calls, err)
	}
	do(t, s, "XADD", "s", "1-0", "f", "v")
	do(t, s, "XADD", "s", "2-0", "f", "v")
	if n, err := s.Trim(t.Context(), "s", "2-0"); n != 1 || err != nil {
		t.Errorf("trimmed %d, %v, want 1", n, err)
	}
	if n, err := s.Del(t.Context(), "s", "a", "none"); n != 2 || err != nil {
		t.Errorf("deleted %d, %v, want 2", n, err)
	}
	do(t, s, "SET", "b", "1")
	if names, err := s.Keys(t.Context(), "*"); len(names) != 1 || err != nil {
		t.Errorf("keys are %v, %v, want b", names, err)
	}
	if err := errors.Join(s.FlushAll(t.Context()), s.FlushScripts(t.Context())); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Keys(t.Context(), "*"); len(names) != 0 || err != nil {
		t.Errorf("keys are %v, %v, want none", names, err)
	}
}

func TestMonitorTellsWhoSends(t *testing.T) {
	t.Parallel()
	s := redisserver.Run(t, redisserver.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var sent, nested int
	over := make(chan error)
	listening := make(chan struct{})
	go func() {
		over <- s.Monitor(ctx, func(line string, inScript bool) {
			switch {
			case strings.HasPrefix(line, `"ping"`) || strings.HasPrefix(line, `"PING"`):
				select {
				case <-listening:
				default:
					close(listening)
				}
			case strings.Contains(line, `"INCR" "a"`) && inScript:
				nested++
			case strings.HasPrefix(line, `"EVAL"`) && !inScript:
				sent++
			case strings.Contains(line, `"last"`):
				cancel()
			}
		})
	}()
	for ready := false; !ready; {
		do(t, s, "PING")
		select {
		case <-listening:
			ready = true
		default:
		}
	}
	for range 3 {
		do(t, s, "EVAL", "redis.call('INCR', 'a') return redis.call('INCR', 'a')", "0")
	}
	do(t, s, "GET", "last")
	if err := <-over; err != nil || sent != 3 || nested != 6 {
		t.Errorf("%d commands were sent, %d by scripts, %v, want 3 and 6", sent, nested, err)
	}
}

func TestMissingServer(t *testing.T) {
	run := func() *child.Verdict {
		return child.Judge(t, func(tb child.TB) { redisserver.Run(tb, redisserver.Options{}) })
	}
	t.Setenv("KEYHOLD_REDIS_SERVER", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "")
	if s := run(); !s.Skipped {
		t.Error("without a server the test was not skipped")
	}
	t.Setenv("CI", "true")
	if s := run(); !s.Failed {
		t.Error("without a server the test did not fail in CI")
	}
	t.Setenv("KEYHOLD_REDIS_SERVER", os.Args[0]+"-none")
	if s := run(); !s.Failed {
		t.Error("a program that is not there was not refused")
	}
}

func TestSaysWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	if _, err := redisserver.Start(t.Context(), redisserver.Options{Config: []string{"--no-such-setting", "1"}}); err == nil {
		t.Error("a setting that does not exist was accepted")
	} else {
		t.Log(err)
	}
	if _, err := redisserver.Start(t.Context(), redisserver.Options{TLS: true, Cluster: true}); err == nil {
		t.Error("TLS and cluster were accepted")
	}
}
