// Command keyhold looks at a store of Keyhold and acts on what is stopped in it. Everything it does is in command, which an
// application can mount under its own root command.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/keyhold/keyhold/cmd/keyhold/command"
)

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Execute(ctx, command.New(command.Options{}))
	release()
	os.Exit(code)
}
