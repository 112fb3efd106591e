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
	// DB is the SQLite file of the store, or the postgres:// URL of its database, where neither --db nor $KEYHOLD_DB names one. It goes with no Open.
	DB string
	// Open opens the store for one run of one command, without taking its ownership; the closer is closed at the end. Nil
	// opens the SQLite file or the PostgreSQL database that --db or $KEYHOLD_DB names.
	Open func(ctx context.Context) (eventstore.Operations, io.Closer, error)
	// Migrations are those of the store that Open opens; without them the command has no migrate. What --db names has its own.
	Migrations *Migrations
}

// Migrations bring a store to the format that the program needs.
type Migrations struct {
	// Status tells the format of the store, 0 where it is not there yet, the newest one that the program knows, and the steps between.
	Status func(ctx context.Context) (found, known int, pending []eventstore.Migration, err error)
	// Up takes the steps, and gives those it took.
	Up func(ctx context.Context) (done []eventstore.Migration, err error)
}

// environment is what a run has from outside; tests replace it.
type environment struct {
	now      func() time.Time
	getenv   func(name string) string
	login    func() string // name of the person at the system
	terminal func(stream any) terminal
	tick     func(d time.Duration) (ticks <-chan time.Time, stop func())
	patience time.Duration // of a shell that waits for completions
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
		patience: 500 * time.Millisecond,
		tick: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		},
	}
}
