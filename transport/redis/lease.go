package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// renewals is how many leases one call extends.
const renewals = 512

var (
	scriptAcquire = newScript("acquire")
	scriptRenew   = newScript("renew")
	scriptRelease = newScript("release")

	kindAcquire = kind{name: "acquire", flying: 1, most: 256, script: scriptAcquire, pack: packAcquire, unpack: unpackAcquire}
	kindRelease = kind{name: "release", flying: 1, most: 256, script: scriptRelease, pack: packRelease, unpack: unpackEach}
)

// Acquire asks for the lease of a unit. A refusal because Redis forgot has the birth looked at, so that this node notices, too.
func (p *port) Acquire(ctx context.Context, u event.Unit, floor event.Generation) (partitions.Acquired, error) {
	t, err := p.newTenure(partitions.Held{Unit: u})
	if err != nil {
		return partitions.Acquired{}, fmt.Errorf("acquire: %w", err)
	}
	answer, err := p.ask(ctx, &p.lines(t).acquire, &kindAcquire, t, floor)
	if err != nil {
		return partitions.Acquired{}, fmt.Errorf("acquire %s: %w", u, err)
	}
	switch answer[0] {
	case "forgot":
		return partitions.Acquired{Forgot: true}, nil
	case "held":
		if left, ok := integer(at(answer, 1)); ok {
			return partitions.Acquired{HeldFor: max(time.Duration(left), 1) * time.Millisecond}, nil
		}
	case "granted":
		text, _ := at(answer, 1).(string)
		unclean, ok := integer(at(answer, 2))
		generation, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil {
			break
		}
		t, err := p.newTenure(partitions.Held{Unit: u, Generation: event.Generation(generation)})
		if err != nil {
			return partitions.Acquired{}, fmt.Errorf("acquire: %w", err)
		}
		p.begin(t)
		return partitions.Acquired{Granted: true, Generation: t.generation, Unclean: unclean == 1}, nil
	}
	return partitions.Acquired{}, fmt.Errorf("acquire %s: %w", u, oddReply(scriptAcquire, answer))
}

// at is an element of an answer, nil if it is not there.
func at(answer []any, i int) any {
	if i >= len(answer) {
		return nil
	}
	return answer[i]
}

func packAcquire(p *port, c *call, requests []*request) {
	c.aim = func(c *call, s *server) { c.args[0] = p.c.birthKey(s) }
	c.args = append(c.args, "", p.t.cfg.TTL.Milliseconds(), p.c.owner, p.t.births.trusts())
	for _, r := range requests {
		c.keys = append(c.keys, r.tenure.lease, r.tenure.counter)
		c.args = append(c.args, r.asked.(event.Generation).String())
	}
}

func unpackAcquire(p *port, ctx context.Context, c *call, requests []*request) {
	answer, ok := list(c.reply, 1)
	if ok && answer[0] == "forgot" {
		err := p.t.checkBirth(ctx)
		for _, r := range requests {
			if err != nil {
				r.fail(fmt.Errorf("find out since when redis remembers: %w", err))
				continue
			}
			r.succeed(answer)
		}
		return
	}
	if !ok || len(answer) != 1+len(requests) {
		for _, r := range requests {
			r.fail(oddReply(c.script, c.reply))
		}
		return
	}
	for i, r := range requests {
		r.take(c.script, answer[1+i])
	}
}

// Renew extends leases, on a connection that nothing else uses.
func (p *port) Renew(ctx context.Context, held []partitions.Held) []error {
	errs := make([]error, len(held))
	ctx, cancel := context.WithTimeout(ctx, p.t.cfg.Timeout)
	defer cancel()
	var calls []*call
	var members [][]int // of each call, which of held
	open := make(map[uint16]int)
	tenures := make([]*tenure, len(held))
	for i, h := range held {
		t, err := p.tenure(h)
		if err != nil {
			errs[i] = fmt.Errorf("renew: %w", err)
			continue
		}
		tenures[i] = t
		slot := uint16(0)
		if p.c.servers.cluster {
			slot = slotOf(t.lease)
		}
		n, ok := open[slot]
		if !ok || len(members[n]) == renewals {
			n = len(calls)
			open[slot] = n
			calls = append(calls, &call{script: scriptRenew, args: []any{p.t.cfg.TTL.Milliseconds()}})
			members = append(members, nil)
		}
		calls[n].keys = append(calls[n].keys, t.lease)
		calls[n].args = append(calls[n].args, t.holder)
		members[n] = append(members[n], i)
	}
	p.c.servers.runAll(ctx, onRenewal, calls)
	for n, c := range calls {
		answers, ok := list(c.reply, len(members[n]))
		for at, i := range members[n] {
			switch {
			case c.err != nil:
				errs[i] = fmt.Errorf("renew %s: %w", held[i].Unit, outcome(c.err))
			case !ok:
				errs[i] = fmt.Errorf("renew %s: %w", held[i].Unit, oddReply(c.script, c.reply))
			case answers[at] == int64(1):
				tenures[i].proven.Store(time.Now().UnixNano())
			default:
				errs[i] = p.fenced(held[i])
			}
		}
	}
	return errs
}

// releasing is what a release asks.
type releasing int

const (
	releaseAnyway releasing = iota
	releaseIfIdle
	releaseBusy // nothing but whether the unit is held
)

// Release gives the lease back.
func (p *port) Release(ctx context.Context, h partitions.Held, ifIdle bool) error {
	t, err := p.tenure(h)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if ifIdle && p.c.servers.cluster {
		return p.releaseApart(ctx, h, t)
	}
	return p.release(ctx, h, t, releasing(flag(ifIdle)))
}

func (p *port) release(ctx context.Context, h partitions.Held, t *tenure, how releasing) error {
	answer, err := p.ask(ctx, &p.lines(t).release, &kindRelease, t, how)
	if err != nil {
		return fmt.Errorf("release %s: %w", h.Unit, err)
	}
	switch answer[0] {
	case "ok":
		p.end(h)
		return nil
	case "fenced":
		return p.fenced(h)
	case "busy":
		return fmt.Errorf("release %s: %w", h.Unit, partitions.ErrBusy)
	}
	return fmt.Errorf("release %s: %w", h.Unit, oddReply(scriptRelease, answer))
}

func packRelease(p *port, c *call, requests []*request) {
	c.args = append(c.args, p.t.cfg.RetireAfter.Milliseconds())
	for _, r := range requests {
		t := r.tenure
		c.keys = append(c.keys, t.lease, t.counter)
		c.args = append(c.args, t.holder, t.generation.String(), t.unit.Name, t.unit.Key, int(r.asked.(releasing)), flag(!p.c.servers.cluster), len(t.lanes))
		if !p.c.servers.cluster {
			c.keys = append(c.keys, t.busy)
		}
		for i := range t.lanes {
			c.keys = append(c.keys, t.lanes[i].stream)
			c.args = append(c.args, t.lanes[i].acked.String())
		}
	}
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
