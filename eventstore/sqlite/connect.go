package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dsn names the database at an absolute path, with the parameters given.
func dsn(path string, params url.Values) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/...
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String()
}

// params are those of every connection. Times that the application binds are kept in SQLite's own form, which sorts.
func params() url.Values {
	return url.Values{
		"_busy_timeout": {"5000"}, // another program, such as the sqlite3 shell, may hold a lock
		"_time_format":  {"sqlite"},
		"_error_rc":     {"1"},
		"_pragma":       {"temp_store(memory)"},
	}
}

// writerDSN is for the one connection that writes. An answer to a commit is a promise, so each is synced.
func writerDSN(path string) string {
	p := params()
	p.Set("_journal_mode", "WAL")
	p.Set("_synchronous", "FULL")
	p.Set("_foreign_keys", "1")
	p.Set("_defensive", "1")
	p.Add("_pragma", "cache_size(-65536)")
	p.Add("_pragma", fmt.Sprintf("wal_autocheckpoint(%d)", checkpointPages))
	p.Add("_pragma", fmt.Sprintf("journal_size_limit(%d)", logLimit))
	return dsn(path, p)
}

// readerDSN is for connections that only read: they cannot write, whatever is asked of them.
func readerDSN(path string) string {
	p := params()
	p.Set("mode", "ro")
	p.Add("_pragma", "cache_size(-8192)")
	return dsn(path, p)
}

// attachedDSN is for the connection of an operator that writes. It makes no database, waits for nothing by itself, and leaves it to
// the owner to move the write-ahead log into the database: that takes longer than an act should.
func attachedDSN(path string) string {
	p := params()
	p.Set("mode", "rw")
	p.Set("_busy_timeout", "0")
	p.Set("_synchronous", "FULL")
	p.Set("_foreign_keys", "1")
	p.Set("_defensive", "1")
	p.Add("_pragma", "wal_autocheckpoint(0)")
	return dsn(path, p)
}

// frozenDSN is for connections that read a file that nobody changes.
func frozenDSN(path string) string {
	p := params()
	p.Set("mode", "ro")
	p.Set("immutable", "1")
	return dsn(path, p)
}

// openReaders makes a pool of read-only connections, which are opened as they are needed.
func openReaders(path string, size int) (*sql.DB, error) { return openReadersOf(readerDSN(path), size) }

func openReadersOf(dsn string, size int) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(alone{connector})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// dialer makes a driver's connections into guarded ones.
type dialer struct {
	driver.Connector
	patience time.Duration
	dialed   func(*guarded)
}

func (d dialer) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	g, err := guard(c, d.patience)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	d.dialed(g)
	return g, nil
}

// alone makes connections that cannot reach another database: one that is attached could be written, this one by its other
// name included.
type alone struct{ driver.Connector }

func (a alone) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	r, ok := c.(sqlite.AuthorizerRegisterer)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks what a reader needs", c), c.Close())
	}
	if err := r.RegisterAuthorizer(stayAlone); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func stayAlone(action sqlite.AuthorizerActionCode, _, _, _, _ string) sqlite.AuthorizerReturnCode {
	if action == sqlite.AuthAttach || action == sqlite.AuthDetach {
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

// coded is an error with a result code of SQLite: in production a *sqlite.Error.
type coded interface {
	error
	Code() int
}

// code is SQLite's primary result code of an error, 0 when the error is not SQLite's.
func code(err error) int {
	if e, ok := errors.AsType[coded](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// explain says what a person can do about an error of opening the database.
func explain(path string, err error) error {
	switch code(err) {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("store %s is not a SQLite database: check the path, or restore a backup: %w", path, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("store %s cannot be written: give this user the right to write the file and its directory: %w", path, err)
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("store %s cannot be opened: check the rights on the file and its directory: %w", path, err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("store %s is locked by a program that is no Keyhold node: end its transaction: %w", path, err)
	}
	return fmt.Errorf("open store %s: %w", path, err)
}
