package prometheus_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/telemetry/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServesWhatWasCountedAndStops(t *testing.T) {
	t.Parallel()
	e, err := prometheus.New(prometheus.Options{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	o := telemetry.New(telemetry.Options{Meters: e.Meters(), NoTraces: true}).Observer(actors.Observer{})
	o.Resumed(event.Unit{Name: "shipping", Key: "c-17"})
	for range 2 { // it may be started again
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err == nil {
			t.Error("started twice")
		}
		addr := e.Addr().String()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		body := get(t, client, "http://"+addr+"/metrics")
		if want := `keyhold_resumes_total{handler="shipping"`; !strings.Contains(body, want) || strings.Contains(body, "c-17") {
			t.Errorf("no %q, or a key, in:\n%s", want, body)
		}
		for range 2 { // idempotent
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Get("http://" + addr + "/metrics"); err == nil {
			t.Error("still serves after Stop")
		}
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", url, r.Status, err)
	}
	return string(body)
}

func TestHandlerIsForAServerOfOnesOwn(t *testing.T) {
	t.Parallel()
	e, err := prometheus.New(prometheus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound} {
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestAnAddressThatOthersReachIsRefused(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{
		"": true, "127.0.0.1:9464": true, "[::1]:9464": true, "localhost:9464": true,
		":9464": false, "0.0.0.0:9464": false, "10.0.0.5:9464": false, "metrics.example:9464": false, "9464": false,
	} {
		_, err := prometheus.New(prometheus.Options{Addr: addr})
		if (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
	}
	if _, err := prometheus.New(prometheus.Options{Addr: "0.0.0.0:9464", Everybody: true}); err != nil {
		t.Error(err)
	}
}

func TestAnAddressInUseIsAClearError(t *testing.T) {
	t.Parallel()
	first, err := prometheus.New(prometheus.Options{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Stop(context.Background()) }()
	second, err := prometheus.New(prometheus.Options{Addr: first.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another Addr") {
		t.Errorf("got %v", err)
	}
}
