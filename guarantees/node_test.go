package guarantees

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	programs "github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/netns"
)

// node is a process of the application, seen from the test.
type node struct {
	spec    nodeSpec
	home    *programs.Home
	process *programs.Process
	client  *http.Client
	host    *netns.Host // where its process is; nil = here
}

// newNode is a node that does not run yet.
func newNode(t *testing.T, spec nodeSpec) *node {
	t.Helper()
	home, err := programs.NewHome("keyhold-node", "KILL", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if found := races(filepath.Join(home.Dir, "log")); found != "" {
			t.Errorf("%s: %s", spec.Name, found)
		}
		if t.Failed() {
			if kept := os.Getenv("KEYHOLD_KEEP"); kept != "" { // a folder for whole logs
				text, _ := os.ReadFile(filepath.Join(home.Dir, "log"))
				os.WriteFile(filepath.Join(kept, spec.Name+".log"), text, 0o600)
			}
			t.Logf("log of %s, its end:\n%s", spec.Name, lastLines(filepath.Join(home.Dir, "log"), 30))
		}
		home.Close()
	})
	spec.Control = filepath.Join(home.Dir, "control")
	return &node{spec: spec, home: home, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", spec.Control)
		},
		DisableKeepAlives: true, // a connection of a former process would be taken for one of this
	}}}
}

// launch starts the process and returns at once.
func (n *node) launch() error {
	os.Remove(n.spec.Control)
	spec, err := json.Marshal(n.spec)
	if err != nil {
		return err
	}
	start := func() (err error) {
		n.process, err = n.home.Start(filepath.Join(n.home.Dir, "log"), nil, os.Args[0], nodeArgument, string(spec))
		return err
	}
	if n.host != nil {
		return n.host.Within(start)
	}
	return start()
}

// started waits until the application has started.
func (n *node) started(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := n.call(ctx, "alive", nil, nil)
		if err == nil {
			return nil
		}
		if !n.process.Alive() {
			return fmt.Errorf("%s ended as it started: %s", n.spec.Name, lastLines(filepath.Join(n.home.Dir, "log"), 10))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not start within a minute: %w: %s", n.spec.Name, err, lastLines(filepath.Join(n.home.Dir, "log"), 10))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *node) start(t *testing.T) {
	t.Helper()
	if err := n.launch(); err != nil {
		t.Fatal(err)
	}
	if err := n.started(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// refusal is an error that the node told.
type refusal struct{ node, op, text string }

func (r *refusal) Error() string { return r.node + ": " + r.op + ": " + r.text }

// call does an operation of the node's control. A nil in or out is none.
func (n *node) call(ctx context.Context, op string, in, out any) error {
	if in == nil {
		in = struct{}{}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/"+op, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := n.client.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", n.spec.Name, op, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", n.spec.Name, op, err)
	}
	if response.StatusCode != http.StatusOK {
		return &refusal{n.spec.Name, op, strings.TrimSpace(string(answer))}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// must is call within half a minute, or the end of the test.
func (n *node) must(t *testing.T, op string, in, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := n.call(ctx, op, in, out); err != nil {
		t.Fatal(err)
	}
}

func (n *node) report(t *testing.T) (r report) {
	t.Helper()
	n.must(t, "report", nil, &r)
	return r
}

// stop has the application stop, and the process end by itself.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.must(t, "stop", nil, nil)
	ok, err := n.process.Wait(t.Context())
	if !ok || err != nil {
		t.Fatalf("%s did not end well: %v\n%s", n.spec.Name, err, lastLines(filepath.Join(n.home.Dir, "log"), 10))
	}
}

func (n *node) kill(t *testing.T) {
	t.Helper()
	if err := n.process.Kill(); err != nil {
		t.Fatal(err)
	}
}

func (n *node) freeze(t *testing.T) {
	t.Helper()
	if err := n.process.Freeze(); err != nil {
		t.Fatal(err)
	}
}

func (n *node) thaw(t *testing.T) {
	t.Helper()
	if err := n.process.Thaw(); err != nil {
		t.Fatal(err)
	}
}

func lastLines(file string, most int) string {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "(there is no log)"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// races gives what the race detector found in a process, also where that was killed, which has no exit code to tell.
func races(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.Join(raceReport.FindAllString(string(text), -1), "\n")
}

var raceReport = regexp.MustCompile(`(?s)WARNING: DATA RACE\n.*?(==================|\z)`)

func TestRacesOfProcessesAreFound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	if got := races(file); got != "" {
		t.Errorf("without a log: %q", got)
	}
	const first, second = "WARNING: DATA RACE\nWrite at 0x1\n==================", "WARNING: DATA RACE\nRead at 0x2, and killed"
	if err := os.WriteFile(file, []byte("level=INFO\n==================\n"+first+"\nlevel=INFO\n==================\n"+second), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := races(file); got != first+"\n"+second {
		t.Errorf("got %q", got)
	}
}

// eventually looks until it is so, for a time that no fault of these tests may exceed. Processes send no signals to a test.
func eventually(t *testing.T, within time.Duration, what string, so func() (bool, error)) {
	t.Helper()
	began := time.Now()
	for {
		ok, err := so()
		if ok {
			return
		}
		if time.Since(began) > within {
			t.Fatalf("not within %v: %s (%v)", within, what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
