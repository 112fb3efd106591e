package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// attach opens the store without taking its ownership.
func (s *setting) attach(ctx context.Context) (eventstore.Operations, io.Closer, error) {
	if s.options.Open != nil {
		return s.options.Open(ctx)
	}
	path, err := s.path()
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, noFile(path)
	}
	store, err := sqlite.Attach(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return store, store, nil
}

// path is the SQLite file of the store, which may not be there.
func (s *setting) path() (string, error) {
	path := cmp.Or(s.db, s.env.getenv("KEYHOLD_DB"), s.options.DB)
	if path == "" {
		return "", misused("Name the SQLite file of the application with --db FILE, or set KEYHOLD_DB.", "no store was named")
	}
	return path, nil
}

func noFile(path string) error {
	return missing("Its application makes it at its first start. Look whether --db or KEYHOLD_DB names the right file.", "there is no file %s", path)
}

// migrations are those of the options, or of the SQLite file.
func (s *setting) migrations() Migrations {
	if s.options.Open != nil {
		return *s.options.Migrations
	}
	return Migrations{
		Status: func(ctx context.Context) (found, known int, pending []eventstore.Migration, err error) {
			path, err := s.path()
			if err != nil {
				return 0, 0, nil, err
			}
			return sqlite.MigrationStatus(ctx, path)
		},
		Up: func(ctx context.Context) ([]eventstore.Migration, error) {
			path, err := s.path()
			if err != nil {
				return nil, err
			}
			return sqlite.Migrate(ctx, path)
		},
	}
}
