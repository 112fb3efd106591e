package postgresserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keyhold/keyhold/internal/child"
)

// Options of a server. The zero value is fast, and loses what a machine that stops had not written; killing the server loses nothing.
type Options struct {
	Fsync     bool     // as in production
	StandbyOf *Server  // follows that server by streaming replication, and can be read
	Listen    string   // one more address to listen on beside 127.0.0.1, at the same port, for all who reach it
	HBA       []string // lines of pg_hba.conf before all others: "host all app all scram-sha-256"
	Config    []string // settings, "max_connections=20"; they win over ours
}

// Server is a running PostgreSQL. Its methods must not be called at the same time, except those of database.go.
type Server struct {
	options Options
	bin     string
	as      *child.User
	home    *child.Home
	process *child.Process
	port    int
}

// Start makes a new cluster of databases, starts a server and returns when it answers. [ErrMissing] says that there is none on this
// machine.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{options: o}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.as, err = whom(); err != nil {
		return nil, err
	}
	if s.home, err = child.NewHome("keyhold-postgres", "QUIT", s.as); err != nil { // SIGKILL would leave shared memory behind
		return nil, err
	}
	defer func() {
		if err != nil {
			s.home.Close()
		}
	}()
	if o.StandbyOf != nil {
		err = s.finish(ctx, "pg_basebackup", "--pgdata", s.data(), "--host", o.StandbyOf.home.Dir, "--port", strconv.Itoa(o.StandbyOf.port),
			"--username", role, "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync")
	} else {
		err = s.finish(ctx, "initdb", "--pgdata", s.data(), "--username", role, "--auth", "trust", "--encoding", "UTF8", "--locale", "C",
			"--wal-segsize", "1", "--no-sync", "--no-instructions")
	}
	if err == nil && o.Listen != "" {
		err = s.letIn()
	}
	if err == nil && len(o.HBA) > 0 {
		err = s.admit(o.HBA)
	}
	if err != nil {
		return nil, err
	}
	for range 3 { // another program may take the port between our look and the start
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.run(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

func (s *Server) data() string { return filepath.Join(s.home.Dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.home.Dir, "log") }

// letIn has the server take connections from everywhere: who reaches the address was chosen by whoever gave it.
func (s *Server) letIn() error {
	f, err := os.OpenFile(filepath.Join(s.data(), "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, "host all all all trust")
	return errors.Join(err, f.Close())
}

// admit puts lines before those that say who is let in.
func (s *Server) admit(lines []string) error {
	path := filepath.Join(s.data(), "pg_hba.conf")
	rest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"+string(rest)), 0o600)
}

// finish runs a program that ends by itself.
func (s *Server) finish(ctx context.Context, program string, args ...string) error {
	p, err := s.home.Start(s.log(), s.as, filepath.Join(s.bin, program), args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ok, err := p.Wait(ctx)
	if err != nil || !ok {
		return errors.Join(fmt.Errorf("%s: %s", program, lastLines(s.log())), err)
	}
	return nil
}

// freePort gives a port below those that the system gives to outgoing connections, so that nobody has it while the server is down.
func freePort() (int, error) {
	for range 100 {
		port := 22_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port on the loopback interface")
}

func (s *Server) arguments() (args []string) {
	settings := []string{"port=" + strconv.Itoa(s.port), "listen_addresses=127.0.0.1", "unix_socket_directories=" + s.home.Dir,
		"max_connections=200", "shared_buffers=32MB", "jit=off", "logging_collector=off", "log_destination=stderr",
		"max_wal_size=256MB", "wal_level=replica", "hot_standby=on",
		"track_commit_timestamp=on"} // so that a test can see the order of commits
	if s.options.Listen != "" {
		settings = append(settings, "listen_addresses=127.0.0.1,"+s.options.Listen)
	}
	if !s.options.Fsync {
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	args = []string{"-D", s.data()}
	for _, setting := range append(settings, s.options.Config...) {
		args = append(args, "-c", setting)
	}
	return args
}

func (s *Server) run(ctx context.Context) (err error) {
	if s.process, err = s.home.Start(s.log(), s.as, filepath.Join(s.bin, "postgres"), s.arguments()...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		if !s.process.Alive() {
			return errors.Join(fmt.Errorf("postgres ended as it started: %s", lastLines(s.log())), s.Kill())
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("postgres did not get ready: %w: %s", err, lastLines(s.log())), s.Kill())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func lastLines(log string) string {
	text, _ := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// Stop ends the server and removes its files.
func (s *Server) Stop() error {
	if err := s.process.Quit(syscall.SIGQUIT, 3*time.Second); err != nil {
		return err
	}
	return s.home.Close()
}

// Kill ends the server and all its processes with SIGKILL, as if the machine were gone. [Server.Restart] brings it back.
func (s *Server) Kill() error {
	err := s.process.Kill()
	// Nobody is left who could need its lock and its piece of shared memory, whose number is the last word of the file's seventh line.
	lock := filepath.Join(s.data(), "postmaster.pid")
	text, _ := os.ReadFile(lock)
	if lines := strings.Split(string(text), "\n"); len(lines) > 6 {
		if memory := strings.Fields(lines[6]); len(memory) == 2 {
			exec.Command("ipcrm", "-m", memory[1]).Run() // where there is no ipcrm it stays: 56 bytes
		}
	}
	os.Remove(lock)
	return err
}

// Shutdown ends the server in an orderly way: sessions are told (57P01, admin shutdown), what they had under way is rolled back.
func (s *Server) Shutdown() error { return s.process.Quit(syscall.SIGINT, 30*time.Second) }

// Freeze stops the server and all its processes where they are (SIGSTOP): connections stay, and nothing is answered.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw has them go on (SIGCONT).
func (s *Server) Thaw() error { return s.process.Thaw() }

// Restart starts the server again at the same address. One that still runs is ended first, at once and without telling anybody.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.process.Quit(syscall.SIGQUIT, 3*time.Second); err != nil {
		return err
	}
	return s.run(ctx)
}

// Promote makes a standby a primary, whatever has not reached it.
func (s *Server) Promote(ctx context.Context) error {
	if s.options.StandbyOf == nil {
		return errors.New("not a standby")
	}
	c, err := s.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var done bool
	if err := c.QueryRow(ctx, `SELECT pg_promote(true, 30)`).Scan(&done); err != nil || !done {
		return errors.Join(errors.New("the standby was not promoted within 30 s"), err)
	}
	s.options.StandbyOf = nil
	return nil
}
