package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold"
)

// probes answer an orchestrator. healthz: the shop is started; where it is not for long, or not any more, a restart may help. readyz: it takes part in the work, and can be sent
// callers. A shop that does not reach its database or Redis is not ready, but healthy: no restart mends those.
func probes(ctx context.Context, app *keyhold.App) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		var err error
		if !app.Running() {
			err = keyhold.ErrStopping
		}
		tell(w, err)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		err := app.Ready()
		if ctx.Err() != nil {
			err = keyhold.ErrStopping
		}
		tell(w, err, app.Notices()...)
	})
	return mux
}

func tell(w http.ResponseWriter, err error, notices ...string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, strings.Join(append([]string{"ok"}, notices...), "\n")) // a prober that is gone wants no answer
}

// watched serves the probes until it is stopped; without an address it does nothing.
func watched(address string, probes http.Handler) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: probes, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() error {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// probe asks a shop on this machine whether it is ready, for orchestrators that run a program to find out, where an image has no other program.
func probe() *cobra.Command {
	var health string
	c := &cobra.Command{
		Use:   "probe",
		Short: "Ask the shop on this machine whether it is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if health == "" {
				return fmt.Errorf("set --health or $%s to the address that the shop has there", variable("health"))
			}
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			return ready(ctx, health)
		},

		SilenceUsage: true,
	}
	c.Flags().StringVar(&health, "health", "", "address that answers probes")
	fromEnvironment(c, []string{"health"})
	return c
}

func ready(ctx context.Context, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	r.Close = true // it is the only one
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<12))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}
