// Package prometheus serves an application's metrics to Prometheus, without a collector in between.
//
//	metrics, err := prometheus.New(prometheus.Options{}) // on 127.0.0.1:9464
//	...
//	app := keyhold.New(keyhold.Config{ /* ... */ Telemetry: telemetry.New(telemetry.Options{Meters: metrics.Meters()})})
//	err = metrics.Start(ctx) // and metrics.Stop(ctx) at the end
//
// It listens on the loopback interface, and refuses another one unless told that everybody who reaches it may read: the endpoint has no
// authentication. An application that has a server of its own mounts Handler there instead of calling Start.
package prometheus
