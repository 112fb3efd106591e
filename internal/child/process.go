package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience is how long the children of a killed program may take to be gone.
const patience = 10 * time.Second

// Process is a running program. It is not safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	alive  *os.File // ends when the program and all that it started have ended: they alone hold the other end
	forget func()   // tells the watcher that the process id may soon be another's
	ended  bool
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive says whether the program, or one that it has started, still runs.
func (p *Process) Alive() bool { return !p.ended && !p.over(time.Now().Add(time.Millisecond)) }

// over waits for the end of the program and its children, until then.
func (p *Process) over(deadline time.Time) bool {
	p.alive.SetReadDeadline(deadline)
	_, err := p.alive.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Kill ends the program, and what it has started, with SIGKILL, and returns when all are gone.
func (p *Process) Kill() error {
	if p.ended {
		return nil
	}
	// Stopped first, it can start nothing while its children are looked for.
	send(p.PID(), stop)
	return p.end(append(children(p.PID()), p.PID()))
}

// Quit sends a signal to the program and waits for its end and that of what it has started. What is not gone in time is killed, which is
// no error.
func (p *Process) Quit(signal os.Signal, patience time.Duration) error {
	if p.ended {
		return nil
	}
	family := append(children(p.PID()), p.PID())
	if p.cmd.Process.Signal(signal) == nil && p.over(time.Now().Add(patience)) {
		family = nil
	}
	return p.end(family)
}

// Wait waits until the program, and what it started, have ended by themselves, and says whether it was with success. When ctx ends
// first they are killed.
func (p *Process) Wait(ctx context.Context) (ok bool, err error) {
	for !p.over(time.Now().Add(20 * time.Millisecond)) {
		if ctx.Err() != nil {
			return false, errors.Join(context.Cause(ctx), p.Kill())
		}
	}
	err = p.end(nil)
	return p.cmd.ProcessState.Success(), err
}

func (p *Process) end(family []int) error {
	for _, pid := range family {
		send(pid, kill)
	}
	p.cmd.Wait() // how it ended is known
	if !p.over(time.Now().Add(patience)) {
		return fmt.Errorf("%s was killed, and what it had started still runs", p.cmd.Path)
	}
	p.ended = true
	p.forget()
	return p.alive.Close()
}

// Freeze stops the program, and what it has started, where they are (SIGSTOP).
func (p *Process) Freeze() error {
	if err := send(p.PID(), stop); err != nil {
		return err
	}
	for _, pid := range children(p.PID()) {
		send(pid, stop) // one that has ended meanwhile needs no stop
	}
	return nil
}

// Thaw has them go on (SIGCONT).
func (p *Process) Thaw() error {
	for _, pid := range children(p.PID()) {
		send(pid, cont)
	}
	return send(p.PID(), cont)
}

// children gives the processes whose parent is pid.
func children(pid int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == strconv.Itoa(pid) }) {
		out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
		for line := range strings.Lines(string(out)) {
			var child, parent int
			if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
				found = append(found, child)
			}
		}
		return found
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		// pid (name) state ppid: a name may hold anything, its end is the last parenthesis.
		_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if f := strings.Fields(after); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			found = append(found, child)
		}
	}
	return found
}
