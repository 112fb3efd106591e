package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// connect reaches the servers and finds out what they are. It is idempotent; [Transport.disconnect] undoes it.
func (t *Transport) connect(ctx context.Context) error {
	if t.fault != nil {
		return fmt.Errorf("redis: the configuration cannot be used:\n%w", t.fault)
	}
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if t.conn.Load() != nil {
		return nil
	}
	found, err := t.cfg.reach(ctx)
	if err != nil {
		return err
	}
	if err := t.calls.Start(ctx); err != nil && !errors.Is(err, lifecycle.ErrStarted) {
		return errors.Join(err, found.close())
	}
	found.aside = t.calls.Go
	names := event.Names{Namespace: t.cfg.Namespace, Cluster: found.cluster}
	if bound := t.bound.Load(); bound != nil {
		names.Keys = bound.keys
	}
	c := &connection{servers: found, names: names, owner: event.NewID()}
	c.port = newPort(t, c)
	t.conn.Store(c)
	return nil
}

// disconnect waits for calls that are under way and closes all connections. It is idempotent.
func (t *Transport) disconnect(ctx context.Context) error {
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if err := t.calls.Stop(ctx); err != nil {
		return err
	}
	c := t.conn.Swap(nil)
	if c == nil {
		return nil
	}
	return c.servers.close()
}

// reach opens the servers: one, or all masters of a Cluster.
func (c *Config) reach(ctx context.Context) (*servers, error) {
	s := &servers{open: c.server}
	s.mu.byAddr = make(map[string]*server)
	first := c.Addrs[0]
	if c.Master != "" {
		first = ""
	}
	var faults []error
	for _, addr := range c.seeds(first) {
		seed, err := s.at(addr)
		if err != nil {
			return nil, err
		}
		if err = s.identify(ctx, seed); err == nil {
			err = s.explore(ctx, seed)
		} else {
			err = c.notLetIn(addr, err)
		}
		if err == nil {
			return s, nil
		}
		faults = append(faults, err)
		delete(s.mu.byAddr, addr) // nobody else has s yet
		faults = append(faults, seed.close())
	}
	return nil, errors.Join(faults...)
}

// seeds are the addresses to begin with. Sentinels are asked by the client library.
func (c *Config) seeds(first string) []string {
	if c.Master != "" {
		return []string{first}
	}
	return c.Addrs
}

// identify asks a server for its version and whether it belongs to a Cluster.
func (s *servers) identify(ctx context.Context, seed *server) error {
	info, err := seed.work.Info(ctx).Result()
	if err != nil {
		return err
	}
	s.version = infoField(info, "redis_version")
	major, _, _ := strings.Cut(s.version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return fmt.Errorf("%q is no version of Redis", s.version)
	}
	s.legacy = n < 7
	s.cluster = infoField(info, "cluster_enabled") == "1"
	return nil
}

// explore learns the slots of a Cluster.
func (s *servers) explore(ctx context.Context, seed *server) error {
	if !s.cluster {
		return nil
	}
	s.mu.bySlot = make([]*server, slots)
	return s.learn(ctx, seed, new(question))
}

// infoField takes one field out of what INFO says, "" if it is not there.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if field, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && field == name {
			return value
		}
	}
	return ""
}

// server makes the clients of one server; they connect when they are used.
func (c *Config) server(addr string) *server {
	return &server{addr: addr, work: c.client(addr, c.Dial, c.PoolSize), renewal: c.client(addr, orDialer(c.DialRenewals, c.Dial), 2)}
}

func orDialer(d, otherwise Dialer) Dialer {
	if d == nil {
		return otherwise
	}
	return d
}

// client never repeats anything: not a call, because nobody but its caller knows whether that is harmless, nor a dial, because its caller has a deadline.
func (c *Config) client(addr string, dial Dialer, size int) *goredis.Client {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if c.Master != "" {
		return goredis.NewFailoverClient(&goredis.FailoverOptions{
			MasterName: c.Master, SentinelAddrs: c.Addrs, SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
			Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS, Dialer: dial,
			Protocol: 2, DisableIdentity: true,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
			PoolSize: size, PipelinePoolSize: -1,
		})
	}
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	return goredis.NewClient(&goredis.Options{
		Network: network, Addr: addr, Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS, Dialer: dial,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: quiet,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		PoolSize: size, PipelinePoolSize: -1,
	})
}
