package guarantees

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// desk is the application of desk_app_test.go in processes, and an operator outside of them.
type desk struct {
	*testing.T
	dir  string
	life int
	now  *deskProcess // nil when none runs
}

// deskProcess is one life of the application.
type deskProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string   // of its standard output; closed at its end
	gone  chan struct{} // closed when it is; err is settled then
	err   error
	errs  transcript
}

// transcript is what a process writes to standard error, readable meanwhile.
type transcript struct {
	mu   sync.Mutex
	text []byte
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	return len(p), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

func (p *deskProcess) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.lines <- lines.Text()
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.gone)
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	t.Parallel()
	return &desk{T: t, dir: t.TempDir()}
}

// launch starts the next life of the application; false when it ended before it was started.
func (d *desk) launch() bool {
	d.Helper()
	d.life++
	p := &deskProcess{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<16), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=desk %s %d", childVariable, d.dir, d.life))
	p.cmd.Stderr = &p.errs
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		d.Fatal(err)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	go p.read(out)
	d.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.gone
	})
	d.now = p
	return <-p.lines == "started"
}

func (d *desk) start() {
	d.Helper()
	if !d.launch() {
		<-d.now.gone
		d.Fatalf("life %d did not start:\n%s", d.life, d.log())
	}
}

// tell has the application do something, and gives what it said; false when it died of it.
func (d *desk) tell(format string, args ...any) (said []string, ok bool) {
	d.Helper()
	if _, err := fmt.Fprintf(d.now.in, format+"\n", args...); err != nil {
		return nil, false
	}
	for line := range d.now.lines {
		if line == "done" {
			return said, true
		}
		said = append(said, line)
	}
	return said, false
}

// publish opens tickets of clients, all in one commit.
func (d *desk) publish(clients []string, from, to int) {
	d.Helper()
	if _, ok := d.tell("publish %s %d %d", strings.Join(clients, ","), from, to); !ok {
		d.Fatalf("publish: the application is gone:\n%s", d.log())
	}
}

func (d *desk) kill() {
	d.Helper()
	_ = d.now.cmd.Process.Kill()
	<-d.now.gone
	d.now = nil
}

func (d *desk) stop() {
	d.Helper()
	if _, err := fmt.Fprintln(d.now.in, "stop"); err != nil {
		d.Fatal(err)
	}
	if <-d.now.gone; d.now.err != nil {
		d.Fatalf("stop: %v\n%s", d.now.err, d.log())
	}
	d.now = nil
}

// effects gives the tickets that a handler has applied, by client, in the order in which it did.
func (d *desk) effects(handler string) map[string][]int {
	d.Helper()
	said, ok := d.tell("effects %s", handler)
	if !ok {
		d.Fatalf("effects: the application is gone:\n%s", d.log())
	}
	found := map[string][]int{}
	for _, line := range said {
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[len(f)-1])
		if err != nil || len(f) != 3 {
			d.Fatalf("line %q: %v", line, err)
		}
		found[f[1]] = append(found[f[1]], n)
	}
	return found
}

// eventually waits for what another process does.
func (d *desk) eventually(what string, is func() bool) time.Duration {
	d.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > time.Minute {
			d.Fatalf("after a minute still not: %s\n%s", what, d.log())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func (d *desk) log() string {
	if d.now == nil {
		return ""
	}
	return d.now.errs.String()
}

// applied waits until a handler has applied exactly these tickets of a client, in this order.
func (d *desk) applied(handler, client string, numbers ...int) time.Duration {
	d.Helper()
	want := fmt.Sprint(numbers)
	var got []int
	took := d.eventually(fmt.Sprintf("%s of %s has applied %s", handler, client, want), func() bool {
		got = d.effects(handler)[client]
		return len(got) >= len(numbers)
	})
	if fmt.Sprint(got) != want {
		d.Fatalf("%s of %s has applied %v, want %s", handler, client, got, want)
	}
	return took
}

// operator is a person outside of the application's processes, whether one runs or not.
func (d *desk) operator(name string) *admin.Desk {
	d.Helper()
	at, err := sqlite.Attach(d.Context(), filepath.Join(d.dir, "desk.db"))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = at.Close() })
	return admin.New(at, admin.Options{Actor: name})
}

func (d *desk) breakIt(handler, client string, number int, how string) {
	d.Helper()
	if err := os.WriteFile(troubleFile(d.dir, handler, client, number), []byte(how), 0o600); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) mend(handler, client string, number int) {
	d.Helper()
	if err := os.Remove(troubleFile(d.dir, handler, client, number)); err != nil {
		d.Fatal(err)
	}
}

// entered counts how often a handler was given an event, over all lives.
func (d *desk) entered(handler, client string, seq int) (n int) {
	d.Helper()
	file, err := os.ReadFile(filepath.Join(d.dir, "markers"))
	if err != nil {
		d.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "enter" && f[2] == handler+"/"+client && f[3] == strconv.Itoa(seq) {
			n++
		}
	}
	return n
}

// alone fails where two events of one key were in a handler at once.
func (d *desk) alone() {
	d.Helper()
	file, err := os.ReadFile(filepath.Join(d.dir, "markers"))
	if err != nil {
		d.Fatal(err)
	}
	if n, err := judgeMarkers(file); err != nil || n != 0 {
		d.Errorf("overlapping=%d %v", n, err)
	}
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("c-%02d", i))
	}
	return all
}

func upTo(from, to int) (all []int) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}
