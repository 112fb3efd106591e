package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

var (
	// errGone: the process had ended before the call was made.
	errGone = errors.New("the worker process is gone")
	// errLost: the process ended before it answered; it may have done what was asked.
	errLost = errors.New("the worker process ended before it answered")
)

// process is the child that runs the application, as its parent sees it. Methods may be called concurrently.
type process struct {
	incarnation
	cmd     *exec.Cmd
	in      io.WriteCloser
	reading lifecycle.Loop
	up      chan struct{} // closed when the application is started
	gone    chan struct{} // closed when the process has ended; err says how
	err     error

	mu struct {
		sync.Mutex
		last    uint64                 // id of the last call
		waiting map[uint64]chan answer // by id of the call
	}
}

// startProcess runs this very program as a worker, and returns when its application is started. When ctx ends, the process
// is killed.
func startProcess(ctx context.Context, dir string, r role) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logIn(dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.CommandContext(ctx, self, r.args(dir)...)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{incarnation: r.incarnation, cmd: cmd, in: in, up: make(chan struct{}), gone: make(chan struct{})}
	p.mu.waiting = map[uint64]chan answer{}
	// Reading ends with the process, never before it: its end is learned there.
	if err := p.reading.Start(context.WithoutCancel(ctx), func(context.Context) { p.read(out) }); err != nil {
		return nil, err
	}
	select {
	case <-p.up:
		return p, nil
	case <-p.gone:
		return nil, fmt.Errorf("the worker process did not start (%w): see %s", p.err, logIn(dir))
	}
}

func (p *process) runs() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// read hands out answers until the process ends.
func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue // cut off by the kill
		}
		p.deliver(a)
	}
	p.err = p.cmd.Wait()
	close(p.gone)
}

func (p *process) deliver(a answer) {
	if a.ID == 0 {
		close(p.up)
		return
	}
	p.mu.Lock()
	waiting := p.mu.waiting[a.ID]
	delete(p.mu.waiting, a.ID)
	p.mu.Unlock()
	if waiting != nil {
		waiting <- a // has room for it
	}
}

func (p *process) expect() (uint64, chan answer) {
	reply := make(chan answer, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.last++
	p.mu.waiting[p.mu.last] = reply
	return p.mu.last, reply
}

// call has the worker do something and waits for the answer. An error is errGone, errLost, or what the worker says.
func (p *process) call(ctx context.Context, c call) (answer, error) {
	if !p.runs() {
		return answer{}, errGone
	}
	var reply chan answer
	c.ID, reply = p.expect()
	if _, err := p.in.Write(line(c)); err != nil {
		return answer{}, errGone
	}
	var a answer
	select {
	case a = <-reply:
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	case <-p.gone:
		select {
		case a = <-reply: // its last word
		default:
			return answer{}, errLost
		}
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", c.Verb, a.Error)
	}
	return a, nil
}

// kill ends the process at once, with SIGKILL where there are signals, and waits for its end.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.gone
	return errors.Join(err, p.reading.Stop(context.Background()))
}

// stop lets the application finish what it has in hand, and waits for the process to end.
func (p *process) stop(ctx context.Context) error {
	err := p.in.Close()
	select {
	case <-p.gone:
		return errors.Join(err, p.err, p.reading.Stop(ctx))
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.kill())
	}
}
