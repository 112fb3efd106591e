package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// learn looks for members whenever it is stirred, with a distance between two looks.
func (c *Client) learn(ctx context.Context) {
	defer func() { close(c.begin()) }() // who waits is not left waiting
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.stir:
		}
		done := c.begin()
		if c.look(ctx, min(firstPatience<<min(failed, 8), mostPatience)) {
			failed = 0
		} else {
			failed++
		}
		close(done)
		between := min(leastBetween<<min(failed, 8), mostBetween)
		if pause(ctx, between-time.Duration(c.cfg.Rand()*float64(between)/2)) != nil {
			return
		}
	}
}

// begin gives what is to be closed after the look that begins. Whoever asks from now on waits for another one: what this one brings may be older than the question.
func (c *Client) begin() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.mu.next
	c.mu.next = make(chan struct{})
	return done
}

// look asks one node after the other who the members are, until one says so: those that are known, then those that it began with.
func (c *Client) look(ctx context.Context, patience time.Duration) bool {
	var in vain
	for _, some := range []func(context.Context) ([]string, error){c.known, c.given, c.cfg.Find} {
		if some == nil {
			continue
		}
		addresses, err := find(ctx, some, patience)
		if err != nil {
			in.say("Find", &transport.PeerError{Code: transport.PeerUnavailable, Text: err.Error(), Err: err})
		}
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
		for _, address := range addresses {
			if slices.Contains(in.tried, address) {
				continue
			}
			members, err := c.status(ctx, address, patience)
			if ctx.Err() != nil {
				return false
			}
			if err == nil {
				c.found(address, members)
				return true
			}
			in.say(address, err)
		}
	}
	c.foundNobody(in.err())
	return false
}

// known are the addresses of the members that are known.
func (c *Client) known(context.Context) ([]string, error) {
	p := c.placement.Load()
	if p == nil {
		return nil, nil
	}
	var at []string
	f := field{Placement: p, far: c.router.isFar()}
	for i := range p.members {
		if m := &p.members[i].Member; f.canAsk(m) {
			at = append(at, m.Address)
		}
	}
	return at, nil
}

func (c *Client) given(context.Context) ([]string, error) { return c.cfg.Nodes, nil }

// find gives addresses, the caller's own, for so long at most.
func find(ctx context.Context, some func(context.Context) ([]string, error), patience time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses, err := some(ctx)
	return slices.Clone(addresses), err
}

// status asks one node.
func (c *Client) status(ctx context.Context, address string, patience time.Duration) ([]transport.Member, *transport.PeerError) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.cfg.Peers.Status(ctx, address)
	switch {
	case err != nil:
		return nil, peerError(err)
	case len(s.Members) == 0:
		return nil, &transport.PeerError{Code: transport.PeerUnavailable, Text: "it knows no members yet, not even itself"}
	}
	return s.Members, nil
}

func (c *Client) found(from string, members []transport.Member) {
	if was := c.placement.Load(); was == nil || changed(was, members) {
		var before []transport.Member
		if was != nil {
			before = was.Members()
		}
		why := changes(before, members, func(string) string { return "is no node any more" })
		c.placement.Store(NewPlacement(members))
		c.cfg.Logger.Info("members changed", "why", why, "members", names(members), "from", from)
	}
	r := c.cfg.Refresh
	c.mu.Lock()
	c.mu.from, c.mu.why = from, nil
	c.mu.due = c.cfg.Now().Add(r*3/4 + time.Duration(c.cfg.Rand()*float64(r)/2))
	c.mu.Unlock()
}

// foundNobody keeps the members as they were: that nobody answers does not make them others.
func (c *Client) foundNobody(why *transport.PeerError) {
	c.mu.Lock()
	first := c.mu.why == nil
	c.mu.why = why
	c.mu.Unlock()
	if first {
		c.cfg.Logger.Warn("no node says who the members are: will try again while asks are made", "error", why)
	}
}

// vain is what came of addresses of which none answered.
type vain struct {
	tried  []string
	said   []string
	denied int
}

func (v *vain) say(address string, e *transport.PeerError) {
	v.tried = append(v.tried, address)
	v.said = append(v.said, fmt.Sprintf("%s: %s", address, strings.TrimPrefix(e.Text, "node "+address+": ")))
	if e.Code == transport.PeerDenied {
		v.denied++
	}
}

// err is denied where all say so: then it is not a matter of time.
func (v *vain) err() *transport.PeerError {
	if len(v.tried) == 0 {
		return &transport.PeerError{Code: transport.PeerUnavailable, Text: "no node can be reached: no address is given, and Find gave none"}
	}
	e := &transport.PeerError{Code: transport.PeerUnavailable, Text: "no node can be reached: " + strings.Join(v.said, "; ")}
	if v.denied == len(v.tried) {
		e.Code = transport.PeerDenied
	}
	return e
}
