package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/inline"
)

func shop(t *testing.T) http.Handler {
	t.Helper()
	store := sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "orders.db"), Setup: orders.CreateTables})
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
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

func TestAShopByHTTP(t *testing.T) {
	t.Parallel()
	face := shop(t)
	for _, c := range []struct {
		method, path, body, key string
		status                  int
		says                    string
	}{
		{"GET", "/orders/o-17", "", "", 404, "there is no order o-17"},
		{"POST", "/orders/o-17", `{"client_id":"c-3","cents":4200}`, "k-1", 200, "{}"},
		{"POST", "/orders/o-17", `{"client_id":"c-3","cents":4200}`, "k-1", 200, "{}"}, // the same again
		{"POST", "/orders/o-17", `{"client_id":"c-3","cents":4200}`, "k-2", 409, "already placed"},
		{"POST", "/orders/o-18", `{"cents":4200}`, "", 400, "client_id"},
		{"POST", "/orders/o-18", `{"cents":`, "", 400, "unexpected EOF"},
		{"POST", "/orders/o-18", `{"client_id":"c-3","cents":1000}`, "", 200, "{}"},
		{"POST", "/orders/o-18/cancel", "", "", 200, "{}"},
		{"POST", "/payments/p-1", `{"order_id":"o-17","cents":4200}`, "", 200, "{}"},
		{"GET", "/orders/o-17", "", "", 200, `"status":"paid"`},
		{"GET", "/orders/o-18", "", "", 200, `"status":"cancelled"`},
		{"GET", "/clients/c-3", "", "", 200, `{"orders":1,"paid":1,"cents":4200,"shipped":1}`},
		{"GET", "/clients/c-4", "", "", 200, `{"orders":0,"paid":0,"cents":0,"shipped":0}`},
		{"GET", "/nothing", "", "", 404, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		if c.key != "" {
			r.Header.Set("Idempotency-Key", c.key)
		}
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
		}
	}
}

func TestAShopThatIsClosedSaysTryAgain(t *testing.T) {
	t.Parallel()
	app := keyhold.New(keyhold.Config{})
	w := httptest.NewRecorder()
	routes(app, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/orders/o-1", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestWhatAnErrorMeansToACaller(t *testing.T) {
	t.Parallel()
	lost := &keyhold.AskError{To: orders.Order.ID("o-1"), Err: errors.New("the link broke"), Unknown: true}
	for name, c := range map[string]struct {
		err     error
		repeats bool
		status  int
	}{
		"done":                              {nil, false, 200},
		"rejected":                          {keyhold.Reject("no"), true, 409},
		"a bad key":                         {keyhold.ErrBadKey, true, 400},
		"nothing was done":                  {keyhold.ErrMailboxFull, false, 503},
		"it may have been done":             {lost, false, 504},
		"it may have been, and may be done": {lost, true, 503},
		"a fault of the program":            {errors.New("what is that"), true, 500},
	} {
		w := httptest.NewRecorder()
		reply(w, http.StatusConflict, c.repeats)(struct{}{}, c.err)
		if w.Code != c.status || (w.Header().Get("Retry-After") != "") != (c.status == 503) {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
}

// What the database says of itself, its host and user among it, is no caller's business.
func TestAClientThatCannotBeReadIsAskedForAgain(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", "postgres://secret@127.0.0.1:1/orders")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := httptest.NewRecorder()
	routes(keyhold.New(keyhold.Config{}), db).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/clients/c-3", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
