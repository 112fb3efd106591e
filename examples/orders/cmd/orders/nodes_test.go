package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	operator "github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// started runs the shop as run does, but for its listener.
func started(t *testing.T, db, redis string) http.Handler {
	t.Helper()
	store := storeIn(db)
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: carriedBy(redis), Logger: slog.New(slog.DiscardHandler)})
	app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(orders.FlatRate{Cents: 490}), orders.Clients)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return routes(app, store.Reader())
}

// balanced sends each request to the next process, as a load balancer does.
func balanced(faces ...http.Handler) http.Handler {
	var n atomic.Uint64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		faces[n.Add(1)%uint64(len(faces))].ServeHTTP(w, r)
	})
}

// eventually sends a request again, as a caller does, until the answer has a text.
func eventually(t *testing.T, face http.Handler, method, path, body, says string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Idempotency-Key", path)
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r)
		if w.Code == http.StatusOK && strings.Contains(w.Body.String(), says) {
			return
		}
		if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("%s %s: %d %s, not %s", method, path, w.Code, w.Body, says)
		}
	}
}

// One shop in two processes: whatever one of them is asked is seen by the other.
func TestOneShopInTwoProcesses(t *testing.T) {
	t.Parallel()
	db, redis := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()+"?ttl=4s"
	a, b := started(t, db, redis), started(t, db, redis)
	eventually(t, a, "POST", "/orders/o-17", `{"client_id":"c-3","cents":4200}`, "{}")
	eventually(t, b, "POST", "/orders/o-18", `{"client_id":"c-3","cents":1000}`, "{}")
	eventually(t, b, "POST", "/payments/p-1", `{"order_id":"o-17","cents":4200}`, "{}")
	for _, face := range []http.Handler{a, b} {
		eventually(t, face, "GET", "/clients/c-3", "", `{"orders":2,"paid":1,"cents":5200,"shipped":2}`)
	}
	for i, face := range []http.Handler{a, b, a, b} { // at once, whichever of them has the order
		w := httptest.NewRecorder()
		face.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/orders/o-17", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"client_id":"c-3"`) {
			t.Errorf("ask %d: %d %s", i, w.Code, w.Body)
		}
	}
	eventually(t, balanced(a, b), "POST", "/orders/o-18/cancel", "", "{}")
	eventually(t, b, "GET", "/clients/c-3", "", `{"orders":1,"paid":1,"cents":4200,"shipped":1}`)

	var out bytes.Buffer
	c := program()
	c.SetArgs([]string{"admin", "--db", db, "why", "order", "c-3"})
	c.SetOut(&out)
	c.SetErr(&out)
	if code := operator.Execute(t.Context(), c); code != operator.ExitOK || !strings.Contains(out.String(), "shipping") {
		t.Errorf("exit %d:\n%s", code, &out)
	}
}

func TestThePlaceOfTheStoreDecidesWhatItIs(t *testing.T) {
	t.Parallel()
	for db, want := range map[string]string{
		"orders.db":                            "orders.db",
		"postgres://shop:secret@db:5432/o?x=y": "PostgreSQL, db:5432/o",
		"postgresql://db/o":                    "PostgreSQL, db/o",
	} {
		if got := place(db); got != want {
			t.Errorf("%s is shown as %s", db, got)
		}
		if _, file := storeIn(db).(*sqlite.Store); file != (db == want) {
			t.Errorf("%s is a %T", db, storeIn(db))
		}
	}
	if name := carriedBy("").Name(); name != "local" {
		t.Errorf("without Redis it is carried by %s", name)
	}
	if name := carriedBy("redis://localhost").Name(); name != "redis" {
		t.Errorf("with Redis it is carried by %s", name)
	}
}

// A shop that outgrows its process takes Redis first, then PostgreSQL, or the other way round: each alone works, for one process.
func TestOneProcessWithEitherLineChanged(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(t *testing.T) (db, redis string){
		"postgres": func(t *testing.T) (string, string) { return postgresserver.Database(t), "" },
		"redis": func(t *testing.T) (string, string) {
			return filepath.Join(t.TempDir(), "orders.db"), redisserver.Run(t, redisserver.Options{}).URL() + "?ttl=4s"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, redis := at(t)
			face := started(t, db, redis)
			eventually(t, face, "POST", "/orders/o-17", `{"client_id":"c-3","cents":4200}`, "{}")
			eventually(t, face, "GET", "/clients/c-3", "", `{"orders":1,"paid":0,"cents":4200,"shipped":1}`)
		})
	}
}
