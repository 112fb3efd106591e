package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/eventstore"
)

// MigrationStatus tells the format of the store in the database at url, 0 where there is none yet, the newest one that this program knows, and
// what is between. It changes nothing, and works beside processes that have the store. A found format above the known one is no error here.
func MigrationStatus(ctx context.Context, url string) (found, known int, pending []eventstore.Migration, err error) {
	all, err := formats(migrations)
	if err != nil {
		return 0, 0, nil, err
	}
	config, err := Config{URL: url}.operated()
	if err != nil {
		return 0, len(all), nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.session(true))
	if err != nil {
		return 0, len(all), nil, fmt.Errorf("store %s cannot be read: %w", config.name, trouble(err))
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if found, err = formatOf(ctx, single{conn}); err != nil {
		return 0, len(all), nil, fmt.Errorf("store %s cannot be read: %w", config.name, trouble(err))
	}
	return found, len(all), migrationsFrom(all, found), nil
}

// migrationsFrom are the steps above a format.
func migrationsFrom(all []format, found int) (steps []eventstore.Migration) {
	for _, f := range all[min(found, len(all)):] {
		steps = append(steps, eventstore.Migration{Number: f.number, Name: f.name, SQL: f.script})
	}
	return steps
}

// Migrate brings the store in the database at url to the newest format, and makes it where it is not there. It has the store alone meanwhile: one that
// a process has started gives [*eventstore.OwnedError]. It gives the steps that were taken.
func Migrate(ctx context.Context, url string) (done []eventstore.Migration, err error) {
	config, err := Config{URL: url}.operated()
	if err != nil {
		return nil, err
	}
	owner, err := own(ctx, config, eventstore.StartOptions{Node: "keyhold migrate"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, owner.close()) }()
	all, err := formats(migrations)
	if err != nil {
		return nil, err
	}
	found, err := formatOf(ctx, single{owner.conn})
	if err != nil {
		return nil, fmt.Errorf("store %s cannot be read: %w", config.name, trouble(err))
	}
	err = config.migrate(ctx, owner.conn, all, eventstore.StartOptions{})
	if now, asked := formatOf(ctx, single{owner.conn}); asked == nil && now > found {
		done = migrationsFrom(all[:now], found)
	}
	return done, err
}
