package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// TestLostReplyIsAnUnknownOutcome: the call was carried out, once, and nobody but the caller repeats it (E5). Asked again at the same generation it comes out the
// same; but for acquire, which gives a new generation.
func TestLostReplyIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redisserver.Run(t, redisserver.Options{Cluster: cluster})
			w, _ := newWorld(t, server, Config{})
			through := proxy.Run(t, server.Addr())
			cfg := w.cfg
			cfg.URL = "redis://" + through.Addr()
			cfg.Dial = dialing(through.Addr()) // a cluster tells the server's own address
			node := w.nodeAt(cfg)
			w.publish(orders, 3, "shipping")
			unknown := func(what string, match *script, err func() error) {
				t.Helper()
				before := calls(t, server)
				happened := through.LoseReply(match.flagged.sha, 0, false)
				if got := err(); !errors.Is(got, partitions.ErrUnknown) {
					t.Errorf("%s: got %v, want ErrUnknown", what, got)
				}
				<-happened
				if n := calls(t, server) - before; n != 1 {
					t.Errorf("%s: ran %d times", what, n)
				}
			}
			acquire := func() error { _, err := node.Port().Acquire(t.Context(), shipping, 0); return err }
			if err := acquire(); err != nil { // the script is known from now on
				t.Fatal(err)
			}
			unknown("acquire", scriptAcquire, acquire)
			h := w.acquire(node, shipping)
			if h.Generation != 3 {
				t.Errorf("granted %d after 1 and one that nobody heard of", h.Generation)
			}
			w.advance(node, h, 1, place(orders, 0))
			unknown("advance", scriptRead, func() error {
				_, err := node.Port().Advance(t.Context(), h, []event.Position{place(orders, 1)}, 1)
				return err
			})
			if got := w.advance(node, h, 1, place(orders, 1)); sequences(got.Entries) != run(orders, 2, 2) {
				t.Errorf("asked again: %s", sequences(got.Entries))
			}
			w.advance(node, h, 5, place(orders, 3))
			if p := w.pending(orders, "shipping"); len(p) > 0 {
				t.Errorf("pending: %v", p)
			}
			if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
				t.Fatal(err)
			}
			unknown("renew", scriptRenew, func() error { return node.Port().Renew(t.Context(), []partitions.Held{h})[0] })
			other := w.acquire(node, event.Unit{Name: "billing", Key: "k-1"})
			w.release(node, other, false)
			unknown("release", scriptRelease, func() error { return node.Port().Release(t.Context(), h, false) })
			w.release(node, h, false)
		})
	}
}

// calls is how many scripts a server ran.
func calls(t *testing.T, server *redisserver.Server) int64 {
	t.Helper()
	all, err := server.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all["evalsha"] + all["eval"]
}

func TestScriptsThatWereFlushedAreSentAgain(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, node := newWorld(t, server, Config{})
	w.publish(orders, 2, "shipping")
	for at := range event.Sequence(2) {
		h := w.acquire(node, shipping)
		if err := server.FlushScripts(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.advance(node, h, 1, place(orders, at)); sequences(got.Entries) != run(orders, at+1, at+1) {
			t.Errorf("got %s", sequences(got.Entries))
		}
		if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
			t.Error(err)
		}
		w.release(node, h, false)
	}
}

// TestServerThatIsGoneIsPlainTrouble: nothing was sent, so nothing is unknown.
func TestServerThatIsGoneIsPlainTrouble(t *testing.T) {
	t.Parallel()
	w, _ := setup(t)
	through := proxy.Run(t, w.server.Addr())
	cfg := w.cfg
	cfg.URL = "redis://" + through.Addr()
	node := w.nodeAt(cfg)
	w.acquire(node, shipping)
	through.Stop()
	for range 20 { // connections that were open may die in the middle of a call; then there is none
		_, err := node.Port().Acquire(t.Context(), shipping, 0)
		if err == nil {
			t.Fatal("granted by nobody")
		}
		if !errors.Is(err, partitions.ErrUnknown) {
			return
		}
	}
	t.Error("a refused connection counts as unknown")
}

// TestServerThatDoesNotAnswerIsUnknown: within the timeout, whatever the caller's deadline.
func TestServerThatDoesNotAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, _ := newWorld(t, server, Config{})
	through := proxy.Run(t, server.Addr())
	cfg := w.cfg
	cfg.URL, cfg.Timeout = "redis://"+through.Addr(), time.Second
	node := w.nodeAt(cfg)
	h := w.acquire(node, shipping)
	through.Blackhole(proxy.ToClient)
	_, err := node.Port().Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 1)
	if !errors.Is(err, partitions.ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	through.Pass()
}

// TestAtMaxmemoryUnitsGoOn: E1, acquire, renew, read, acknowledge and release are what frees memory. Servers before 7.0 know no flags of scripts; what they let pass a newer
// one lets pass as well when there are none.
func TestAtMaxmemoryUnitsGoOn(t *testing.T) {
	t.Parallel()
	for name, legacy := range map[string]bool{"with flags": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOnAtMaxmemory(t, legacy)
		})
	}
}

func goOnAtMaxmemory(t *testing.T, legacy bool) {
	server := redisserver.Run(t, redisserver.Options{})
	w, a := newWorld(t, server, Config{})
	w.publish(orders, 5, "shipping")
	stuck := w.acquire(a, shipping)
	w.fetch(a, stuck, 3, place(orders, 0))
	w.pass(w.traits().TTL)
	b := w.node()
	b.conn.Load().servers.legacy = legacy
	w.do("config", "set", "maxmemory", 1)
	if err := w.client.Do(t.Context(), "set", "x", "y").Err(); codeOf(err) != codeOOM {
		t.Fatalf("there is memory left: %v", err)
	}
	h := w.acquire(b, shipping)
	if err := b.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
		t.Errorf("renew: %v", err)
	}
	if got := w.fetch(b, h, 10, place(orders, 0)); sequences(got.Entries) != run(orders, 1, 5) {
		t.Errorf("fetch: %s", sequences(got.Entries))
	}
	if got := w.advance(b, h, 10, place(orders, 5)); !got.Drained || w.isBusy(shipping) {
		t.Errorf("advance: %+v", got)
	}
	w.release(b, h, true)
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for text, unknown := range map[string]bool{
		"NOSCRIPT No matching script.":      false,
		"MOVED 3999 127.0.0.1:6381":         false,
		"LOADING Redis is loading":          false,
		"READONLY You can't write against":  false,
		"OOM command not allowed":           false,
		"BUSY Redis is busy":                false,
		"NOPERM User app has no permission": false,
		"WRONGTYPE Operation against a key": true, // a script may have got half way
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: -OOM command not allowed when used memory": false,
		"ERR unknown": true,
	} {
		if got := errors.Is(outcome(replyError(text)), partitions.ErrUnknown); got != unknown {
			t.Errorf("%q: unknown %v, want %v", text, got, unknown)
		}
	}
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	read := &net.OpError{Op: "read", Err: errors.New("reset")}
	for err, unknown := range map[error]bool{dial: false, fmt.Errorf("x: %w", dial): false, read: true, context.DeadlineExceeded: true, errNotSent: false} {
		if got := errors.Is(outcome(err), partitions.ErrUnknown); got != unknown {
			t.Errorf("%v: unknown %v, want %v", err, got, unknown)
		}
	}
	if err := outcome(outcome(read)); strings.Count(err.Error(), partitions.ErrUnknown.Error()) != 1 {
		t.Errorf("said twice: %v", err)
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}
