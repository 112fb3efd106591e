package sqlite

import (
	"context"
	"errors"
	"os"

	"modernc.org/sqlite"

	"github.com/keyhold/keyhold/eventstore"
)

// MigrationStatus tells the format of the store at path, 0 where there is none yet, the newest one that this program knows, and what is
// between. It changes nothing, and works beside a process that has the store. A found format above the known one is no error here.
func MigrationStatus(ctx context.Context, path string) (found, known int, pending []eventstore.Migration, err error) {
	all, err := formats(migrations)
	if err != nil {
		return 0, 0, nil, err
	}
	config := Config{Path: path}
	if path, err = config.resolve(); err != nil {
		return 0, len(all), nil, err
	}
	if found, err = formatAt(ctx, path); err != nil {
		return 0, len(all), nil, err
	}
	for _, f := range all[min(found, len(all)):] {
		pending = append(pending, eventstore.Migration{Number: f.number, Name: f.name, SQL: f.script})
	}
	return found, len(all), pending, nil
}

// formatAt reads the format of the file at a path.
func formatAt(ctx context.Context, path string) (found int, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, explain(path, err)
	case info.Size() == 0:
		return 0, nil
	}
	detach := attached(info)
	defer func() { err = errors.Join(err, detach()) }()
	a := Attached{path: path}
	dsns := []string{readerDSN(path)}
	if !a.logged() {
		dsns = append(dsns, frozenDSN(path))
	}
	for _, dsn := range dsns {
		db, opened := openReadersOf(dsn, 1)
		if opened != nil {
			return 0, opened
		}
		found, err = formatOf(ctx, db)
		if err = errors.Join(err, db.Close()); err == nil || !isReadOnly(err) {
			break
		}
	}
	if err != nil {
		return 0, explain(path, err)
	}
	return found, nil
}

// Migrate brings the store at path to the newest format, and makes it where it is not there. It owns the store meanwhile: one that
// another process has gives [*eventstore.OwnedError]. It gives the steps that were taken.
func Migrate(ctx context.Context, path string) (done []eventstore.Migration, err error) {
	config := Config{Path: path}
	resolved, err := config.resolve()
	if err != nil {
		return nil, err
	}
	owner, err := own(ctx, resolved, eventstore.StartOptions{Node: "keyhold migrate"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, owner.release()) }()
	found, _, pending, err := MigrationStatus(ctx, resolved)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(writerDSN(resolved))
	if err != nil {
		return nil, err
	}
	c := &connection{connector: connector, patience: defaultPatience}
	if err := c.open(ctx); err != nil {
		return nil, explain(resolved, err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	all, err := formats(migrations)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, resolved, c, all, eventstore.StartOptions{}); err != nil {
		if now, _ := formatOf(ctx, c.conn); now > found {
			done = pending[:now-found]
		}
		return done, explainUnlessOwn(resolved, err)
	}
	return pending, nil
}

// explainUnlessOwn leaves an error that tells what to do as it is.
func explainUnlessOwn(path string, err error) error {
	if _, ok := errors.AsType[*eventstore.FormatError](err); ok {
		return err
	}
	return explain(path, err)
}
