package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
)

// watcher reads process ids, the newest counts, until the pipe ends. It is asked for nothing but patience, so it ignores the signals
// that a terminal sends to all.
const watcher = `trap '' HUP INT TERM
pid=
while read -r word; do pid=$word; done
if [ -n "$pid" ]; then
	kill -s "$2" "$pid"; kill -s CONT "$pid"
	n=0
	while [ "$2" != KILL ] && [ $n -lt 30 ] && kill -s 0 "$pid"; do sleep 0.1; n=$((n+1)); done
	kill -s KILL "$pid"
fi 2>/dev/null
rm -rf "$1"
`

// Home is where one program at a time runs. It is not safe for concurrent use.
type Home struct {
	Dir     string // removed by Close, or when this process ends
	pipe    io.WriteCloser
	watcher *exec.Cmd
	process *Process
}

// NewHome makes a folder in the system's temporary folder, which is of the user as, or ours when nil. When this process ends before
// Close, what runs in the home is sent the signal named quit ("KILL", "QUIT"), and SIGKILL three seconds later.
func NewHome(prefix, quit string, as *User) (_ *Home, err error) {
	dir, err := os.MkdirTemp("", prefix+"-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if as != nil {
		if err := os.Chown(dir, int(as.UID), int(as.GID)); err != nil {
			return nil, err
		}
	}
	h := &Home{Dir: dir, watcher: exec.Command("sh", "-c", watcher, "sh", dir, quit)}
	if h.watcher.SysProcAttr, err = attributes(nil); err != nil {
		return nil, err
	}
	if h.pipe, err = h.watcher.StdinPipe(); err != nil {
		return nil, err
	}
	if err := h.watcher.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher of child processes: %w", err)
	}
	return h, nil
}

// Close kills what runs, and removes the folder.
func (h *Home) Close() error {
	if h.process != nil {
		h.process.Kill()
	}
	h.pipe.Close()
	return h.watcher.Wait()
}

// Start runs a program in the home, with nothing on its standard input, and its output and errors appended to the file log. One that
// still runs there is an error. It is in no process group of ours: what a terminal sends does not reach it.
func (h *Home) Start(log string, as *User, path string, args ...string) (_ *Process, err error) {
	if h.process != nil && h.process.Alive() {
		return nil, fmt.Errorf("start %s: the program before it still runs", path)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	alive, held, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer held.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.Dir, out, out
	cmd.ExtraFiles = []*os.File{held}
	if cmd.SysProcAttr, err = attributes(as); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		alive.Close()
		return nil, err
	}
	if _, err := fmt.Fprintln(h.pipe, cmd.Process.Pid); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		alive.Close()
		return nil, fmt.Errorf("watcher of child processes: %w", err)
	}
	h.process = &Process{cmd: cmd, alive: alive, forget: func() { fmt.Fprintln(h.pipe) }}
	return h.process, nil
}

// User is whom a program runs as. Only root can choose.
type User struct{ UID, GID uint32 }
