package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// DefaultTTL is that of leases where nothing else is said.
const DefaultTTL = 15 * time.Second

// DefaultOwners is how many entities a [Router] remembers the owner of.
const DefaultOwners = 1 << 16

// RouterConfig says whom a [Router] asks, and how.
type RouterConfig struct {
	Peers transport.Peers // must be set; started and stopped by whoever made it
	// Self is the id of the member that this process is; "" = it runs nothing, and asks others only.
	Self string
	// Placement gives the present one; nil = no member is known yet. It never blocks.
	Placement func() *Placement
	// Local answers where the way leads back to this process. It must be set where Self is.
	Local transport.PeerService
	// TTL is that of leases; default 15 s. An ask looks for its entity for twice as long at most, and for a kind that no member runs for a fifth of it.
	TTL time.Duration
	// Owners is how many entities are remembered that another member has than the one that ranks first; default [DefaultOwners], about 200 bytes each.
	Owners int

	Observer RouterObserver
	Now      func() time.Time // default time.Now
	Rand     func() float64   // spreads rests, from 0 up to 1; default rand.Float64. Called concurrently
}

// RouterObserver counts what becomes of asks. Each func may be nil. They are called concurrently and must not block.
type RouterObserver struct {
	Remembered func()                        // an ask went first to whom it is remembered to belong to
	Redirected func()                        // an ask went on to whom somebody named
	Repeated   func()                        // an ask was made again, there or elsewhere
	GaveUp     func(code transport.PeerCode) // nobody could be found to answer it
}

// Router brings asks to the node that has the entity. Which one that is, it guesses: the one that it remembers, else the one that ranks first. Whoever is wrongly asked says who is right, or tries
// for the entity itself; the lease decides. All methods may be called concurrently. It has no goroutine of its own.
//
// An ask is made again, at growing distances, while it may yet succeed and nothing was done of it; one that may have been done, only if it has a CommandID, or reads. The error that is left in the
// end is a [*transport.PeerError].
type Router struct {
	cfg    RouterConfig
	near   func() string               // an address at which this process is reached, or reaches others; "" = not known
	shut   func() bool                 // it asks nobody any more
	missed func()                      // somebody could not be asked, or nobody is known
	lost   func() *transport.PeerError // why no member is known; nil = not known

	mu struct {
		sync.Mutex
		owners *owners
	}
}

