package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/event"
)

// oldest is the oldest version that has what scripts use: XTRIM and XADD by MINID, SMISMEMBER.
const oldest = "6.2"

// probed are the commands that scripts and calls use on keys and channels, each with words that leave nothing behind. KEY is a key that is not there.
var probed = [][]string{
	{"get", "KEY"}, {"mget", "KEY"}, {"set", "KEY", "", "xx"}, {"mset", "KEY", ""}, {"exists", "KEY"}, {"pexpire", "KEY", "1"}, {"pttl", "KEY"}, {"del", "KEY"}, {"unlink", "KEY"},
	{"hset", "KEY", "f", "v"}, {"hget", "KEY", "f"}, {"hmget", "KEY", "f"}, {"hgetall", "KEY"}, {"hdel", "KEY", "f"},
	{"sadd", "KEY", "m"}, {"scard", "KEY"}, {"sscan", "KEY", "0"}, {"sismember", "KEY", "m"}, {"smismember", "KEY", "m"}, {"srem", "KEY", "m"},
	{"xadd", "KEY", "nomkstream", "1-0", "f", "v"}, {"xlen", "KEY"}, {"xrange", "KEY", "-", "+", "count", "1"}, {"xrevrange", "KEY", "+", "-", "count", "1"},
	{"xtrim", "KEY", "maxlen", "0"}, {"xack", "KEY", "g", "1-0"}, {"xpending", "KEY", "g"},
	{"xreadgroup", "group", "g", "c", "streams", "KEY", ">"}, {"xgroup", "create", "KEY", "g", "0"}, {"xinfo", "groups", "KEY"},
	{"time"}, {"info", "replication"},
}

// otherwise needed: scripts by sum or by text, the connection's own, and wakes. A Cluster is asked for its slots.
var needed = []string{"eval", "evalsha", "ping", "select", "subscribe", "unsubscribe", "publish"}
var neededOnCluster = []string{"cluster|slots", "asking"}

// ACL is the line that gives an account of Redis what an application needs, without the password: docs/wire.md shows it.
func (c Config) ACL(user string) string {
	return acl(user, c.Namespace, false)
}

func acl(user, namespace string, cluster bool) string {
	pattern := "*"
	if namespace != "" {
		pattern = namespace + "::*"
	}
	names := slices.Clone(needed)
	if cluster {
		names = append(names, neededOnCluster...)
	}
	for _, words := range probed {
		names = append(names, words[0])
	}
	slices.Sort(names)
	return fmt.Sprintf("ACL SETUSER %s on ~%s &%s -@all +%s", user, pattern, pattern, strings.Join(slices.Compact(names), " +"))
}

// require refuses servers that cannot keep what this transport promises, and says everything that is wrong at once.
func (c *connection) require(ctx context.Context) error {
	var faults []error
	for _, s := range c.servers.all() {
		err := c.requireOf(ctx, s)
		if err != nil && s.addr != "" {
			err = fmt.Errorf("server %s: %w", s.addr, err)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c *connection) requireOf(ctx context.Context, s *server) error {
	info, err := s.work.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask for INFO: %w", err)
	}
	faults := unfit(info)
	refused, err := c.refused(ctx, s)
	if err != nil && len(faults) == 0 {
		faults = append(faults, err)
	}
	if len(refused) > 0 {
		user := s.work.Options().Username
		if user == "" {
			user = "default"
		}
		namespace := c.names.Namespace
		faults = append(faults, fmt.Errorf("account %s may not run %s, or not on the keys and channels of this application: %s",
			user, strings.Join(refused, ", "), acl(user, namespace, c.servers.cluster)))
	}
	return errors.Join(faults...)
}

// unfit is what is wrong with a server, by what INFO says of it.
func unfit(info string) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	version := infoField(info, "redis_version")
	limited := infoField(info, "maxmemory") != "0" && infoField(info, "maxmemory") != ""
	switch {
	case below(version, 6, 2):
		fault("Redis is %s, it must be %s or later, for streams are trimmed by sequence: upgrade it", version, oldest)
	case below(version, 7, 0) && limited:
		fault("Redis is %s and has a maxmemory: before 7.0 nobody could take a lease once it is full, so nobody could make room: upgrade it, or set maxmemory to 0", version)
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		fault("its maxmemory-policy is %s, which drops leases and streams when memory runs short: set it to noeviction (CONFIG SET maxmemory-policy noeviction, or the parameters of a managed service)", policy)
	}
	if role := infoField(info, "role"); role != "master" && role != "" {
		fault("it is a %s of %s:%s, which takes no writes: connect to that one, or to the Sentinels that know it", role, infoField(info, "master_host"), infoField(info, "master_port"))
	}
	return faults
}

// below compares a version such as 7.0.15; one that cannot be read is none of the old ones.
func below(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return err == nil && (a < major || a == major && b < minor)
}

// refused tries what is needed and gives what the account may not do.
func (c *connection) refused(ctx context.Context, s *server) ([]string, error) {
	key := c.birthKey(s) + ":probe"
	probe := &call{script: scriptProbe, server: s, keys: []string{key}}
	channel := mustName(c.names, event.Name{Kind: event.NameWake, Owner: birthOwner})
	for _, words := range append(slices.Clone(probed), []string{"publish", channel, ""}) {
		probe.args = append(probe.args, len(words))
		for _, word := range words {
			probe.args = append(probe.args, word)
		}
	}
	reply, err := c.servers.run(ctx, onWork, probe)
	if codeOf(err) == "NOPERM" {
		return []string{"scripts (EVAL, EVALSHA)"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("try what is needed: %w", err)
	}
	answer, ok := list(reply, 0)
	if !ok {
		return nil, oddReply(scriptProbe, reply)
	}
	var names []string
	for _, name := range answer {
		if text, is := name.(string); is {
			names = append(names, strings.ToUpper(text))
		}
	}
	listening := s.work.Subscribe(ctx, channel)
	defer listening.Close()
	if _, err := listening.Receive(ctx); codeOf(err) == "NOPERM" {
		names = append(names, "SUBSCRIBE")
	} else if err != nil {
		return nil, fmt.Errorf("try to subscribe: %w", err)
	}
	return slices.Compact(names), nil
}

var scriptProbe = newScript("probe")
