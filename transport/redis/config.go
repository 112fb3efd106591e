package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Defaults of [Config].
const (
	DefaultTTL         = 15 * time.Second
	DefaultMaxAhead    = 10_000
	DefaultRetireAfter = time.Hour
	DefaultPoolSize    = 16

	longestTimeout = 3 * time.Second
	shortestTTL    = 100 * time.Millisecond
)

// Dialer opens a connection; network is "tcp" or "unix".
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Config says where Redis is, and how units are leased. URL or Addrs must be set. All nodes of an application must have the same Namespace, TTL, MaxAhead and
// RetireAfter.
type Config struct {
	// URL is redis://user:password@host:6379/0, rediss:// with TLS, or unix:///path/of/socket. Every other field of this type but those that are no plain
	// values may stand in its query, in lower case with underscores: ?ttl=15s&namespace=shop&addr=other:6379. What is set here counts before what the URL says.
	URL string
	// Addrs are further addresses, host:port: of a Cluster, or of its Sentinels.
	Addrs []string
	// Master is the name under which Sentinels know the master; the addresses are those of Sentinels then.
	Master           string
	SentinelUsername string
	SentinelPassword string
	Username         string // of an ACL user; docs/wire.md tells what it must be allowed
	Password         string
	DB               int         // of a server that is no Cluster
	TLS              *tls.Config // nil: none, unless the URL asks for it

	// Namespace goes before every name, so that applications which share a Redis never meet.
	Namespace string

	TTL       time.Duration // of a lease; default 15 s
	Heartbeat time.Duration // between renewals; default TTL/5
	Margin    time.Duration // a lease counts as lost this long before it ends; default TTL/5
	Timeout   time.Duration // of a call; default Heartbeat, at most 3 s

	MaxAhead    int           // entries that a stream keeps at most, read or not; default 10,000
	RetireAfter time.Duration // how long what nobody uses any more is kept; default 1 h
	PoolSize    int           // connections to one server; default 16. Renewals and wakes have their own

	// Dial opens connections, and DialRenewals those of renewals; nil is the standard library's.
	Dial, DialRenewals Dialer
}

// withDefaults gives the settings in full, or everything that is wrong with them.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	if err := c.readURL(); err != nil {
		faults = append(faults, err)
	}
	if c.URL == "" && len(c.Addrs) == 0 { // a name in the environment that is not set must not lead to whatever runs on this machine
		faults = append(faults, errors.New("redis: URL is empty: name the server, such as redis://localhost:6379"))
	}
	c.TTL = or(c.TTL, DefaultTTL)
	c.Heartbeat = or(c.Heartbeat, c.TTL/5)
	c.Margin = or(c.Margin, c.TTL/5)
	c.Timeout = or(c.Timeout, min(c.Heartbeat, longestTimeout))
	c.MaxAhead = or(c.MaxAhead, DefaultMaxAhead)
	c.RetireAfter = or(c.RetireAfter, DefaultRetireAfter)
	c.PoolSize = or(c.PoolSize, DefaultPoolSize)
	return c, errors.Join(append(faults, c.faults()...)...)
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// faults checks values, and those that depend on one another.
func (c *Config) faults() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := (event.Names{Namespace: c.Namespace}).Validate(); err != nil {
		faults = append(faults, err)
	}
	for _, addr := range c.Addrs {
		if addr == "" {
			fault("an address is empty: leave it out, or give host:port")
		}
	}
	switch {
	case c.TTL < shortestTTL:
		fault("TTL is %v, it must be at least %v", c.TTL, shortestTTL)
	case c.Heartbeat < time.Millisecond || c.Margin < time.Millisecond:
		fault("heartbeat is %v and margin %v, each must be at least 1ms", c.Heartbeat, c.Margin)
	case 2*c.Heartbeat > c.TTL-c.Margin:
		fault("heartbeat %v and margin %v leave no time for a second try within a TTL of %v: two heartbeats and the margin must fit into it", c.Heartbeat, c.Margin, c.TTL)
	}
	if c.Timeout < time.Millisecond || c.Timeout > c.TTL-c.Margin {
		fault("timeout is %v, it must be at least 1ms and at most TTL less margin, %v", c.Timeout, c.TTL-c.Margin)
	}
	if c.MaxAhead < 1 {
		fault("max ahead is %d, it must be at least 1", c.MaxAhead)
	}
	if c.RetireAfter < 2*c.TTL {
		fault("retire after is %v, it must be at least twice the TTL of %v", c.RetireAfter, c.TTL)
	}
	if c.PoolSize < 1 {
		fault("pool size is %d, it must be at least 1", c.PoolSize)
	}
	if c.DB < 0 {
		fault("database is %d, it must be 0 or more", c.DB)
	}
	if c.DB != 0 && c.Master == "" && len(c.Addrs) > 1 {
		fault("database is %d, but several addresses are those of a Cluster, which has database 0 alone", c.DB)
	}
	if c.SentinelPassword != "" && c.Master == "" {
		fault("there is a password for Sentinels, but no master to ask them for: set master")
	}
	return faults
}

