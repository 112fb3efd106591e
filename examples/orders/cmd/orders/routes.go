package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/examples/orders"
)

// about are the commands about an order that is there, by the last word of their path.
var about = map[string]func() any{"cancel": func() any { return new(orders.CancelOrder) }}

// routes are the shop's face: commands and queries are asked of entities, lists are read from the handlers' tables.
func routes(app *keyhold.App, db *sql.DB) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", command(app, orders.Order.ID, func() any { return new(orders.PlaceOrder) }))
	for verb, empty := range about {
		mux.HandleFunc("POST /orders/{id}/"+verb, command(app, orders.Order.ID, empty))
	}
	mux.HandleFunc("GET /orders/{id}", query(app, orders.Order.ID, func() any { return new(orders.GetOrder) }))
	mux.HandleFunc("POST /payments/{id}", command(app, orders.Payment.ID, func() any { return new(orders.ReceivePayment) }))
	mux.HandleFunc("GET /clients/{id}", client(db))
	return mux
}

// command asks an entity to do what the body says. A caller that got no answer sends it again with the same Idempotency-Key:
// it is done once, and answered the same.
func command(app *keyhold.App, entity func(id string) keyhold.Ref, empty func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in := empty()
		if r.ContentLength != 0 {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(in); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		var opts []keyhold.AskOption
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			opts = append(opts, keyhold.CommandID(key))
		}
		reply(w, http.StatusConflict, len(opts) > 0)(keyhold.Ask[any](r.Context(), app, entity(r.PathValue("id")), in, opts...))
	}
}

func query(app *keyhold.App, entity func(id string) keyhold.Ref, empty func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusNotFound, true)(keyhold.Ask[any](r.Context(), app, entity(r.PathValue("id")), empty()))
	}
}

// client shows what the handlers have written of a client. It may be a moment behind the orders.
func client(db *sql.DB) http.HandlerFunc {
	type view struct {
		Orders  int `json:"orders"`
		Paid    int `json:"paid"`
		Cents   int `json:"cents"`
		Shipped int `json:"shipped"`
	}
	read := func(ctx context.Context, id string) (any, error) {
		var v view
		err := db.QueryRowContext(ctx, `
			SELECT orders, paid, cents, (SELECT count(*) FROM shipments s WHERE s.client_id = c.client_id AND recalled = 0)
			FROM orders_per_client c WHERE client_id = $1`, id).Scan(&v.Orders, &v.Paid, &v.Cents, &v.Shipped)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return v, err
	}
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := read(r.Context(), r.PathValue("id"))
		if err != nil { // which says more of the database than callers need
			unavailable(w, "the database cannot be read")
			return
		}
		reply(w, http.StatusNotFound, true)(v, nil)
	}
}

// reply writes an answer, or what an error means to an HTTP client. no is the status of a rejection; repeats: asking again does nothing twice.
func reply(w http.ResponseWriter, no int, repeats bool) func(v any, err error) {
	return func(v any, err error) {
		var ask *keyhold.AskError
		unknown := errors.As(err, &ask) && ask.Unknown // the answer was lost, with the node that had it or the way to it
		switch {
		case errors.Is(err, keyhold.ErrRejected):
			http.Error(w, err.Error(), no)
		case errors.Is(err, keyhold.ErrBadKey):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case unknown && !repeats:
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
		case unknown, keyhold.Retryable(err):
			unavailable(w, err.Error())
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // a client that is gone wants no answer
		}
	}
}

// unavailable has a caller ask again.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}
