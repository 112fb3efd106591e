package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// names shows what is in Redis while the application runs: with the eyes of somebody who has never looked, and what to type to look oneself.
func (s *script) names(ctx context.Context) error {
	client, err := s.busyClient(ctx)
	if err != nil {
		return err
	}
	g := look{ground: s.ground}
	stream, lease := "order:"+client, "shipping:"+client+":__lease__"
	holder := g.text(ctx, "GET", lease)
	owner, generation, _ := cutLast(holder, ":")
	left := time.Duration(g.number(ctx, "PTTL", lease)) * time.Millisecond
	members := g.names(ctx, "*:__members__")
	rows := [][3]string{
		{stream, fmt.Sprintf("stream of %d", g.number(ctx, "XLEN", stream)), "orders of " + client + ", in order; what all have read is trimmed in time"},
		{"order:__partitions__", fmt.Sprintf("set of %d", g.number(ctx, "SCARD", "order:__partitions__")), "clients with a stream"},
		{lease, fmt.Sprintf("ends in %.1f s", left.Seconds()), fmt.Sprintf("%s may ship for %s, at generation %s; it renews each second", g.node(ctx, members, owner), client, generation)},
		{"shipping:__busy__", fmt.Sprintf("set of %d", g.number(ctx, "SCARD", "shipping:__busy__")), "clients that shipping has something to do for"},
		{"shipping:__halted__", fmt.Sprintf("set of %d", g.number(ctx, "SCARD", "shipping:__halted__")), "of these, who wait for a person"},
		{"order:__handlers__", fmt.Sprintf("hash of %d", g.number(ctx, "HLEN", "order:__handlers__")), "who reads orders"},
	}
	if len(members) > 0 {
		id, _, _ := strings.Cut(members[0], ":")
		rows = append(rows, [3]string{id[:min(8, len(id))] + "…:__members__", fmt.Sprintf("hash of %d", g.number(ctx, "HLEN", members[0])), "processes that run"})
	}
	if g.err != nil {
		return fmt.Errorf("look into Redis: %w", g.err)
	}
	_, port, _ := strings.Cut(s.ground.redis.Addr(), ":")
	s.screen.say("")
	s.screen.note("What is in Redis now: %s names (docs/wire.md has what each means). Some of them:", thousands(int(g.number(ctx, "DBSIZE"))))
	s.screen.list(rows)
	s.screen.note("Look yourself, while this runs, in another terminal (with ARGS=-stay the servers stay at the end):")
	s.screen.note("  redis-cli -p %s --scan --pattern '*:%s*'", port, client)
	s.screen.note("  redis-cli -p %s get %s", port, lease)
	s.screen.note("  go run ./examples/orders/cmd/orders admin --db '%s' status", s.ground.DB)
	return nil
}

// busyClient gives a client that somebody has the lease of.
func (s *script) busyClient(ctx context.Context) (string, error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		leases, err := s.ground.redis.Keys(ctx, "shipping:*:__lease__")
		if err != nil {
			return "", err
		}
		if len(leases) > 0 {
			return strings.TrimSuffix(strings.TrimPrefix(leases[0], "shipping:"), ":__lease__"), nil
		}
		if err := wait(ctx, pause); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("nobody took a lease of shipping within %s", patience)
}

// look asks Redis, until something goes wrong.
type look struct {
	ground *ground
	err    error
}

func (l *look) do(ctx context.Context, command string, args ...any) any {
	if l.err != nil {
		return nil
	}
	answer, err := l.ground.redis.Do(ctx, command, args...)
	l.err = err
	return answer
}

func (l *look) number(ctx context.Context, command string, args ...any) int64 {
	n, _ := l.do(ctx, command, args...).(int64)
	return n
}

func (l *look) text(ctx context.Context, command string, args ...any) string {
	text, _ := l.do(ctx, command, args...).(string)
	return text
}

func (l *look) names(ctx context.Context, pattern string) (all []string) {
	if l.err == nil {
		all, l.err = l.ground.redis.Keys(ctx, pattern)
	}
	return all
}

// node gives the name of the process that is an owner of leases.
func (l *look) node(ctx context.Context, members []string, owner string) string {
	for _, name := range members {
		fields, _ := l.do(ctx, "HGETALL", name).([]any)
		for _, field := range fields {
			text, _ := field.(string)
			var m struct{ ID, Node string }
			if i := strings.IndexByte(text, '{'); i >= 0 && json.Unmarshal([]byte(text[i:]), &m) == nil && m.ID == owner {
				return m.Node
			}
		}
	}
	return "a process"
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}
