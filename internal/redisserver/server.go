package redisserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/internal/child"
)

// ErrMissing: there is no Redis on this machine.
var ErrMissing = errors.New("no redis-server in the path: install it (Debian: apt-get install redis-server), or name it in KEYHOLD_REDIS_SERVER")

// Server is a running Redis. Its methods must not be called at the same time, except those of client.go.
type Server struct {
	options Options
	program string
	home    *child.Home
	process *child.Process
	port    int
	roots   *x509.CertPool // nil without TLS
}

func program() (string, error) {
	if named := os.Getenv("KEYHOLD_REDIS_SERVER"); named != "" {
		if _, err := exec.LookPath(named); err != nil {
			return "", fmt.Errorf("KEYHOLD_REDIS_SERVER: %w", err)
		}
		return named, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// Start starts a server and returns when it answers. [ErrMissing] says that there is none on this machine.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{options: o}
	if s.program, err = program(); err != nil {
		return nil, err
	}
	if s.home, err = child.NewHome("keyhold-redis", "KILL", nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.home.Close()
		}
	}()
	if o.TLS {
		if s.roots, err = writeCertificate(s.home.Dir); err != nil {
			return nil, err
		}
	}
	for range 3 { // another program may take the port between our look and the start
		if s.port, err = freePort(o.Cluster); err != nil {
			return nil, err
		}
		if err = s.run(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

// freePort gives a port below those that the system gives to outgoing connections, so that nobody has it while the server is down.
func freePort(cluster bool) (int, error) {
	for range 100 {
		port := 11_000 + rand.IntN(10_000)
		if free(port) && (!cluster || free(port+10_000)) {
			return port, nil
		}
	}
	return 0, errors.New("no free port on the loopback interface")
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func (s *Server) run(ctx context.Context) error {
	args, err := s.options.arguments(s.home.Dir, s.port)
	if err != nil {
		return err
	}
	log := filepath.Join(s.home.Dir, "log")
	if s.process, err = s.home.Start(log, nil, s.program, args...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		if !s.process.Alive() {
			s.process.Kill()
			return fmt.Errorf("%s ended as it started: %s", s.program, lastLines(log))
		}
		select {
		case <-ctx.Done():
			s.process.Kill()
			return fmt.Errorf("%s did not get ready: %w: %s", s.program, err, lastLines(log))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ready asks whether the server serves, and gives a cluster its slots.
func (s *Server) ready(ctx context.Context) error {
	if !s.options.Cluster {
		info, err := s.Info(ctx, "replication")
		if err != nil {
			return err
		}
		if s.options.ReplicaOf != nil && info["master_link_status"] != "up" {
			return errors.New("not connected with its primary yet")
		}
		if s.options.ReplicaOf != nil && info["role"] != "slave" {
			return fmt.Errorf("role is %s", info["role"])
		}
		_, err = s.Do(ctx, "GET", "ready") // refused while it loads
		return err
	}
	text, err := s.Do(ctx, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	info := parseInfo(fmt.Sprint(text))
	if info["cluster_slots_assigned"] == "0" {
		_, err := s.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		return errors.Join(errors.New("slots were just given"), err)
	}
	if info["cluster_state"] != "ok" {
		return fmt.Errorf("cluster is %s", info["cluster_state"])
	}
	return nil
}

func lastLines(log string) string {
	text, _ := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// Stop kills the server and removes its files.
func (s *Server) Stop() error { return s.home.Close() }

// Kill ends it with SIGKILL. [Server.Restart] brings it back.
func (s *Server) Kill() error { return s.process.Kill() }

// Freeze stops it where it is (SIGSTOP): connections stay, and nothing is answered.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw has it go on (SIGCONT).
func (s *Server) Thaw() error { return s.process.Thaw() }

// Restart kills the server, if it runs, and starts it again at the same address. Without data it has forgotten everything, also what
// AOF had kept; with data, what was on disk is there: without AOF that is nothing.
func (s *Server) Restart(ctx context.Context, withData bool) error {
	if err := s.process.Kill(); err != nil {
		return err
	}
	if !withData {
		for _, pattern := range []string{"appendonlydir", "*.aof", "*.rdb", "nodes.conf"} {
			names, _ := filepath.Glob(filepath.Join(s.home.Dir, pattern))
			for _, name := range names {
				if err := os.RemoveAll(name); err != nil {
					return err
				}
			}
		}
	}
	return s.run(ctx)
}

// Promote makes a replica a primary, whatever has not reached it.
func (s *Server) Promote(ctx context.Context) error {
	if s.options.ReplicaOf == nil {
		return errors.New("not a replica")
	}
	if _, err := s.Do(ctx, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	s.options.ReplicaOf = nil // also after a restart
	return nil
}
