package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// attach opens the store without taking its ownership.
func (s *setting) attach(ctx context.Context) (eventstore.Operations, io.Closer, error) {
	if s.options.Open != nil {
		return s.options.Open(ctx)
	}
	place, err := s.place()
	if err != nil {
		return nil, nil, err
	}
	if isPostgres(place) {
		store, err := postgres.Attach(ctx, place)
		if err != nil {
			return nil, nil, err
		}
		return store, store, nil
	}
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, noFile(place)
	}
	store, err := sqlite.Attach(ctx, place)
	if err != nil {
		return nil, nil, err
	}
	return store, store, nil
}

// place is where the store is: a SQLite file, which may not be there, or the URL of a PostgreSQL database.
func (s *setting) place() (string, error) {
	place := cmp.Or(s.db, s.env.getenv("KEYHOLD_DB"), s.options.DB)
	if place == "" {
		return "", misused("Name the SQLite file of the application, or the postgres:// URL of its database, with --db, or set KEYHOLD_DB.", "no store was named")
	}
	if scheme, _, ok := strings.Cut(place, "://"); ok && !isPostgres(place) {
		// The rest may have a password in it.
		return "", misused("Name the SQLite file of the application, or the postgres:// URL of its database. Stores are databases, not the broker that carries events.", "no store has a URL that begins with %s://", scheme)
	}
	return place, nil
}

func isPostgres(place string) bool {
	return strings.HasPrefix(place, "postgres://") || strings.HasPrefix(place, "postgresql://")
}

// redacted is a place without its password, for what is printed.
func redacted(place string) string {
	if !isPostgres(place) {
		return place
	}
	u, err := url.Parse(place)
	if err != nil {
		return "postgres://..."
	}
	q := u.Query()
	if q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

func noFile(path string) error {
	return missing("Its application makes it at its first start. Look whether --db or KEYHOLD_DB names the right file.", "there is no file %s", path)
}

func noStore(place string) error {
	return missing("Its application makes it at its first start. Look whether --db or KEYHOLD_DB names the right database, and the schema (?search_path=...) if it has one.",
		"there is no Keyhold store in %s", redacted(place))
}

// migrations are those of the options, or of the store that is named.
func (s *setting) migrations() Migrations {
	if s.options.Open != nil {
		return *s.options.Migrations
	}
	return Migrations{
		Status: func(ctx context.Context) (found, known int, pending []eventstore.Migration, err error) {
			place, err := s.place()
			switch {
			case err != nil:
				return 0, 0, nil, err
			case isPostgres(place):
				return postgres.MigrationStatus(ctx, place)
			}
			return sqlite.MigrationStatus(ctx, place)
		},
		Up: func(ctx context.Context) ([]eventstore.Migration, error) {
			place, err := s.place()
			switch {
			case err != nil:
				return nil, err
			case isPostgres(place):
				return postgres.Migrate(ctx, place)
			}
			return sqlite.Migrate(ctx, place)
		},
	}
}
