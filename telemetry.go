package keyhold

import "github.com/keyhold/keyhold/actors"

// Telemetry tells a monitoring system what an application does: telemetry.New(telemetry.Options{}) for OpenTelemetry. An
// application that names none links none.
type Telemetry interface {
	// Observer gives the observer that the application uses: it records, and passes everything on to next.
	Observer(next Observer) Observer
	// Watch reads gauges from the application, from each start until stop is called.
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
		r.unwatch = stop
	}
	return err
}

// unwatched ends that; it may be called again.
func (r *running) unwatched() error {
	if r.unwatch == nil {
		return nil
	}
	stop := r.unwatch
	r.unwatch = nil
	return stop()
}
