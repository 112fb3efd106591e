package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/keyhold/keyhold/eventstore"
)

// standstill is a process that stands still in the middle of what it sends: of the piece with these bytes the server has got what is before them, and nothing
// comes after it, on no connection. The kernel of its host goes on to answer for it.
type standstill struct {
	at    []byte
	still atomic.Bool
	came  chan struct{} // closed when it stands still
	goOn  chan struct{} // closed when it goes on
}

func newStandstill(at string) *standstill {
	return &standstill{at: []byte(at), came: make(chan struct{}), goOn: make(chan struct{})}
}

func (s *standstill) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &still{conn, s}, err
	}
}

type still struct {
	net.Conn
	of *standstill
}

func (c *still) Write(b []byte) (int, error) {
	sent := 0
	if at := bytes.Index(b, c.of.at); at >= 0 && c.of.still.CompareAndSwap(false, true) {
		n, err := c.Conn.Write(b[:at])
		close(c.of.came)
		if err != nil {
			return n, err
		}
		sent = n
	}
	if c.of.still.Load() {
		<-c.of.goOn
	}
	n, err := c.Conn.Write(b[sent:])
	return sent + n, err
}

// TestAProcessThatStandsStillInTheMiddleOfACommitHoldsNobodyUp: what the server has of the commit by then has locked the row of a unit, drawn from a lane, and has the store shared. It is
// neither between two statements, nor has it lost its client, so that nothing that the server does by itself ends it.
func TestAProcessThatStandsStillInTheMiddleOfACommitHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	for who, needs := range map[string]func(ctx context.Context, d *desk) error{
		"the successor in its unit": func(ctx context.Context, d *desk) error {
			found, err := d.store.Raise(ctx, []eventstore.Ask{{Unit: shipping, Generation: 6}})
			if err == nil && !found[0].Raised {
				d.Errorf("raised: %+v", found)
			}
			return err
		},
		"another that draws from the lane": func(ctx context.Context, d *desk) error {
			next := events("a", 2)
			next.Publish = next.Publish[1:]
			done, err := d.store.Begin("another").Commit(ctx, next)
			if err == nil && done.Tails[0].First != 2 {
				d.Errorf("drawn: %+v", done)
			}
			return err
		},
		"a process that starts, the only one": func(ctx context.Context, d *desk) error {
			d.stop()
			d.store = process(t, d.config)
			d.Cleanup(func() {
				if err := d.store.Stop(context.Background()); err != nil {
					d.Error(err)
				}
			})
			_, err := d.store.Start(ctx, eventstore.StartOptions{Relayed: true})
			return err
		},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, eventstore.StartOptions{Relayed: true})
			_, err := d.store.Raise(d.Context(), []eventstore.Ask{{Unit: shipping, Generation: 5}})
			d.must(err)
			d.commit(events("a", 1))
			d.stop()
			d.config.TransactionTimeout = patience
			told := newNotices()
			d.start(eventstore.StartOptions{Relayed: true, Observe: told.observe})
			at := newStandstill("the middle")
			frozen := process(t, d.config)
			frozen.dial = at.dial
			d.begin(frozen, eventstore.StartOptions{Relayed: true})
			half := in("order", events("a", 3))
			half.Publish[1].Data = []byte(`{"text":"the middle"}`)
			half.Fence = eventstore.Fence{Unit: shipping, Generation: 5}
			late := background(func() error {
				_, err := frozen.Begin("frozen").Commit(d.Context(), half)
				return err
			})
			<-at.came
			d.until("the lane is locked", `SELECT NOT EXISTS (SELECT FROM keyhold_lanes WHERE key = 'a' FOR UPDATE SKIP LOCKED)`)
			began := time.Now()
			ctx, cancel := context.WithTimeout(d.Context(), 20*time.Second)
			defer cancel()
			if err := needs(ctx, d); err != nil {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			t.Logf("goes on after %v", time.Since(began))
			close(at.goOn)
			if err := <-late; !errors.Is(err, eventstore.ErrTrouble) {
				t.Errorf("the one that stood still: %v", err)
			}
			if strings.HasSuffix(who, "the only one") {
				return
			}
			if n := told.wait(t, "session that stood still was ended"); !strings.Contains(n.Error.Error(), "is free") {
				t.Errorf("told: %v", n.Error)
			}
		})
	}
}

// owes has the server wait for the rest of something that a session has sent; pay sends it.
func (d *desk) owes(conn *pgx.Conn) (pay func()) {
	d.Helper()
	send := func(m pgproto3.FrontendMessage) {
		bytes, err := m.Encode(nil)
		d.must(err)
		_, err = conn.PgConn().Conn().Write(bytes)
		d.must(err)
	}
	send(&pgproto3.Parse{Query: `SELECT 1`})
	return func() {
		send(&pgproto3.Sync{})
		for { // it is answered
			answer, err := conn.PgConn().Frontend().Receive()
			d.must(err)
			if _, is := answer.(*pgproto3.ReadyForQuery); is {
				break
			}
		}
	}
}

