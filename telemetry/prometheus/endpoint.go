package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

// DefaultAddr is where metrics are served when Options name no address.
const DefaultAddr = "127.0.0.1:9464"

// Options say where metrics are served. The zero value is useful.
type Options struct {
	Addr string // host:port; default [DefaultAddr]; port 0 takes a free one
	// Everybody allows an address that others than this machine can reach. The endpoint has no authentication.
	Everybody bool
	// Report is told when serving ends by itself. May be nil.
	Report func(error)
}

// Endpoint serves metrics on /metrics. All methods may be called concurrently.
type Endpoint struct {
	opts     Options
	provider *sdk.MeterProvider
	handler  http.Handler

	serving lifecycle.Loop
	mu      struct {
		sync.Mutex
		server *http.Server // nil unless started
		addr   net.Addr
	}
}

// New makes an endpoint. It listens to nothing yet. The error says which option is wrong.
func New(o Options) (*Endpoint, error) {
	if o.Addr == "" {
		o.Addr = DefaultAddr
	}
	if err := o.fault(); err != nil {
		return nil, fmt.Errorf("metrics endpoint: %w", err)
	}
	registry := client.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("metrics endpoint: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return &Endpoint{opts: o, provider: sdk.NewMeterProvider(sdk.WithReader(reader)), handler: mux}, nil
}

func (o Options) fault() error {
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return fmt.Errorf("Addr is %q: set host:port, such as %s", o.Addr, DefaultAddr)
	}
	if o.Everybody || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("Addr is %q, which others than this machine may reach, and the endpoint has no authentication: use 127.0.0.1, or set Everybody", o.Addr)
	}
	return nil
}

// Meters is what telemetry is given to record with.
func (e *Endpoint) Meters() metric.MeterProvider { return e.provider }

// Handler serves /metrics, for an application that has a server of its own.
func (e *Endpoint) Handler() http.Handler { return e.handler }

// Addr is where it listens; nil unless started.
func (e *Endpoint) Addr() net.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.addr
}

// Start listens and serves. ctx bounds Start alone.
func (e *Endpoint) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.server != nil {
		return errors.New("metrics endpoint: it is started already")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.opts.Addr)
	if err != nil {
		return fmt.Errorf("metrics endpoint: %w: choose another Addr, or stop who has it", err)
	}
	server := &http.Server{Handler: e.handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	err = e.serving.Start(ctx, func(context.Context) {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && e.opts.Report != nil {
			e.opts.Report(fmt.Errorf("metrics endpoint: %w", err))
		}
	})
	if err != nil {
		return errors.Join(fmt.Errorf("metrics endpoint: %w", err), listener.Close())
	}
	e.mu.server, e.mu.addr = server, listener.Addr()
	return nil
}

// Stop lets requests in hand finish until ctx is done, and ends them then. It is idempotent; the endpoint may be started again.
func (e *Endpoint) Stop(ctx context.Context) error {
	e.mu.Lock()
	server := e.mu.server
	e.mu.Unlock()
	if server == nil {
		return nil
	}
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	err = errors.Join(err, e.serving.Stop(context.WithoutCancel(ctx))) // Serve returns at once after either
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.server == server {
		e.mu.server, e.mu.addr = nil, nil
	}
	return err
}
