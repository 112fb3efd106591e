package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/bench/figures"
)

// manyTasks is how many keys have work all the time.
const manyTasks = 32

// mark is what a behavior told.
type mark struct {
	node, what, key string
	at              time.Time
}

// process is a node that runs.
type process struct {
	name string
	cmd  *exec.Cmd
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// fleet is nodes that share the keys.
type fleet struct {
	spec  spec
	marks chan mark
	last  map[string]mark // the last of each key
	ended map[string]mark // the last end of each key
}

// launch starts a node and waits until it is ready.
func (f *fleet) launch(name string) (*process, error) {
	s := f.spec
	s.Name = name
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) == 3 {
				ns, _ := strconv.ParseInt(fields[2], 10, 64)
				f.marks <- mark{name, fields[0], fields[1], time.Unix(0, ns)}
			}
		}
	}()
	_, err = f.until(20*time.Second, func(m mark) bool { return m.what == "ready" && m.node == name })
	return p, err
}

// until takes marks until one will do, or it is too late.
func (f *fleet) until(patience time.Duration, enough func(mark) bool) (mark, error) {
	late := time.After(patience)
	for {
		select {
		case m := <-f.marks:
			if m.what != "ready" {
				f.last[m.key] = m
			}
			if m.what == "e" {
				f.ended[m.key] = m
			}
			if enough(m) {
				return m, nil
			}
		case <-late:
			return mark{}, errors.New("nodes do not do what is waited for")
		}
	}
}

// pass takes marks for a time.
func (f *fleet) pass(d time.Duration) {
	began := time.Now()
	_, _ = f.until(d, func(mark) bool { return time.Since(began) > d })
}

// loss is a way in which a node goes.
type loss struct {
	name   string
	signal syscall.Signal
	inside bool // behaviors are in a transaction
}

var (
	killed  = loss{"kill -9", syscall.SIGKILL, false}
	stopped = loss{"SIGSTOP", syscall.SIGSTOP, false}
	inside  = loss{"SIGSTOP inside a transaction", syscall.SIGSTOP, true}
	planned = loss{"planned", syscall.SIGTERM, false}
)

// failover has two nodes with work for each key, one of which goes, and tells when the other one goes on.
func (l loss) failover(ctx context.Context, s *settings) error {
	begins, ends, err := l.measure(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	what, reach := "from the signal to the next behavior", fmt.Sprintf("<= %d", (ttl+heartbeat).Milliseconds())
	if l.signal == syscall.SIGTERM {
		what, reach = "from the end of the event in hand to the next behavior", "< 100"
	}
	of := fmt.Sprintf("%s (%d keys), %s, ", l.name, len(begins), what)
	s.sheet.Add(figures.Figure{Name: of + "p50", Value: figures.Quantile(begins, .5), Unit: "ms"})
	s.sheet.Add(figures.Figure{Name: of + "p99", Value: figures.Quantile(begins, .99), Unit: "ms", Reach: reach})
	if l.inside {
		s.sheet.Add(figures.Figure{Name: l.name + ", from the signal to the end of the next behavior, p99", Value: figures.Quantile(ends, .99), Unit: "ms"})
	}
	return nil
}

// measure has a node go several times.
func (l loss) measure(ctx context.Context, s *settings) (begins, ends []time.Duration, err error) {
	servers, err := serve(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	defer servers.stop()
	url, err := servers.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := &fleet{
		spec: spec{Name: "publisher", Postgres: url, Redis: servers.redis.URL(), Inside: l.inside}, marks: make(chan mark, 10_000),
		last: make(map[string]mark), ended: make(map[string]mark),
	}
	app := f.spec.app(tasks)
	if err := app.Start(ctx); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, app.Stop(ctx)) }()
	stays, err := f.launch("node-a")
	if err != nil {
		return nil, nil, err
	}
	defer func() { stays.end() }()
	for n := range s.rounds {
		goes, err := f.launch(fmt.Sprint("node-", n))
		if err != nil {
			return nil, nil, err
		}
		b, e, err := l.once(ctx, f, app, goes)
		goes.end()
		if err != nil {
			return nil, nil, err
		}
		begins, ends = append(begins, b...), append(ends, e...)
	}
	return begins, ends, nil
}

// once has a node go while both have work.
func (l loss) once(ctx context.Context, f *fleet, app *keyhold.App, goes *process) (begins, ends []time.Duration, err error) {
	f.pass(2 * time.Second) // who ranks first for a key has asked for it
	for range 25 {
		var some []any
		for k := range manyTasks {
			for range 12 {
				some = append(some, done{ClientID: key(k)})
			}
		}
		if err := keyhold.Publish(ctx, app, some...); err != nil {
			return nil, nil, err
		}
	}
	seen := make(map[string]bool)
	if _, err := f.until(30*time.Second, func(m mark) bool {
		seen[m.key] = seen[m.key] || m.what == "b"
		return len(seen) >= manyTasks
	}); err != nil {
		return nil, nil, err
	}
	f.pass(2 * time.Second)
	if err := goes.cmd.Process.Signal(l.signal); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	// What it told before is still to be read.
	missing := make(map[string]time.Time)
	first := make(map[string]time.Time)
	for key, m := range f.last {
		if m.node == goes.name && (!l.inside || m.what == "t") {
			missing[key] = began
		}
	}
	open := len(missing)
	_, err = f.until(30*time.Second, func(m mark) bool {
		at, waits := missing[m.key]
		switch {
		case !waits:
		case m.node == goes.name && l.inside:
			if m.what != "t" {
				delete(missing, m.key) // it was not inside any more
			}
		case m.node == goes.name:
		case m.what == "b" && first[m.key].IsZero():
			first[m.key] = m.at
			if l.signal == syscall.SIGTERM {
				at = f.ended[m.key].at
			}
			begins = append(begins, m.at.Sub(at))
		case m.what == "e" && !first[m.key].IsZero():
			ends = append(ends, m.at.Sub(began))
			delete(missing, m.key)
		}
		return len(missing) == 0
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%d of %d keys: %w", len(missing), open, err)
	}
	f.quiet()
	return begins, ends, nil
}

// quiet waits until nothing is done any more.
func (f *fleet) quiet() {
	for at := time.Now(); time.Since(at) < 500*time.Millisecond; {
		if m, err := f.until(400*time.Millisecond, func(mark) bool { return true }); err == nil {
			at = m.at
		}
	}
}
