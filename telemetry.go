package keyhold

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/actors"
)

// Telemetry tells a monitoring system what an application does: telemetry.New(telemetry.Options{}) for OpenTelemetry. An
// application that names none links none.
type Telemetry interface {
	// Observer gives the observer that the application uses: it records, and passes everything on to next.
	Observer(next Observer) Observer
	// Watch reads gauges from the application, from each start until stop is called. stop has a reading that is under way end, and
	// returns when the application is read no more.
	Watch(from actors.Standing) (stop func() error, err error)
}

// watch has telemetry read gauges from what runs.
func (r *running) watch() error {
	t := r.app.cfg.Telemetry
	if t == nil {
		return nil
	}
	stop, err := t.Watch(actors.Standing{Overview: r.app.cfg.Store.Overview, Loads: r.runtime.Loads})
	if err == nil {
		r.watching = &watching{stop: stop}
	}
	return err
}

// watching is what telemetry reads; nil without. Its methods are called by one goroutine at a time.
type watching struct {
	stop  func() error
	ended chan struct{} // nil until it is told to end, closed when it has
	err   error         // of stop
}

// unwatch tells it to end.
func (w *watching) unwatch() {
	if w == nil || w.ended != nil {
		return
	}
	w.ended = make(chan struct{})
	go func() { // a metrics library may wait for others' gauges as well
		defer close(w.ended)
		w.err = w.stop()
	}()
}

// Stop waits until the application is read no more; another call waits on. An error of stop itself keeps nothing open, and is given once.
func (w *watching) Stop(ctx context.Context) (ended bool, err error) {
	if w == nil {
		return true, nil
	}
	w.unwatch()
	select {
	case <-w.ended:
		err, w.err = w.err, nil
		return true, err
	case <-ctx.Done():
		return false, fmt.Errorf("telemetry: metrics are being read and do not end: %w", context.Cause(ctx))
	}
}
