package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// Gossip implements [transport.Gossip]. All methods may be called concurrently.
type Gossip struct {
	cfg    Config
	fault  error // of cfg: told by Start
	timing timing
	logs   *logs
	file   keyFile

	rekeying sync.Mutex // held while keys change

	telling lifecycle.Loop
	joining lifecycle.Loop
	calls   lifecycle.Group // joins that run at the same time

	news chan struct{} // holds a token when something was heard
	ours chan struct{} // holds a token when others are to know something of this node
	look chan struct{} // holds a token when it is to be looked for whom to join

	run sync.Mutex // held by Start and Stop
	mu  struct {
		sync.Mutex
		list      *memberlist.Memberlist // nil when not started, and while its network is gone
		net       *network
		delegate  *delegate      // of list: the timers of a list that was shut down still go off
		bound     netip.AddrPort // that is listened on
		address   string
		advertise netip.AddrPort
		roster    *roster
		meta      []byte
		stopping  bool
		logger    *slog.Logger        // from the next Start on; nil = as before
		keyring   *memberlist.Keyring // nil without keys
	}
}

var (
	_ transport.Gossip = (*Gossip)(nil)
	_ transport.Sealed = (*Gossip)(nil)
)

// New makes one. It starts nothing; what is wrong with cfg is told by Start, all at once.
func New(cfg Config) *Gossip {
	cfg = cfg.withDefaults()
	g := &Gossip{cfg: cfg, logs: newLogs(cfg.Logger), news: make(chan struct{}, 1), ours: make(chan struct{}, 1), look: make(chan struct{}, 1)}
	if g.fault = cfg.check(); g.fault != nil {
		return g
	}
	_, g.timing = cfg.Preset.settings()
	if len(cfg.Keys) > 0 {
		g.mu.keyring, g.fault = newKeyring(cfg.Keys)
	}
	return g
}

// LogTo has it log there where Config.Logger is not set. It is called before Start, and does not change one that runs; the application does so with its own logger.
func (g *Gossip) LogTo(logger *slog.Logger) {
	if g.cfg.Logger != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.logger = logger
}

// Check implements [transport.Checked]. It reads KeyFile.
func (g *Gossip) Check() error {
	if g.cfg.KeyFile == "" {
		return g.fault
	}
	_, err := ReadKeys(g.cfg.KeyFile)
	return errors.Join(g.fault, err)
}

// Start implements [transport.Gossip].
func (g *Gossip) Start(ctx context.Context, self transport.Member, seeds func(ctx context.Context) []string, changed func()) error {
	g.run.Lock()
	defer g.run.Unlock()
	if err := errors.Join(g.fault, g.firstKeys()); err != nil {
		return err
	}
	if self.ID == "" || self.StoreID == "" {
		return errors.New("gossip: start: a member needs its ID and its StoreID")
	}
	self.Names = slices.Clone(self.Names)
	text, sum, err := encodeMeta(&self)
	if err != nil {
		return err
	}
	bind, advertise, err := g.resolve(ctx)
	if err != nil {
		return err
	}
	if err := g.calls.Start(ctx); err != nil {
		return fmt.Errorf("gossip: start: %w", err)
	}
	g.mu.Lock()
	g.mu.bound, g.mu.advertise, g.mu.roster, g.mu.meta, g.mu.stopping = bind, advertise, newRoster(self, sum), text, false
	if g.mu.logger != nil {
		g.logs.out.Store(g.mu.logger)
	}
	g.mu.Unlock()
	if err := g.open(); err != nil {
		return errors.Join(err, g.calls.Stop(ctx))
	}
	g.tellKeys()
	err = errors.Join(
		g.telling.Start(ctx, func(ctx context.Context) { g.tell(ctx, changed) }),
		g.joining.Start(ctx, func(ctx context.Context) { g.join(ctx, seeds) }),
	)
	if err != nil {
		return fmt.Errorf("gossip: start: %w", errors.Join(err, g.stop(ctx)))
	}
	return nil
}

// resolve gives the addresses behind Bind and Advertise; a port of 0 in the latter is that which is listened on.
func (g *Gossip) resolve(ctx context.Context) (bind, advertise netip.AddrPort, err error) {
	one := func(what, address string) (netip.AddrPort, error) {
		host, port, err := splitAddress(address)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("gossip: %s %q: %w", what, address, err)
		}
		found, err := lookUp(ctx, host, port)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("gossip: %s %q: %w; write an address, or a name that is known here", what, address, err)
		}
		return found[0], nil
	}
	if bind, err = one("Bind", g.cfg.Bind); err != nil {
		return bind, advertise, err
	}
	if g.cfg.Advertise == "" {
		return bind, netip.AddrPortFrom(bind.Addr(), 0), nil
	}
	if advertise, err = one("Advertise", g.cfg.Advertise); err != nil {
		return bind, advertise, err
	}
	if advertise.Addr().IsLoopback() && !bind.Addr().IsLoopback() || advertise.Addr().IsUnspecified() {
		return bind, advertise, fmt.Errorf("gossip: Advertise %q is %s, which leads other machines nowhere; set the address under which this machine is reached", g.cfg.Advertise, advertise.Addr())
	}
	return bind, advertise, nil
}