// stillStanding waits until so many sessions of the desk owe something.
func (d *desk) stillStanding(count int) {
	d.Helper()
	d.until("they stand still", fmt.Sprintf(`SELECT count(*) = %d FROM pg_stat_activity WHERE application_name = '%s' AND state = 'active' AND wait_event = 'ClientRead'`, count, d.config.Schema))
}

// wards are those of a process that looks when the test says so.
func (d *desk) wards(own *sessions, adjust ...func(*Config)) *wards {
	d.Helper()
	config := d.config
	for _, f := range adjust {
		f(&config)
	}
	r, err := config.resolve()
	d.must(err)
	w := &wards{own: own}
	w.pool, err = r.openPool(d.Context(), 1, false)
	d.must(err)
	d.Cleanup(w.pool.Close)
	return w
}

// TestWhoIsNotOfTheStoreMayStandStill: sessions that are in the middle of something else, or of a COPY, are nobody's to end.
func TestWhoIsNotOfTheStoreMayStandStill(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	other, copies := d.session(), d.session()
	pay := d.owes(other)
	tx, err := copies.Begin(d.Context())
	d.must(err)
	_, err = tx.Exec(d.Context(), `CREATE TEMPORARY TABLE copied (n int)`)
	d.must(err)
	_, err = tx.Exec(d.Context(), shareStore)
	d.must(err)
	started, copied := make(chan struct{}), make(chan struct{})
	done := background(func() error {
		_, err := copies.PgConn().CopyFrom(d.Context(), readerFunc(func(b []byte) (int, error) {
			select {
			case <-started:
			default:
				close(started)
			}
			<-copied
			return 0, io.EOF
		}), "/* what is\n new */ -- all of it\n copy copied FROM STDIN")
		return err
	})
	<-started
	d.stillStanding(2)
	w := d.wards(new(sessions))
	for range 2 {
		if ended, err := w.look(d.Context(), 0); err != nil || len(ended) > 0 {
			t.Errorf("ended: %v, %v", ended, err)
		}
	}
	close(copied)
	d.must(<-done)
	d.must(tx.Commit(d.Context()))
	pay()
}

// TestWhoOwesSomethingIsEndedByOthersAtTheSecondLook: the process itself sees that it is not frozen, so that it must be its network; and whoever is at something else by the second look
// goes on.
func TestWhoOwesSomethingIsEndedByOthersAtTheSecondLook(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	o := d.store.opened.Load()
	own, others := d.wards(&o.config.own), d.wards(new(sessions))
	conn, err := o.writers.Acquire(d.Context())
	d.must(err)
	defer conn.Release()
	_, err = conn.Exec(d.Context(), beginWork+`; `+shareStore)
	d.must(err)
	look := func(w *wards, want int) {
		t.Helper()
		if ended, err := w.look(d.Context(), 0); err != nil || len(ended) != want {
			t.Errorf("ended: %v, %v; want %d", ended, err, want)
		}
	}
	for range 2 {
		pay := d.owes(conn.Conn())
		d.stillStanding(1)
		look(own, 0)
		look(own, 0)
		look(others, 0)
		pay()
	}
	d.owes(conn.Conn())
	d.stillStanding(1)
	look(others, 0)
	look(others, 1)
}

// TestWhoMayEndNoSessionsSaysSo, once: nothing else tells that what is locked stays so.
func TestWhoMayEndNoSessionsSaysSo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	role := d.config.Schema + "_watcher"
	conn := d.session()
	for _, sql := range []string{`CREATE ROLE ` + role, `GRANT pg_read_all_stats TO ` + role, `GRANT USAGE ON SCHEMA ` + d.config.Schema + ` TO ` + role} {
		_, err := conn.Exec(d.Context(), sql)
		d.must(err)
	}
	_, err := conn.Exec(d.Context(), `BEGIN; `+shareStore)
	d.must(err)
	pay := d.owes(conn)
	d.stillStanding(1)
	w := d.wards(new(sessions), func(c *Config) { c.URL += "&role=" + role })
	told := newNotices()
	for range 4 {
		if _, err := w.look(d.Context(), 0); err != nil {
			w.failed(err, told.observe)
		}
	}
	w.failed(io.EOF, told.observe) // who needs the server finds out by himself
	pay()
	d.same("told", len(told.all), 1)
	if n := told.wait(t, "session that stands still cannot be ended"); !strings.Contains(n.Error.Error(), "must be allowed to end sessions") || code(n.Error) != "42501" {
		t.Errorf("told: %v", n.Error)
	}
}

// readerFunc is what a COPY is read from.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// until looks until a query says so.
func (d *desk) until(what, query string) {
	d.Helper()
	other := d.session()
	ctx, cancel := context.WithTimeout(d.Context(), 30*time.Second)
	defer cancel()
	for so := false; !so; {
		if err := other.QueryRow(ctx, query).Scan(&so); err != nil {
			d.Fatalf("%s: %v", what, err)
		}
	}
}
