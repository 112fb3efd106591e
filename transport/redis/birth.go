package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
)

var scriptBirth = newScript("birth")

// births are what this process knows of the memory of the servers: the birth that each one gave last. Another one than that means that the server may have forgotten:
// it is empty, or was restarted, or is a replica that was promoted and lacks the last that its master had.
type births struct {
	sync.Mutex
	known   map[string]string // by address of the server
	trusted string            // births, as memory gives them, out of which no lease of this application can have been forgotten
	lost    bool              // and nobody was told yet
	forgot  func()            // of the node, while the transport is started
	asked   time.Time         // when all servers last answered
}

// young is the age of a birth below which a process that sees it for the first time takes it for a loss. Another application may have noticed it, while no node of this one ran, and
// what this one had offered before to readers there is looked at again after RetireAfter alone. Being told once too often costs a look at what is published.
func (c *Config) young() time.Duration { return c.RetireAfter + max(time.Minute, 2*c.TTL) }

// checkBirth asks each server since when it remembers, has it begin anew where it may have forgotten, and tells the node of a loss. Until one TTL after a birth
// the server grants no lease, which it decides itself. It is cheap, and called whenever there is reason to doubt: at Connect, with each beat, at a connection for wakes,
// when a lease is refused because the server forgot.
func (t *Transport) checkBirth(ctx context.Context) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	servers := c.servers.all()
	calls := make([]*call, len(servers))
	nonce := event.NewID()
	for i, at := range servers {
		calls[i] = &call{script: scriptBirth, server: at, keys: []string{c.birthKey(at)}, args: []any{nonce}}
	}
	c.servers.runAll(ctx, onWork, calls)
	var faults []error
	for i, at := range servers {
		answer, ok := list(calls[i].reply, 2)
		switch {
		case calls[i].err != nil:
			faults = append(faults, fmt.Errorf("ask redis %s since when it remembers: %w", at.addr, calls[i].err))
		case !ok:
			faults = append(faults, oddReply(scriptBirth, calls[i].reply))
		default:
			birth, _ := answer[0].(string)
			age, _ := integer(answer[1])
			t.births.saw(at.addr, birth, strings.HasSuffix(birth, " "+nonce) || age < t.cfg.young().Milliseconds())
		}
	}
	t.births.tell()
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	t.births.answered()
	return nil
}

func (b *births) answered() {
	b.Lock()
	defer b.Unlock()
	b.asked = time.Now()
}

// since tells how long ago all servers last answered.
func (b *births) since() time.Duration {
	b.Lock()
	defer b.Unlock()
	return time.Since(b.asked)
}

// saw notes the birth of a server; fresh says what it means of one that is seen for the first time.
func (b *births) saw(addr, birth string, fresh bool) {
	b.Lock()
	defer b.Unlock()
	before, known := b.known[addr]
	if known && before == birth {
		return
	}
	if b.known == nil {
		b.known = make(map[string]string)
	}
	b.known[addr] = birth
	b.lost = b.lost || known || fresh
}

// memory names the births of all servers that are known, one in a line.
func (b *births) memory() string {
	b.Lock()
	defer b.Unlock()
	return strings.Join(slices.Sorted(maps.Values(b.known)), "\n")
}

// trust notes the memory that was the first one. Who sees only births of that one has lost nothing.
func (b *births) trust(memory string) {
	b.Lock()
	defer b.Unlock()
	b.trusted = memory
	for _, birth := range b.known {
		if !slices.Contains(strings.Split(memory, "\n"), birth) {
			return
		}
	}
	b.lost = false
}

func (b *births) trusts() string {
	b.Lock()
	defer b.Unlock()
	return b.trusted
}

// Memory implements [transport.Broker].
func (t *Transport) Memory() string { return t.births.memory() }

// Trust implements [transport.Broker].
func (t *Transport) Trust(memory string) { t.births.trust(memory) }

// tell tells the node of a loss, if there was one and it listens.
func (b *births) tell() {
	b.Lock()
	forgot := b.forgot
	due := b.lost && forgot != nil
	if due {
		b.lost = false
	}
	b.Unlock()
	if due {
		forgot()
	}
}

// listen has the node told from now on; nil ends it.
func (b *births) listen(forgot func()) {
	b.Lock()
	b.forgot = forgot
	b.Unlock()
	b.tell()
}

// leave forgets what is known: after a Stop it is another's business what happens.
func (b *births) leave() {
	b.Lock()
	defer b.Unlock()
	b.known, b.trusted, b.lost, b.forgot, b.asked = nil, "", false, nil, time.Time{}
}
