package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"
)

// database/sql closes a connection on its own account when the driver says that it is bad. The statements that were prepared on it
// are closed later, by those who hold them.
func TestStatementsMayBeClosedAfterTheirConnection(t *testing.T) {
	t.Parallel()
	connector, err := sqlite.NewConnector(writerDSN(filepath.Join(t.TempDir(), "store.db")))
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{connector: connector, patience: defaultPatience}
	for range 2 {
		if err := c.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{"SELECT 1", "SELECT 2"} {
			if found, err := c.get(query, nil, new(int)); err != nil || !found {
				t.Fatal(found, err)
			}
		}
		if err := c.conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
			t.Fatal(err)
		}
		if err := c.conn.PingContext(context.Background()); err == nil {
			t.Error("the connection is still open")
		}
		if _, err := c.exec("SELECT 1"); err == nil {
			t.Error("a statement runs without its connection")
		}
		_ = c.close() // says that the connection is done already
	}
}
