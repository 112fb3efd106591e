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
	scriptAcquire    = newScript("acquire")
	scriptRenew      = newScript("renew")
	scriptRenewParts = newScript("renew_parts")
	scriptRelease    = newScript("release")

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
		left, ok := integer(at(answer, 1))
		holder, named := at(answer, 2).(string)
		text, counted := at(answer, 3).(string)
		if !ok || !named || !counted {
			break
		}
		got := partitions.Acquired{HeldFor: max(time.Duration(left), 1) * time.Millisecond}
		if generation, err := strconv.ParseUint(text, 10, 64); err == nil && holder != "" { // who writes leases by hand may write anything
			got.Holder, got.HeldAt = holder, event.Generation(generation)
		}
		return got, nil
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
	c.args = append(c.args, "", p.t.cfg.TTL.Milliseconds(), p.c.owner, p.t.births.trusts(), p.t.cfg.keep().Milliseconds())
	for _, r := range requests {
		c.keys = append(c.keys, r.tenure.lease, r.tenure.counter)
		c.args = append(c.args, r.asked.(event.Generation).String(), r.tenure.field)
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
	now := time.Now().UnixNano()
	var batches []*renewing
	open := make(map[string]*renewing)
	tenures := make([]*tenure, len(held))
	for i, h := range held {
		t, err := p.tenure(h)
		if err != nil {
			errs[i] = fmt.Errorf("renew: %w", err)
			continue
		}
		tenures[i] = t
		with := p.together(t)
		b := open[with]
		if b == nil || len(b.of) == renewals {
			b = &renewing{part: t.field != ""}
			open[with], batches = b, append(batches, b)
		}
		b.of = append(b.of, i)
	}
	calls := make([]*call, len(batches))
	for n, b := range batches {
		calls[n] = b.call(&p.t.cfg, tenures, now)
	}
	p.c.servers.runAll(ctx, onRenewal, calls)
	for n, c := range calls {
		b := batches[n]
		answers, ok := list(c.reply, len(b.of))
		for at, i := range b.of {
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
		for _, i := range b.kept {
			if errs[i] == nil {
				tenures[i].kept.Store(now)
			}
		}
	}
	return errs
}

// renewing is what is renewed in one call.
type renewing struct {
	part bool  // those that stand for parts
	of   []int // indexes into what is asked for
	kept []int // of those whose generations are said to be kept for longer
}

// together names what one call can renew: parts of one hash, or units of this server, or on a Cluster of one slot.
func (p *port) together(t *tenure) string {
	switch {
	case t.field != "":
		return t.lease
	case p.c.servers.cluster:
		return strconv.Itoa(int(slotOf(t.lease)))
	}
	return ""
}

func (b *renewing) call(cfg *Config, tenures []*tenure, now int64) *call {
	if b.part {
		c := &call{script: scriptRenewParts, keys: []string{tenures[b.of[0]].lease}, args: []any{cfg.TTL.Milliseconds(), cfg.keep().Milliseconds()}}
		for _, i := range b.of {
			c.args = append(c.args, tenures[i].field, tenures[i].generation.String(), tenures[i].owner)
		}
		return c
	}
	c := &call{script: scriptRenew, args: []any{cfg.TTL.Milliseconds(), cfg.keep().Milliseconds(), len(b.of)}}
	for _, i := range b.of {
		c.keys, c.args = append(c.keys, tenures[i].lease), append(c.args, tenures[i].holder)
	}
	for at, i := range b.of {
		if t := tenures[i]; t.keeps(now, cfg.RetireAfter) {
			b.kept = append(b.kept, i)
			c.keys, c.args = append(c.keys, t.counter), append(c.args, at+1)
		}
	}
	return c
}

// keep is how long a generation is kept from the moment at which that is said: RetireAfter from when the lease lapses, and the time until it is said again.
func (c *Config) keep() time.Duration { return c.TTL + c.RetireAfter + c.RetireAfter/keepsPer }

// keepsPer is how often, within RetireAfter, renewals say so.
const keepsPer = 4

// keeps reports whether it is time to say again how long the generation of a unit is kept.
func (t *tenure) keeps(now int64, retireAfter time.Duration) bool {
	return now-t.kept.Load() >= int64(retireAfter/keepsPer)
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
	if ifIdle && p.c.servers.cluster && t.field == "" {
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
		near := !p.c.servers.cluster && t.field == ""
		c.keys = append(c.keys, t.lease, t.counter)
		c.args = append(c.args, t.holder, t.generation.String(), t.unit.Name, t.unit.Key, int(r.asked.(releasing)), flag(near), t.field, len(t.lanes))
		if near {
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
