package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// DefaultRefresh is after how long a [Client] in use asks anew who the members are.
const DefaultRefresh = 5 * time.Second

const (
	// How long one node has to say who the members are. It doubles while none does.
	firstPatience, mostPatience = time.Second, 4 * time.Second
	// leastBetween is the least time between two looks for members. It doubles while none is found.
	leastBetween, mostBetween = 50 * time.Millisecond, time.Second
)

// ClientConfig says how a [Client] finds the nodes of an application.
type ClientConfig struct {
	Peers    transport.Peers // must be set, and not started: the client starts and stops it, for calling only
	Identity transport.PeerIdentity
	// Nodes are addresses of the node services of a few nodes, host:port; Find gives them where they change. At least one of the two must be set. Find may block, honours its context, and is
	// called only when no member that is known answers.
	Nodes []string
	Find  func(ctx context.Context) ([]string, error)

	TTL     time.Duration // as of [RouterConfig]
	Owners  int           // likewise
	Refresh time.Duration // while it is used, who the members are is asked anew after this time, give or take a quarter; default [DefaultRefresh]

	Observer RouterObserver
	Logger   *slog.Logger     // default: discards
	Now      func() time.Time // default time.Now
	Rand     func() float64   // from 0 up to 1; default rand.Float64. Called concurrently
}

// Client asks the entities of an application from a process that takes no part in it: it runs nothing, and has neither store nor broker. It learns who the members are from any node that answers, and
// again while it is used, and at once when one of them cannot be asked; unused it is silent. Asks go as those of a [Router] do, with the same promises. All methods may be called concurrently.
type Client struct {
	cfg    ClientConfig
	router *Router

	placement atomic.Pointer[Placement]
	learning  lifecycle.Loop
	stir      chan struct{} // holds a token when the members are to be learned

	mu struct {
		sync.Mutex
		runs bool                 // between Start and Stop
		owns bool                 // Peers was started by it, and is not stopped
		due  time.Time            // when the members are to be learned anew
		from string               // the address that told of them last
		why  *transport.PeerError // why nobody has told of them, the last time; nil = somebody has
		next chan struct{}        // closed after the look that is the next to begin
	}
}

// NewClient checks cfg. It starts nothing.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Peers == nil {
		return nil, errors.New("client: Peers must be set")
	}
	if len(cfg.Nodes) == 0 && cfg.Find == nil {
		return nil, errors.New("client: it knows no node to begin with: give the addresses of some in Nodes, or a way to Find them")
	}
	if cfg.Refresh < 0 {
		return nil, errors.New("client: Refresh must not be below 0")
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = DefaultRefresh
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	c := &Client{cfg: cfg, stir: make(chan struct{}, 1)}
	c.mu.next = make(chan struct{})
	var err error
	c.router, err = NewRouter(RouterConfig{Peers: cfg.Peers, Placement: c.placement.Load, TTL: cfg.TTL, Owners: cfg.Owners, Observer: cfg.Observer, Now: cfg.Now, Rand: cfg.Rand})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c.router.near, c.router.lost, c.router.missed = c.near, c.lost, func() { token(c.stir) }
	c.router.shut = func() bool { return !c.isRunning() }
	return c, nil
}

// Start makes the client ready. It reaches for nobody: that is done with the first ask, or [Client.Members]. ctx bounds Start alone. After Stop it may be started again.
func (c *Client) Start(ctx context.Context) error {
	if err := c.cfg.Peers.Start(ctx, c.cfg.Identity, nil); err != nil {
		if errors.Is(err, lifecycle.ErrStarted) {
			return fmt.Errorf("start client: it is started already, or its Peers are those of somebody else in this process: give each their own: %w", err)
		}
		return fmt.Errorf("start client: %w", err)
	}
	c.setRunning(true)
	if err := c.learning.Start(ctx, c.learn); err != nil {
		c.setRunning(false)
		return fmt.Errorf("start client: %w", errors.Join(err, c.stopPeers(ctx)))
	}
	return nil
}

// Stop waits until all asks have their answer, or ctx is done. It is idempotent. What is looking for its entity is told that the client stops.
func (c *Client) Stop(ctx context.Context) error {
	c.setRunning(false)
	if err := errors.Join(c.learning.Stop(ctx), c.stopPeers(ctx)); err != nil {
		return fmt.Errorf("stop client: %w", err)
	}
	return nil
}

func (c *Client) setRunning(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.runs = on
	c.mu.owns = c.mu.owns || on
}

// stopPeers leaves Peers alone that somebody else has started.
func (c *Client) stopPeers(ctx context.Context) error {
	c.mu.Lock()
	owns := c.mu.owns
	c.mu.Unlock()
	if !owns {
		return nil
	}
	err := c.cfg.Peers.Stop(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.owns = c.mu.runs // a Start may have followed
	return err
}

func (c *Client) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.runs
}

// Here is false: a client runs nothing.
func (c *Client) Here(event.Unit) bool { return false }

// Ask has the node that has the entity decide, see [Router.Ask].
func (c *Client) Ask(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) (transport.PeerReply, error) {
	c.use()
	return c.router.Ask(ctx, q, hint)
}

// Tell is Ask without an answer, see [Router.Tell].
func (c *Client) Tell(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) error {
	c.use()
	return c.router.Tell(ctx, q, hint)
}

// Probe is for nodes: what a client asks, no unit waits for.
func (c *Client) Probe(ctx context.Context, address string, probes []transport.PeerProbe) error {
	return c.router.Probe(ctx, address, probes)
}

// Members asks who the members are, now, in order of name. The error says which addresses were tried, and why each of them has failed: to find out, at a start, whether anybody is there.
func (c *Client) Members(ctx context.Context) ([]transport.Member, error) {
	c.mu.Lock()
	runs, learned := c.mu.runs, c.mu.next
	c.mu.Unlock()
	if !runs {
		return nil, fmt.Errorf("members: %w", notRunning())
	}
	token(c.stir)
	select {
	case <-learned:
	case <-ctx.Done():
		return nil, fmt.Errorf("members: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	runs, why := c.mu.runs, c.mu.why
	c.mu.Unlock()
	switch {
	case !runs:
		return nil, fmt.Errorf("members: %w", notRunning())
	case why != nil:
		return nil, fmt.Errorf("members: %w", why)
	}
	return c.placement.Load().Members(), nil
}

func notRunning() *transport.PeerError {
	return &transport.PeerError{Code: transport.PeerStopping, Text: "the node service of this side does not run: it is not started, or stopped"}
}

// use has the members learned anew, if it is time.
func (c *Client) use() {
	now := c.cfg.Now()
	c.mu.Lock()
	due := !now.Before(c.mu.due)
	c.mu.Unlock()
	if due {
		token(c.stir)
	}
}

func (c *Client) near() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.from
}

func (c *Client) lost() *transport.PeerError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.why
}
