package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/inline"
)

func TestProbesTellWhatTheShopIs(t *testing.T) {
	t.Parallel()
	app := keyhold.New(keyhold.Config{Name: "orders", Store: memory.Open(), Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
	app.Register(orders.Order, keyhold.Category{Name: "order", Key: "client_id"})
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	face := probes(ctx, app)
	is := func(when string, health, readiness int) {
		t.Helper()
		for path, want := range map[string]int{"/healthz": health, "/readyz": readiness, "/": 404} {
			w := httptest.NewRecorder()
			face.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			if w.Code != want || w.Code == 503 && strings.TrimSpace(w.Body.String()) == "" {
				t.Errorf("%s, %s: %d %q, want %d", when, path, w.Code, w.Body, want)
			}
		}
	}
	is("before the start", 503, 503)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("started", 200, 200)
	signal()
	is("after the signal", 200, 503) // what is in hand goes on, and no new callers are wanted
	if err := app.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("stopped", 503, 503)
}

func TestAProgramAsksWhetherTheShopIsReady(t *testing.T) {
	t.Parallel()
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	asked := func() (int, string) {
		var out bytes.Buffer
		c := program()
		c.SetArgs([]string{"probe", "--health", address})
		c.SetOut(&out)
		c.SetErr(&out)
		if c.ExecuteContext(t.Context()) != nil {
			return 1, out.String()
		}
		return 0, out.String()
	}
	if code, says := asked(); code == 0 || !strings.Contains(says, "refused") {
		t.Errorf("nobody listens: %d %s", code, says)
	}
	status := http.StatusServiceUnavailable
	stop, err := watched(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("the store is out of reach"))
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if code, says := asked(); code == 0 || !strings.Contains(says, "the store is out of reach") {
		t.Errorf("not ready: %d %s", code, says)
	}
	status = http.StatusOK
	if code, says := asked(); code != 0 {
		t.Errorf("ready: %d %s", code, says)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAProbeNeedsAnAddress(t *testing.T) {
	t.Setenv("ORDERS_HEALTH", "")
	c := program()
	c.SetArgs([]string{"probe"})
	c.SetErr(new(bytes.Buffer))
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "ORDERS_HEALTH") {
		t.Errorf("got %v", err)
	}
	stop, err := watched("", nil)
	if err != nil || stop() != nil {
		t.Errorf("a shop that nobody watches: %v", err)
	}
}