// NewRouter checks cfg. It starts nothing.
func NewRouter(cfg RouterConfig) (*Router, error) {
	if cfg.Peers == nil || cfg.Placement == nil {
		return nil, errors.New("router: Peers and Placement must be set")
	}
	if (cfg.Self == "") != (cfg.Local == nil) {
		return nil, errors.New("router: Self and Local go together: a member answers for itself, and whoever is none has nothing to answer with")
	}
	if cfg.TTL < 0 || cfg.Owners < 0 {
		return nil, errors.New("router: TTL and Owners must not be below 0")
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Owners == 0 {
		cfg.Owners = DefaultOwners
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	r := &Router{cfg: cfg, near: cfg.Peers.Address, missed: func() {}, lost: func() *transport.PeerError { return nil }}
	r.shut = func() bool { return cfg.Self != "" && cfg.Peers.Address() == "" }
	r.mu.owners = newOwners(cfg.Owners)
	return r, nil
}

// Here reports whether this member is to try for an entity that does not live here before it asks others: it ranks first among those that can be asked, or is the only one, and nobody else is
// remembered to have it. It never blocks.
func (r *Router) Here(u event.Unit) bool {
	if r.cfg.Self == "" {
		return false
	}
	s := r.sight(u)
	if m := s.member(r.cfg.Self); s.known.ID != "" || m != nil && u.Name != event.PartName && !slices.Contains(m.Names, u.Name) {
		return false
	}
	first := s.first(u)
	return first == nil || first.ID == r.cfg.Self
}

// Ask has the node that has the entity decide. hint is who has it as far as the caller found out, or zero. ctx bounds it all; q is read only and not kept.
func (r *Router) Ask(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) (transport.PeerReply, error) {
	var reply transport.PeerReply
	err := r.carry(ctx, &q, hint, func(here bool, address string) (got event.Generation, err error) {
		if here {
			reply, err = r.cfg.Local.Ask(ctx, q)
		} else {
			reply, err = r.cfg.Peers.Ask(ctx, address, q)
		}
		return reply.Generation, err
	})
	if err != nil {
		return transport.PeerReply{}, err
	}
	return reply, nil
}

// Tell is Ask without an answer: nil = the node that has the entity has taken it into a mailbox.
func (r *Router) Tell(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) error {
	return r.carry(ctx, &q, hint, func(here bool, address string) (event.Generation, error) {
		if here {
			return 0, r.cfg.Local.Tell(ctx, q)
		}
		return 0, r.cfg.Peers.Tell(ctx, address, q)
	})
}

// Probe hands probes on to the node at an address, best effort.
func (r *Router) Probe(ctx context.Context, address string, probes []transport.PeerProbe) error {
	return r.cfg.Peers.Probe(ctx, address, probes)
}

// carry does what the route of an ask says, until somebody has answered it.
func (r *Router) carry(ctx context.Context, q *transport.PeerAsk, hint transport.PeerOwner, send func(here bool, address string) (event.Generation, error)) error {
	way := route{unit: q.To, repeat: q.CommandID != "" || q.Reads, ttl: r.cfg.TTL}
	s := r.sight(q.To)
	next := way.start(&s, hint)
	for {
		r.remember(q.To, &s, &next)
		switch {
		case next.err != nil:
			if f := r.cfg.Observer.GaveUp; f != nil {
				f(next.err.Code)
			}
			return next.err
		case next.ask:
			r.count(next.why)
			q.Decide = way.at.decide
			here := r.cfg.Self != "" && way.at.id == r.cfg.Self
			if q.Where != nil {
				at := way.at.address
				if here {
					at = ""
				}
				q.Where.AskedAt(at)
			}
			generation, err := send(here, way.at.address)
			s = r.sight(q.To)
			if err == nil {
				r.answered(q.To, &s, &way.at, generation)
				return nil
			}
			s.over = ended(ctx)
			e := peerError(err)
			if next = way.answered(&s, e); e.Code == transport.PeerUnavailable || e.Code == transport.PeerStopping || e.Code == transport.PeerDenied || e.Code == transport.PeerUnknownKind {
				r.missed()
			}
		default:
			if len(s.members) == 0 {
				r.missed()
			}
			over := pause(ctx, next.rest) != nil
			s = r.sight(q.To)
			if over {
				s.over = ended(ctx)
				next = way.ended(&s)
			} else {
				next = way.again(&s)
			}
		}
	}
}

// sight is what is known at this moment.
func (r *Router) sight(u event.Unit) sight {
	s := sight{field: field{Placement: r.cfg.Placement(), self: r.cfg.Self, far: r.isFar()}, now: r.cfg.Now(), shut: r.shut(), jitter: r.cfg.Rand()}
	if s.Placement == nil {
		s.Placement = new(Placement)
	}
	if len(s.members) == 0 {
		s.lost = r.lost()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.known = r.mu.owners.find(u, &s.field, s.now)
	return s
}

// isFar reports whether this process is known to be reached, or to reach others, from host to host.
func (r *Router) isFar() bool {
	near := r.near()
	return near != "" && !isLoopback(near)
}

func (r *Router) remember(u event.Unit, s *sight, st *step) {
	if st.forget == (transport.PeerOwner{}) && st.learned == (transport.PeerOwner{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.owners.forget(u, st.forget)
	if st.learned.ID != "" {
		r.mu.owners.learn(u, st.learned, &s.field, s.now, st.most)
	}
}

// answered remembers who did.
func (r *Router) answered(u event.Unit, s *sight, at *target, generation event.Generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.owners.learn(u, transport.PeerOwner{ID: at.id, Generation: max(generation, at.generation)}, &s.field, s.now, r.cfg.TTL)
}

func (r *Router) count(w why) {
	o := &r.cfg.Observer
	var f func()
	switch w {
	case whyRemembered:
		f = o.Remembered
	case whyRedirected:
		f = o.Redirected
	case whyRepeated:
		f = o.Repeated
	}
	if f != nil {
		f()
	}
}

// ended says how a context ended, and why; nil = it has not.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// peerError gives an error as what it is. Of one that is none of the port it is not known what was done.
func peerError(err error) *transport.PeerError {
	var e *transport.PeerError
	if errors.As(err, &e) {
		return e
	}
	return &transport.PeerError{Code: transport.PeerFailed, Text: err.Error(), Unknown: true, Err: err}
}
