package keyhold_test

import (
	"strings"
	"testing"

	"github.com/keyhold/keyhold"
)

// A broker loses its memory, and another store claims a category before its producer, which runs, has declared it anew: both are told, whoever came first.
func TestTwoProducersOfACategoryAreBothTold(t *testing.T) {
	t.Parallel()
	a := newAbroad(t)
	shop := run(t, a.config(a.file("shop.db"), "shop"), sales)
	sell(t, shop, "ada", 1, 1)
	if err := shop.Ready(); err != nil {
		t.Fatal(err)
	}
	// As it is when the other one has started in the gap.
	if _, err := a.server.Do(t.Context(), "HSET", "sale:__category__", "store", "market"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.server.Do(t.Context(), "DEL", "keyhold:__birth__"); err != nil {
		t.Fatal(err)
	}
	told := func(app *keyhold.App, parts ...string) {
		t.Helper()
		a.until(t, func() bool { return app.Ready() != nil && strings.Contains(app.Ready().Error(), "contradicts") })
		for _, part := range parts {
			if err := app.Ready(); err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	}
	told(shop, "category sale", "store market", "one database")
	claim, err := a.server.Do(t.Context(), "HGET", "sale:__category__", "store:claim")
	if text, is := claim.(string); err != nil || !is || text == "" {
		t.Fatalf("it claims nothing: %v, %v", claim, err)
	}

	// A person finds out that it is the shop's, and says so.
	if _, err := a.server.Do(t.Context(), "DEL", "sale:__category__"); err != nil {
		t.Fatal(err)
	}
	a.until(t, func() bool { return shop.Ready() == nil })

	// The other one goes on.
	now, err := a.server.Do(t.Context(), "TIME")
	if err != nil {
		t.Fatal(err)
	}
	at := now.([]any)[0].(string)
	if _, err := a.server.Do(t.Context(), "HSET", "sale:__category__", "store:claim", "market "+at+"000"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.server.Do(t.Context(), "DEL", "keyhold:__birth__"); err != nil {
		t.Fatal(err)
	}
	told(shop, "store market as well")
}
