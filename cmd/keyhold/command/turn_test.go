package command

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// noticing calls a function once something was written to it.
type noticing struct {
	bytes.Buffer
	notice func()
}

func (n *noticing) Write(b []byte) (int, error) {
	w, err := n.Buffer.Write(b)
	if n.notice != nil {
		n.notice()
		n.notice = nil
	}
	return w, err
}

func TestAnActThatWaitsForItsTurnSaysSo(t *testing.T) {
	t.Parallel()
	d := setup(t)
	owner := fmt.Sprintf("process %d (shop@test)", d.owned(t))
	d.env.tick = func(time.Duration) (<-chan time.Time, func()) {
		c := make(chan time.Time, 1)
		c <- time.Time{}
		return c, func() {}
	}
	db, err := sql.Open("sqlite", d.db)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	held, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	exec := func(statement string) {
		if _, err := held.ExecContext(context.Background(), statement); err != nil {
			t.Error(err)
		}
	}
	waiting := "waiting for a turn to write: the program that has the store open, " + owner + ", is in a transaction"
	pause := func(ctx context.Context, notice func()) (code int, said string) {
		errs := &noticing{notice: notice}
		c := d.command("partitions", "pause", "shipping", "client-4")
		c.SetOut(new(bytes.Buffer))
		c.SetErr(errs)
		return Execute(ctx, c), errs.String()
	}

	exec("BEGIN IMMEDIATE")
	ctx, interrupt := context.WithCancel(t.Context())
	code, said := pause(ctx, interrupt)
	if code != ExitError || !strings.HasPrefix(said, waiting) || !strings.HasSuffix(said, "\ninterrupted: it was not done, nothing was changed\n") {
		t.Errorf("interrupted: exit %d: %s", code, said)
	}
	if r := d.run(t, "audit"); strings.Contains(r.out, "pause") {
		t.Errorf("it was done: %s", r.out)
	}
	if code, said := pause(t.Context(), func() { exec("ROLLBACK") }); code != ExitOK || !strings.HasPrefix(said, waiting) {
		t.Errorf("let go: exit %d: %s", code, said)
	}
	if r := d.run(t, "audit"); !strings.Contains(r.out, "pause") {
		t.Errorf("it was not done: %s", r.out)
	}
}