// open listens, and starts a list of members that knows this node alone.
func (g *Gossip) open() error {
	g.mu.Lock()
	bind, advertise, self, keyring := g.mu.bound, g.mu.advertise, g.mu.roster.self, g.mu.keyring
	g.mu.Unlock()
	wire, err := g.cfg.listen(bind, g.logs)
	if err != nil {
		return fmt.Errorf("gossip: cannot listen on %s: %w", bind, bindAdvice(err))
	}
	port := int(bind.Port())
	if chosen, ok := wire.(interface{ GetAutoBindPort() int }); ok {
		port = chosen.GetAutoBindPort()
	}
	own := bind.Addr()
	if own.IsUnspecified() {
		own = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	n := &network{NodeAwareTransport: wire, broken: make(chan struct{}, 1), own: netip.AddrPortFrom(own, uint16(port)).String()}
	c, _ := g.cfg.Preset.settings()
	c.Name, c.Transport, c.Logger, c.Keyring = self.ID, n, g.logs.standard(), keyring
	c.BindPort, c.AdvertiseAddr, c.AdvertisePort = port, advertise.Addr().String(), cmp.Or(int(advertise.Port()), port)
	d := &delegate{g: g, store: self.StoreID}
	g.mu.Lock()
	g.mu.delegate = d
	g.mu.Unlock()
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = d, d, d, d, d
	list, err := memberlist.Create(c)
	if err != nil {
		return errors.Join(fmt.Errorf("gossip: start on %s, advertised as %s: %w", bind, g.cfg.Advertise, err), wire.Shutdown())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.list, g.mu.net = list, n
	g.mu.bound = netip.AddrPortFrom(bind.Addr(), uint16(port)) // the same again, should it have to be opened anew: others know this node by it
	g.mu.address = netip.AddrPortFrom(advertise.Addr(), uint16(c.AdvertisePort)).String()
	return nil
}

// Address implements [transport.Gossip].
func (g *Gossip) Address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.address
}

// Update implements [transport.Gossip].
func (g *Gossip) Update(self transport.Member) {
	self.Names = slices.Clone(self.Names)
	text, sum, err := encodeMeta(&self)
	if err != nil {
		g.logs.out.Load().Error("others are not told what has changed of this node", "error", err)
		return
	}
	g.mu.Lock()
	r := g.mu.roster
	if r == nil || r.self.ID != self.ID || g.mu.stopping {
		g.mu.Unlock()
		return
	}
	r.self, r.sum, r.lists[sum] = self, sum, self.Names
	fresh := string(text) != string(g.mu.meta)
	g.mu.meta = text
	g.mu.Unlock()
	if fresh {
		token(g.ours)
	}
	token(g.look)
}

// Heard implements [transport.Gossip].
func (g *Gossip) Heard() []transport.Heard {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.roster == nil {
		return nil
	}
	return g.mu.roster.heard()
}

// Stop implements [transport.Gossip]. It is idempotent.
func (g *Gossip) Stop(ctx context.Context) error {
	g.run.Lock()
	defer g.run.Unlock()
	return g.stop(ctx)
}

func (g *Gossip) stop(ctx context.Context) error {
	g.mu.Lock()
	g.mu.stopping = true
	g.mu.Unlock()
	if err := errors.Join(g.joining.Stop(ctx), g.telling.Stop(ctx), g.calls.Stop(ctx)); err != nil {
		return fmt.Errorf("gossip: stop: %w", err)
	}
	g.mu.Lock()
	list, r := g.mu.list, g.mu.roster
	g.mu.list, g.mu.delegate = nil, nil
	g.mu.address = ""
	g.mu.Unlock()
	if list == nil {
		return nil
	}
	g.sayLeaving(ctx, list, r)
	if err := list.Shutdown(); err != nil {
		return fmt.Errorf("gossip: stop: %w", err)
	}
	return nil
}

// sayLeaving tells as many as it can that this node goes. Who does not hear of it takes it for lost, and later hears of it from the others.
func (g *Gossip) sayLeaving(ctx context.Context, list *memberlist.Memberlist, r *roster) {
	limit := g.timing.leave
	if end, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(end)/2))
	}
	end := time.Now().Add(limit)
	for _, m := range list.Members() {
		if m.Name == r.self.ID || time.Now().After(end) {
			continue
		}
		if g.cfg.Preset == TCPOnly {
			_ = list.SendReliable(m, leaving(r.self.ID)) // best effort, as all of this
			continue
		}
		_ = list.SendBestEffort(m, leaving(r.self.ID))
	}
	if left := time.Until(end); left > 0 {
		_ = list.Leave(left)
	}
}

// tell has changed called when something was heard, and others told when this node has changed.
func (g *Gossip) tell(ctx context.Context, changed func()) {
	var due <-chan time.Time
	told := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.ours:
			if list := g.current(); list != nil {
				_ = list.UpdateNode(time.Millisecond) // it is in the queue; nobody waits for its way out
			}
		case <-g.news:
			if due == nil {
				due = time.After(g.timing.debounce)
			}
		case <-due:
			due = nil
			g.mu.Lock()
			now := g.mu.roster.version
			g.mu.Unlock()
			if now != told {
				told = now
				changed()
			}
		}
	}
}

func (g *Gossip) current() *memberlist.Memberlist {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.list
}

// note changes the roster, and has what it gives looked at.
func (g *Gossip) note(change func(r *roster, now time.Time)) {
	g.mu.Lock()
	change(g.mu.roster, time.Now())
	g.mu.Unlock()
	token(g.news)
}

// token leaves a token in a channel that holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
