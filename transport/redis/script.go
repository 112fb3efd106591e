package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Each script is a file of its own, whose head says what it does: keys, arguments, result, errors, cost. Scripts for many units or lanes give one answer for each; an
// answer that is an error concerns that unit or lane alone.
//
//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script as servers know it.
type script struct {
	name    string
	flagged scriptText // with the flags of its first line
	plain   scriptText // without, for servers before 7.0
}

type scriptText struct{ source, sha string }

// newScript takes scripts/NAME.lua.
func newScript(name string) *script {
	content, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("redis: " + err.Error())
	}
	source := string(content)
	plain := source
	if strings.HasPrefix(source, "#!") {
		_, plain, _ = strings.Cut(source, "\n")
	}
	return &script{name: name, flagged: summed(source), plain: summed(plain)}
}

func summed(source string) scriptText {
	sum := sha1.Sum([]byte(source))
	return scriptText{source: source, sha: hex.EncodeToString(sum[:])}
}

// call is one run of a script, on the server that has its first key.
type call struct {
	script *script // nil: args are a command of Redis' own
	keys   []string
	args   []any
	line   []any                // in place of all keys and args, for calls that have many: what [lineOf] began; its first key stands in keys as well
	server *server              // where it is to run, whatever its keys; nil: at the first key's
	aim    func(*call, *server) // sets what depends on the server, before it is sent there; may be nil

	reply any
	err   error // as the server gave it
}

func (c *call) aimAt(s *server) {
	if c.aim != nil {
		c.aim(c, s)
	}
}

// redirections is how often a call follows a slot that moved.
const redirections = 5

// run runs one script. The error is the server's or the connection's own: [outcome] gives it a class.
func (s *servers) run(ctx context.Context, on via, c *call) (any, error) {
	s.runAll(ctx, on, []*call{c})
	return c.reply, c.err
}

// runAll runs several calls, those of one server in one go, and puts the answer of each into it. No call depends on another: a server carries
// them out in order, but one whose script it did not know, or whose slot was elsewhere, runs after the others. Servers of a Cluster are asked at the same time: one that
// does not answer takes the time of the call, and the others' answers would come too late.
func (s *servers) runAll(ctx context.Context, on via, calls []*call) {
	if ctx.Err() != nil {
		for _, c := range calls {
			c.err = notSent(ctx)
		}
		return
	}
	groups := s.byServer(calls)
	left := len(groups)
	over := make(chan struct{}, left)
	aside := 0
	for at, group := range groups {
		ask := func(context.Context) {
			s.runOn(ctx, on, at, group)
			over <- struct{}{}
		}
		if left--; left > 0 && s.aside != nil && s.aside(ask) {
			aside++
			continue
		}
		s.runOn(ctx, on, at, group)
	}
	for range aside {
		<-over
	}
}

// runOn runs the calls of one server.
func (s *servers) runOn(ctx context.Context, on via, at *server, group []*call) {
	if at == nil {
		s.unknownSlots(ctx, group)
		return
	}
	for _, c := range group {
		c.aimAt(at)
	}
	s.send(ctx, on(at), group, false)
	for _, c := range group {
		s.settle(ctx, on, at, c)
	}
}

func (s *servers) byServer(calls []*call) map[*server][]*call {
	groups := make(map[*server][]*call, 1)
	for _, c := range calls {
		at := c.server
		if at == nil {
			at = s.of(c.keys[0])
		}
		groups[at] = append(groups[at], c)
	}
	return groups
}

// unknownSlots is what becomes of calls for slots that no server is known to have: the next call may find one.
func (s *servers) unknownSlots(ctx context.Context, calls []*call) {
	err := s.relearn(ctx)
	for _, c := range calls {
		c.err = errors.Join(fmt.Errorf("%w: no server of the cluster is known to have slot %d", errNotSent, slotOf(c.keys[0])), err)
	}
}

// send sends calls by the sums of their scripts, or, with whole, their scripts themselves, which the server knows from then on.
func (s *servers) send(ctx context.Context, client *goredis.Client, calls []*call, whole bool) {
	if len(calls) == 1 {
		cmd := goredis.NewCmd(ctx, s.command(calls[0], whole)...)
		_ = client.Process(ctx, cmd) // the same error
		calls[0].reply, calls[0].err = cmd.Result()
		return
	}
	pipe := client.Pipeline()
	cmds := make([]*goredis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = pipe.Do(ctx, s.command(c, whole)...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, c := range calls {
		c.reply, c.err = cmds[i].Result()
	}
}

func (s *servers) command(c *call, whole bool) []any {
	if c.script == nil {
		return c.args
	}
	text := &c.script.flagged
	if s.legacy {
		text = &c.script.plain
	}
	args := c.line
	if args == nil {
		args = lineOf(len(c.keys), 3+len(c.keys)+len(c.args))
	}
	args[0], args[1] = "evalsha", text.sha
	if whole {
		args[0], args[1] = "eval", text.source
	}
	if c.line != nil {
		return args
	}
	for _, k := range c.keys {
		args = append(args, k)
	}
	return append(args, c.args...)
}

// lineOf begins the words of a call of a script, which is named as it is sent. The keys come next, then its arguments.
func lineOf(keys, size int) []any {
	line := make([]any, 3, size)
	line[2] = keys
	return line
}

// settle repeats a call that the server refused to begin with, as the refusal says: with the script, or elsewhere.
func (s *servers) settle(ctx context.Context, on via, at *server, c *call) {
	for range redirections {
		switch codeOf(c.err) {
		case codeNoScript:
			s.send(ctx, on(at), []*call{c}, true)
		case codeMoved:
			to, err := s.moved(at, c.err.Error())
			if err != nil {
				c.err = errors.Join(c.err, err)
				return
			}
			at = to
			c.aimAt(at)
			s.send(ctx, on(at), []*call{c}, false)
		case codeAsk:
			to, err := s.moved(at, c.err.Error())
			if err != nil {
				c.err = errors.Join(c.err, err)
				return
			}
			c.aimAt(to)
			s.sendAsking(ctx, on(to), c)
		default:
			s.astray(ctx, c)
			return
		}
	}
}

// astray is for a call that may have gone to a server whose slot another one has by now: the next call may find it. One that hangs does not tell, nor does anybody who drops what is
// sent to a host that is gone: time runs out.
func (s *servers) astray(ctx context.Context, c *call) {
	switch code := codeOf(c.err); {
	case !s.cluster || c.err == nil:
	case code == "CLUSTERDOWN", code == "READONLY", unreached(c.err):
		c.err = errors.Join(c.err, s.relearn(ctx))
	case isTimeout(c.err):
		_ = s.relearn(ctx) // that of a server that was not reached would say that the call was not sent
	}
}

// sendAsking sends a call to a server that is just being given its slot.
func (s *servers) sendAsking(ctx context.Context, client *goredis.Client, c *call) {
	pipe := client.Pipeline()
	pipe.Do(ctx, "asking")
	cmd := pipe.Do(ctx, s.command(c, true)...)
	_, _ = pipe.Exec(ctx) // the command has the error
	c.reply, c.err = cmd.Result()
}

// integer takes a number out of a reply.
func integer(reply any) (int64, bool) {
	n, ok := reply.(int64)
	return n, ok
}

// list takes a list of at least n elements out of a reply.
func list(reply any, n int) ([]any, bool) {
	l, ok := reply.([]any)
	return l, ok && len(l) >= n
}

// oddReply is an answer that the script cannot have given.
func oddReply(s *script, reply any) error {
	return fmt.Errorf("script %s answers %v: is this server's Redis another version than its other programs expect?", s.name, reply)
}