// parameters are what may stand in the query of a URL.
var parameters = map[string]func(c *Config, values []string) error{
	"addr":              func(c *Config, v []string) error { c.Addrs = append(c.Addrs, v...); return nil },
	"master":            func(c *Config, v []string) error { return text(&c.Master, v) },
	"sentinel_username": func(c *Config, v []string) error { return text(&c.SentinelUsername, v) },
	"sentinel_password": func(c *Config, v []string) error { return text(&c.SentinelPassword, v) },
	"namespace":         func(c *Config, v []string) error { return text(&c.Namespace, v) },
	"ttl":               func(c *Config, v []string) error { return duration(&c.TTL, v) },
	"heartbeat":         func(c *Config, v []string) error { return duration(&c.Heartbeat, v) },
	"margin":            func(c *Config, v []string) error { return duration(&c.Margin, v) },
	"timeout":           func(c *Config, v []string) error { return duration(&c.Timeout, v) },
	"retire_after":      func(c *Config, v []string) error { return duration(&c.RetireAfter, v) },
	"max_ahead":         func(c *Config, v []string) error { return number(&c.MaxAhead, v) },
	"pool_size":         func(c *Config, v []string) error { return number(&c.PoolSize, v) },
	"db":                func(c *Config, v []string) error { return number(&c.DB, v) },
}

// readURL puts what the URL says where nothing is set.
func (c *Config) readURL() error {
	if c.URL == "" {
		return nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the text, in which there may be a password
		}
		return fmt.Errorf("redis URL: %w: write it as redis://user:password@host:6379/0", err)
	}
	var faults []error
	further := c.Addrs
	c.Addrs = nil
	switch u.Scheme {
	case "redis", "rediss":
		host, port := or(u.Hostname(), "localhost"), or(u.Port(), "6379")
		c.Addrs = append(c.Addrs, net.JoinHostPort(host, port))
		if u.Scheme == "rediss" && c.TLS == nil {
			c.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
		}
		if db := strings.Trim(u.Path, "/"); db != "" {
			faults = append(faults, number(&c.DB, []string{db}))
		}
	case "unix":
		c.Addrs = append(c.Addrs, u.Path)
	default:
		faults = append(faults, fmt.Errorf("redis URL begins with %q, it must be redis://, rediss:// or unix://", u.Scheme))
	}
	if password, ok := u.User.Password(); ok && c.Password == "" {
		c.Password = password
	}
	c.Username = or(c.Username, u.User.Username())
	query := u.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		read, ok := parameters[name]
		if !ok {
			faults = append(faults, fmt.Errorf("redis URL has the parameter %q, which means nothing: there are %s", name, strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")))
			continue
		}
		if err := read(c, query[name]); err != nil {
			faults = append(faults, fmt.Errorf("redis URL, parameter %s: %w", name, err))
		}
	}
	c.Addrs = append(c.Addrs, further...)
	return errors.Join(faults...)
}

func text(into *string, values []string) error {
	if *into == "" {
		*into = values[len(values)-1]
	}
	return nil
}

func duration(into *time.Duration, values []string) error {
	d, err := time.ParseDuration(values[len(values)-1])
	if err != nil {
		return errors.New("is no duration, such as 15s or 500ms")
	}
	*into = or(*into, d)
	return nil
}

func number(into *int, values []string) error {
	n, err := strconv.Atoi(values[len(values)-1])
	if err != nil {
		return fmt.Errorf("%q is no number", values[len(values)-1])
	}
	*into = or(*into, n)
	return nil
}
