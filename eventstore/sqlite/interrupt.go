package sqlite

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"sync"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// interrupter stops what runs on a connection. The driver does it only in a call that has a context, and to get the next row is none.
type interrupter struct {
	mu struct {
		sync.Mutex
		db    uintptr     // the connection for SQLite, 0 once it is closed
		timer *time.Timer // nil unless something is to be interrupted
	}
}

// of finds the connection that SQLite knows; the driver keeps it to itself.
func (i *interrupter) of(c driver.Conn) error {
	if w, ok := c.(interface{ Unwrap() driver.Conn }); ok {
		c = w.Unwrap()
	}
	if v := reflect.Indirect(reflect.ValueOf(c)); v.Kind() == reflect.Struct {
		if db := v.FieldByName("db"); db.IsValid() && db.Kind() == reflect.Uintptr {
			i.mu.db = uintptr(db.Uint())
		}
	}
	if i.mu.db == 0 {
		return fmt.Errorf("the driver's %T does not tell what to interrupt", c)
	}
	return nil
}

// after interrupts whatever runs once d is over, and what runs again d later, until rest.
func (i *interrupter) after(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.timer = time.AfterFunc(d, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.mu.timer == nil || i.mu.db == 0 {
			return
		}
		tls := libc.NewTLS()
		defer tls.Close()
		sqlite3.Xsqlite3_interrupt(tls, i.mu.db)
		i.mu.timer.Reset(d)
	})
}

func (i *interrupter) rest() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.timer.Stop()
	i.mu.timer = nil
}

// close is for before the connection is closed.
func (i *interrupter) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.db = 0
}
