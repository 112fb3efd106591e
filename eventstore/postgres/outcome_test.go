package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/proxy"
)

// behind has the desk's store reach the server through a proxy, on one connection for units of work, and gives that.
func (d *desk) behind() *proxy.Proxy {
	d.Helper()
	d.stop()
	u, err := url.Parse(d.config.URL)
	d.must(err)
	p := proxy.Run(d, u.Host)
	u.Host = p.Addr()
	config := d.config
	config.URL, config.MaxConns = u.String(), 1
	d.store = New(config)
	d.begin(d.store, eventstore.StartOptions{Node: "behind"})
	d.commit(in("warm", events("a", 1))) // every statement is prepared from here on
	d.commit(advancing("a", 0, 1))
	d.commit(advancing("a", 1, 2))
	return p
}

// statement is what a prepared statement is called on the wire, so that the answer to it can be lost.
func statement(query string) string {
	sum := sha256.Sum256([]byte(query))
	return "stmtcache_" + hex.EncodeToString(sum[:24])
}

func TestACommitWhoseAnswerIsLostIsFoundOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	lost := d.behind().LoseReply(statement(`COMMIT`), 0, false)
	done, err := d.store.Begin("owner").Commit(d.Context(), events("a", 2))
	d.must(err)
	<-lost
	d.same("drawn", done.Tails, []event.Tail{{Lane: orders, First: 1, Last: 2}})
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1-warm", "e-a-1", "e-a-2"})
}

func TestACommitThatLeavesNoTraceStaysUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	lost := d.behind().LoseReply(statement(`COMMIT`), 0, false)
	err := <-d.committing(advancing("a", 2, 3))
	<-lost
	if !errors.Is(err, eventstore.ErrUnknownCommit) || errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("commit: %v", err)
	}
	found, err := d.store.Recover(d.Context(), []eventstore.Ask{{Unit: shipping, Lanes: []event.LaneRef{orders}}})
	d.must(err)
	d.same("checkpoint", found[0].Checkpoints[0].Sequence, event.Sequence(3))
}

func TestAConnectionLostBeforeCommitCommitsNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	lost := d.behind().LoseReply(statement(shareStore), 0, false)
	err := <-d.committing(events("a", 2))
	<-lost
	if !errors.Is(err, eventstore.ErrTrouble) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("commit: %v", err)
	}
	d.commit(events("b", 1))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1-warm", "e-b-1"})
}

// The server ended the session while the transaction waited for its last lock: what was sent as COMMIT was never run.
func TestACommitThatWasRolledBackIsFoundOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	release := d.heldUp()
	commit := d.committing(in("held", events("a", 1)))
	d.waiting(1)
	_, err := d.session().Exec(d.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, d.config.Schema)
	d.must(err)
	if err := <-commit; !errors.Is(err, eventstore.ErrTrouble) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("commit: %v", err)
	}
	release()
	ids, _ := d.all("")
	d.same("events", len(ids), 0)
}

// What the server calls the transaction now is that of another one: it committed, and the event is not there.
func TestACommittedTransactionOfSomebodyElseProvesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	o := d.store.opened.Load()
	changes := events("b", 1)
	w := &work{connection: o.connection(d.Context()), changes: &changes}
	d.must(w.lookUpLanes())
	w.done.Tails = []event.Tail{{Lane: w.grown[0].ref, First: 1, Last: 1}}
	d.value(&w.xid, `SELECT pg_current_xact_id()::text`) // a transaction of its own, which commits
	if _, err := o.outcome(d.Context(), w, errors.New("lost")); !errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Errorf("outcome: %v", err)
	}
}

// The place of the process is lost, and somebody else has it, while a COMMIT is on its way: it is the fence that decides, whatever this process hears.
func TestACommitThatIsSentTooLateIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	begun := d.store.Begin("begun before")
	db, err := begun.SQL(d.Context())
	d.must(err)
	_, err = db.ExecContext(d.Context(), `CREATE TABLE mine (n int)`)
	d.must(err)
	_, err = d.raw.Exec(d.Context(), `UPDATE keyhold_store SET start_generation = start_generation + 1, owned_generation = start_generation + 1`)
	d.must(err)
	if _, err := begun.Commit(d.Context(), events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("commit: %v", err)
	}
	var there bool
	d.value(&there, `SELECT to_regclass('mine') IS NOT NULL`)
	d.same("table of the application", there, false)
}
