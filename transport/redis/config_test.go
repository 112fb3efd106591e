package redis

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestURL(t *testing.T) {
	t.Parallel()
	type want struct {
		Addrs                        []string
		Username, Password, Master   string
		DB                           int
		Namespace                    string
		TTL, Heartbeat, Margin, Wait time.Duration
		TLS                          bool
	}
	usual := want{Addrs: []string{"localhost:6379"}, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second, Wait: 3 * time.Second}
	with := func(change func(*want)) want { w := usual; change(&w); return w }
	for url, want := range map[string]want{
		"redis://":               usual,
		"redis://localhost:6379": usual,
		"redis://cache":          with(func(w *want) { w.Addrs = []string{"cache:6379"} }),
		"rediss://app:s%40e@h:1/2": with(func(w *want) {
			w.Addrs, w.Username, w.Password, w.DB, w.TLS = []string{"h:1"}, "app", "s@e", 2, true
		}),
		"redis://:secret@[::1]:7": with(func(w *want) { w.Addrs, w.Password = []string{"[::1]:7"}, "secret" }),
		"unix:///run/redis.sock":  with(func(w *want) { w.Addrs = []string{"/run/redis.sock"} }),
		"redis://a:1?addr=b:2&addr=c:3&namespace=shop&ttl=1s&master=m": with(func(w *want) {
			w.Addrs, w.Namespace, w.Master = []string{"a:1", "b:2", "c:3"}, "shop", "m"
			w.TTL, w.Heartbeat, w.Margin, w.Wait = time.Second, time.Second/5, time.Second/5, time.Second/5
		}),
	} {
		c, err := (Config{URL: url}).withDefaults()
		if err != nil {
			t.Errorf("%q: %v", url, err)
			continue
		}
		got := usual
		got.Addrs, got.Username, got.Password, got.Master, got.DB, got.Namespace = c.Addrs, c.Username, c.Password, c.Master, c.DB, c.Namespace
		got.TTL, got.Heartbeat, got.Margin, got.Wait, got.TLS = c.TTL, c.Heartbeat, c.Margin, c.Timeout, c.TLS != nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q:\n%s", url, diff)
		}
	}
}

func TestFieldsCountBeforeTheURL(t *testing.T) {
	t.Parallel()
	own := &tls.Config{ServerName: "own", MinVersion: tls.VersionTLS13}
	c, err := (Config{URL: "rediss://u:p@h:1/2?ttl=1s&namespace=a", TTL: 2 * time.Second, Namespace: "b", DB: 3, Password: "q", TLS: own, Addrs: []string{"x:2"}, Master: "m"}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.TTL != 2*time.Second || c.Namespace != "b" || c.DB != 3 || c.Username != "u" || c.Password != "q" || c.TLS != own || strings.Join(c.Addrs, " ") != "h:1 x:2" {
		t.Errorf("got %+v", c)
	}
}

// An empty URL is one that somebody forgot to set: nobody is connected to whatever there is on this machine.
func TestAServerMustBeNamed(t *testing.T) {
	t.Parallel()
	err := Open("").Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "URL is empty: name the server, such as redis://") {
		t.Errorf("got %v", err)
	}
	if _, err := (Config{Addrs: []string{"cache:6379"}}).withDefaults(); err != nil {
		t.Errorf("addresses are enough: %v", err)
	}
}

// TestFaultsComeAllAtOnce, at Connect, and without the password.
func TestFaultsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	err := New(Config{
		URL: "http://app:secret@h?nonsense=1&ttl=soon&max_ahead=many", Namespace: "a:b", Addrs: []string{""}, TTL: 50 * time.Millisecond, Heartbeat: 40 * time.Millisecond,
		Margin: 20 * time.Millisecond, Timeout: time.Minute, MaxAhead: -1, RetireAfter: time.Millisecond, PoolSize: -1, DB: -1, SentinelPassword: "hidden",
	}).Connect(t.Context())
	if err == nil {
		t.Fatal("it can be used")
	}
	for _, want := range []string{
		`"http"`, `parameter "nonsense", which means nothing: there are addr, db, heartbeat`, "parameter ttl: is no duration", `parameter max_ahead: "many" is no number`, `contains ':'`, "an address is empty",
		"TTL is 50ms", "timeout is 1m0s", "max ahead is -1", "retire after is 1ms", "pool size is -1", "database is -1", "password for Sentinels",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("tells a password: %v", err)
	}
	if err := Open("redis://app:secret@%zz").Connect(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if err := Open("127.0.0.1:6379").Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "write it as redis://") {
		t.Errorf("an address without a scheme: %v", err)
	}
	for _, c := range []Config{
		{TTL: time.Second, Heartbeat: 450 * time.Millisecond},
		{Heartbeat: -time.Second},
		{DB: 1, Addrs: []string{"a:1", "b:2"}},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v can be used", c)
		}
	}
}

func TestNobodyThereIsSaid(t *testing.T) {
	t.Parallel()
	err := Open("redis://127.0.0.1:1?addr=127.0.0.1:2").Connect(t.Context())
	if err == nil {
		t.Fatal("it is connected")
	}
	for _, want := range []string{"redis 127.0.0.1:1: ", "redis 127.0.0.1:2: ", "see whether a server runs there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q:\n%v", want, err)
		}
	}
}
