package keyhold

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main starts the application, runs it until SIGTERM or an interrupt, and stops it, letting work in hand finish for
// Config.DrainWithin. It ends the process: with status 0 after a clean stop, 1 when the start or the stop failed. A second signal
// ends it at once.
func Main(app *App) {
	if err := run(app); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(app *App) error {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer release()
	if err := app.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	release()
	drain, cancel := context.WithTimeout(context.Background(), app.cfg.DrainWithin)
	defer cancel()
	return app.Stop(drain)
}
