package redisserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is what an application is told.
func (s *Server) URL() string {
	if s.options.TLS {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Socket is the path of its Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.home.Dir, "socket") }

// TLS is what a client needs to trust the server; nil without [Options.TLS].
func (s *Server) TLS() *tls.Config {
	if s.roots == nil {
		return nil
	}
	return &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}
}

// Do sends one command, on a connection of its own through the Unix socket: so it works whatever a test has done to the port. May be
// called at any time.
func (s *Server) Do(ctx context.Context, command string, args ...any) (any, error) {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket(), MaxRetries: -1, DisableIdentity: true, Protocol: 2})
	defer c.Close()
	answer, err := c.Do(ctx, append([]any{command}, args...)...).Result()
	if err != nil && err != redis.Nil {
		return nil, fmt.Errorf("redis %s: %w", command, err)
	}
	return answer, nil
}

// FlushAll has it forget everything, without its noticing: as a failover to an empty server does, but under the same replication id.
func (s *Server) FlushAll(ctx context.Context) error {
	_, err := s.Do(ctx, "FLUSHALL")
	return err
}

// FlushScripts has it forget the scripts that were loaded.
func (s *Server) FlushScripts(ctx context.Context) error {
	_, err := s.Do(ctx, "SCRIPT", "FLUSH")
	return err
}

// Del deletes keys and says how many there were.
func (s *Server) Del(ctx context.Context, keys ...string) (int64, error) {
	var deleted int64
	for _, key := range keys { // one by one: on a cluster they may be in several slots
		n, err := s.Do(ctx, "DEL", key)
		if err != nil {
			return deleted, err
		}
		deleted += n.(int64)
	}
	return deleted, nil
}

// Trim removes the entries of a stream below an id, read or not.
func (s *Server) Trim(ctx context.Context, stream, below string) (int64, error) {
	n, err := s.Do(ctx, "XTRIM", stream, "MINID", below)
	if err != nil {
		return 0, err
	}
	return n.(int64), nil
}

// Keys gives the names that match.
func (s *Server) Keys(ctx context.Context, pattern string) ([]string, error) {
	answer, err := s.Do(ctx, "KEYS", pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range answer.([]any) {
		names = append(names, name.(string))
	}
	return names, nil
}

// Info gives a section of INFO.
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.Do(ctx, "INFO", section)
	if err != nil {
		return nil, err
	}
	return parseInfo(fmt.Sprint(text)), nil
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// Calls gives how often each command was called since the start or [Server.ResetCalls]: "evalsha" -> 17, "client|setinfo" -> 2.
func (s *Server) Calls(ctx context.Context) (map[string]int64, error) {
	info, err := s.Info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]int64{}
	for name, value := range info {
		count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if calls[strings.TrimPrefix(name, "cmdstat_")], err = strconv.ParseInt(count, 10, 64); err != nil {
			return nil, fmt.Errorf("INFO commandstats: %s: %w", name, err)
		}
	}
	return calls, nil
}

// ResetCalls begins to count anew.
func (s *Server) ResetCalls(ctx context.Context) error {
	_, err := s.Do(ctx, "CONFIG", "RESETSTAT")
	return err
}

// Monitor tells of each command until ctx is done: its line, as MONITOR has it, and whether a script sent it.
func (s *Server) Monitor(ctx context.Context, each func(line string, inScript bool)) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.Socket())
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
		return err
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, command, ok := strings.Cut(lines.Text(), "] "); ok {
			each(command, strings.Contains(lines.Text(), " lua] "))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(lines.Err(), errors.New("redis MONITOR ended"))
}
