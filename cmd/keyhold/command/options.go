package command

import (
	"context"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Options are what an application that mounts the command decides. The zero value is the program keyhold.
type Options struct {
	// Name of the command; "" is "keyhold".
	Name string
	// Version is what the command version prints; "" is what the Go tool noted of the build.
	Version string
	// Open opens the store for one run of one command, without taking its ownership; the closer is closed at the end. Nil
	// opens the SQLite file that --db or $KEYHOLD_DB names, and offers the commands of migrate.
	Open func(ctx context.Context) (eventstore.Operations, io.Closer, error)
}

// environment is what a run has from outside; tests replace it.
type environment struct {
	now      func() time.Time
	getenv   func(name string) string
	login    func() string // name of the person at the system
	terminal func(stream any) terminal
	tick     func(d time.Duration) (ticks <-chan time.Time, stop func())
}

func system() environment {
	return environment{
		now:    time.Now,
		getenv: os.Getenv,
		login: func() string {
			if u, err := user.Current(); err == nil {
				return u.Username
			}
			return ""
		},
		terminal: lookAt,
		tick: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		},
	}
}
