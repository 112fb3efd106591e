package redis

import (
	"sync"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/transport"
)

// Transport is a [transport.Broker] on Redis, of one application at a time: two in one process need one each, also on the same Redis. Make it with [Open] or [New], give it its store
// with Bind.
type Transport struct {
	claim transport.Claim
	cfg   Config
	fault error // of cfg: told by Connect

	connecting sync.Mutex
	conn       atomic.Pointer[connection] // nil unless connected
	calls      lifecycle.Group            // what goes to Redis for several callers at once
	bound      atomic.Pointer[binding]

	births     births
	foreigners sync.Map        // by category that was declared: bool, it is another store's
	begins     sync.Map        // by subscription that was declared: time.Time, from when on it begins
	watching   lifecycle.Group // for wakes, and for losses
	signals    struct {        // for tests
		listening signal.Signal[struct{}]
		looked    signal.Signal[error]
	}
}

// binding is what Bind gave.
type binding struct {
	records eventstore.Records
	places  eventstore.Beginner // of units of work that set a place
	id      eventstore.Identity
	keys    event.KeyRules
}

// connection is everything that belongs to the time between Connect and Stop.
type connection struct {
	servers *servers
	names   event.Names
	owner   string // of all leases
	port    *port
}

// Open makes a transport to the Redis of a URL; see [Config] for what may stand in it. It does no I/O: a URL that is none is told by Connect.
func Open(url string) *Transport { return New(Config{URL: url}) }

// New makes a transport. It does no I/O; what is wrong with cfg is told by Connect.
func New(cfg Config) *Transport {
	t := new(Transport)
	t.cfg, t.fault = cfg.withDefaults()
	return t
}

// Bind gives the transport its store, from which it reads what streams have lost, for one start of it: call it after each start of the store and
// before Connect. keys are the rules of the application.
func (t *Transport) Bind(store eventstore.Store, id eventstore.Identity, keys event.KeyRules) {
	t.bound.Store(&binding{records: store, places: store, id: id, keys: keys})
}

// Name is "redis".
func (t *Transport) Name() string { return "redis" }

// Claim implements [transport.Transport].
func (t *Transport) Claim() (release func(), err error) { return t.claim.Take() }

// Capabilities are all but Inline.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering |
		transport.DeadLetter | transport.Replay | transport.Partitioning
}

// OwnerID is the owner of all leases that this process takes; "" unless connected.
func (t *Transport) OwnerID() string {
	c := t.conn.Load()
	if c == nil {
		return ""
	}
	return c.owner
}

// Limits are as configured.
func (t *Transport) Limits() transport.Limits {
	return transport.Limits{MaxAhead: t.cfg.MaxAhead, RetireAfter: t.cfg.RetireAfter}
}
