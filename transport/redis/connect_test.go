package redis_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/brokertest"
	"github.com/keyhold/keyhold/transport/redis"
)

// line gives an account as the file of a server has it: all that the application needs, less some commands.
func line(namespace string, less ...string) string {
	words := strings.Fields(strings.TrimPrefix(redis.Config{Namespace: namespace}.ACL("app"), "ACL SETUSER "))
	kept := []string{"user", words[0], "on", ">secret"}
words:
	for _, word := range words[2:] {
		for _, l := range less {
			if word == "+"+l {
				continue words
			}
		}
		kept = append(kept, word)
	}
	return strings.Join(kept, " ")
}

// The account of the documents may do all that this transport does: the suite runs with it.
func TestTheDocumentedAccountIsEnough(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(t *testing.T, store eventstore.Store, id eventstore.Identity) brokertest.Harness {
		w := newScene(t, redisserver.Options{ACL: []string{line("shop") + " +scan +xread"}}) // as who polls has it
		w.namespace = "shop"
		w.cfg.Namespace, w.cfg.Username, w.cfg.Password = "shop", "app", "secret"
		w.settle(t)
		return w.harness(t, store, id)
	})
}

func TestAnAccountThatMayNotIsRefusedWithWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		line string
		want []string
	}{
		{"commands of scripts", line("", "xadd", "smismember", "publish"), []string{"account app may not run SMISMEMBER, XADD, PUBLISH", "ACL SETUSER app on ~* &* -@all +"}},
		{"scripts", line("", "eval", "evalsha"), []string{"EVAL"}},
		{"listening", line("", "subscribe"), []string{"SUBSCRIBE"}},
		{"channels", strings.ReplaceAll(line(""), "&*", "&other"), []string{"PUBLISH", "SUBSCRIBE"}},
		{"keys", strings.ReplaceAll(line(""), "~*", "~other"), []string{"not on the keys"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newScene(t, redisserver.Options{ACL: []string{c.line}})
			w.cfg.Username, w.cfg.Password = "app", "secret"
			tr := w.node(t, "here", nil)
			err := tr.Connect(t.Context())
			if err == nil {
				t.Fatal("connected")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want something about %q", err, want)
				}
			}
			if tr.OwnerID() != "" {
				t.Error("it is connected")
			}
		})
	}
}

// Who is not let in is told by which server, and what to do, in one sentence.
func TestWhoIsNotLetInIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	locked := redisserver.Run(t, redisserver.Options{ACL: []string{line("")}})
	if _, err := locked.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">secret", "~*", "&*", "-@all"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ user, password, want string }{
		"wrong password": {"app", "guess", "see whether user and password are those of this server"},
		"may not ask":    {"mute", "secret", "the account needs +info"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := redis.New(redis.Config{URL: locked.URL(), Username: c.user, Password: c.password})
			err := tr.Connect(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "redis "+locked.Addr()+": ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %q", err, c.want)
			}
			if err := tr.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := locked.Do(t.Context(), "CONFIG", "SET", "requirepass", "secret"); err != nil {
		t.Fatal(err)
	}
	err := redis.Open(locked.URL()).Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it wants a password") {
		t.Errorf("without a password: %v", err)
	}
}

// mute gives an address at which nobody answers.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// Whoever reaches no server, or another one than the URL says, is told what to do.
func TestWhoReachesNoServerIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	plain, sealed := redisserver.Run(t, redisserver.Options{}), redisserver.Run(t, redisserver.Options{TLS: true})
	full := redisserver.Run(t, redisserver.Options{Config: []string{"--maxclients", "1"}})
	one, err := net.Dial("tcp", full.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, err := fmt.Fprint(one, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Read(make([]byte, 16)); err != nil { // it is in
		t.Fatal(err)
	}
	const closed = "127.0.0.1:1" // a port that was free a moment ago may be another test's by now
	const seeServer = "see whether a server runs there and lets this process in, and whether host and port are right"
	for name, c := range map[string]struct {
		cfg  redis.Config
		want string
	}{
		"nobody listens":    {redis.Config{URL: "redis://" + closed}, seeServer},
		"no such host":      {redis.Config{URL: "redis://no-such-host.invalid:6379"}, seeServer},
		"nothing answers":   {redis.Config{URL: "redis://" + mute(t)}, seeServer},
		"TLS is not there":  {redis.Config{URL: "rediss://" + plain.Addr()}, "where it has no TLS, the URL is redis://"},
		"TLS is wanted":     {redis.Config{URL: "redis://" + sealed.Addr()}, "whether it wants TLS (rediss://)"},
		"certificate":       {redis.Config{URL: "rediss://" + sealed.Addr()}, "signed by who Config.TLS (RootCAs), or the system, trusts"},
		"no such database":  {redis.Config{URL: "redis://" + plain.Addr() + "/99"}, "the URL names a database that the server does not have"},
		"no room":           {redis.Config{URL: "redis://" + full.Addr()}, "room for more clients"},
		"no Sentinel there": {redis.Config{URL: "redis://" + closed, Master: "orders"}, seeServer},
		"no Sentinel":       {redis.Config{URL: "redis://" + plain.Addr(), Master: "orders"}, "that is no Sentinel"},
	} {
		if name == "nothing answers" || name == "TLS is not there" {
			c.cfg.Timeout = 500 * time.Millisecond // which is waited for
		}
		tr := redis.New(c.cfg)
		err := tr.Connect(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "redis") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want something about %q", name, err, c.want)
		}
		if err := tr.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestServersThatCannotKeepWhatIsPromisedAreRefused(t *testing.T) {
	t.Parallel()
	master := redisserver.Run(t, redisserver.Options{})
	for name, c := range map[string]struct {
		options redisserver.Options
		want    string
	}{
		"evicting": {redisserver.Options{Config: []string{"--maxmemory-policy", "allkeys-lru"}}, "set it to noeviction"},
		"replica":  {redisserver.Options{ReplicaOf: master}, "takes no writes"},
	} {
		t.Run(name, func(t *testing.T) {
			server := redisserver.Run(t, c.options)
			tr := redis.Open(server.URL())
			err := tr.Connect(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %q", err, c.want)
			}
			if err := tr.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is tried leaves nothing behind.
func TestConnectingLeavesOnlyTheBirth(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		w.connected(t)
		keys, err := w.server.Keys(t.Context(), w.prefix()+"*")
		if err != nil || len(keys) != 1 || keys[0] != w.birth(t) {
			t.Errorf("keys %q, %v", keys, err)
		}
	})
}
