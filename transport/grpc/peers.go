package grpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	nodev1 "github.com/keyhold/keyhold/proto/keyhold/node/v1"
	"github.com/keyhold/keyhold/transport"
)

// Peers is the node service over gRPC, see [transport.Peers].
type Peers struct {
	config Config
	mu     struct {
		sync.Mutex
		run      *run // between Start and the end of Stop
		starting bool
		logger   *slog.Logger // from the next Start on, if the config has none
	}
}

var (
	_ transport.Peers     = (*Peers)(nil)
	_ transport.Certified = (*Peers)(nil)
)

// New gives a node service; what is wrong with the settings is said by Start.
func New(c Config) *Peers { return &Peers{config: c} }

// run is all that there is between a Start and the end of its Stop.
type run struct {
	config   Config
	self     transport.PeerIdentity
	says     metadata.MD // the same with each call; never changed
	tls      *certificates
	refusals refusals
	address  string
	gate     gate // calls inside, of both directions
	work     lifecycle.Group
	listener *listener
	server   *rpc.Server
	links    struct {
		sync.Mutex
		by   map[string]*link
		shut bool
	}
	stopping sync.Mutex // one Stop at a time
	over     bool       // guarded by it
}

// LogTo has it log there where Config.Logger is not set. It is called before Start, and does not change one that runs; an application or client does so with its own logger.
func (p *Peers) LogTo(logger *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.logger = logger
}

// Start, see [transport.Peers].
func (p *Peers) Start(ctx context.Context, self transport.PeerIdentity, s transport.PeerService) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	if p.mu.run != nil || p.mu.starting {
		p.mu.Unlock()
		return lifecycle.ErrStarted
	}
	p.mu.starting = true
	c := p.config
	c.Logger = or(c.Logger, p.mu.logger)
	p.mu.Unlock()
	r, err := begin(ctx, c, self, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.starting = false
	if err != nil {
		return fmt.Errorf("node service: %w", err)
	}
	p.mu.run = r
	return nil
}

// bindAdvice says what to do about an address that cannot be listened on.
func bindAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another process has it: choose another port, or port 0 for any (%w)", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("it is no address of this machine: set Bind to one that is, and Advertise to the one that others know (%w)", err)
	default:
		return err
	}
}

func begin(ctx context.Context, c Config, self transport.PeerIdentity, s transport.PeerService) (*run, error) {
	c, err := c.withDefaults(s != nil)
	if err != nil {
		return nil, err
	}
	r := &run{config: c, self: self, says: metadata.Pairs(applicationKey, self.Application, storeKey, self.StoreID)}
	r.refusals.logger = c.Logger
	r.links.by = map[string]*link{}
	r.gate.empty = make(chan struct{})
	if c.TLS != nil {
		if r.tls, err = loadCertificates(c.TLS, c.Logger); err != nil {
			return nil, err
		}
	}
	if s != nil {
		var of net.ListenConfig
		l, err := of.Listen(ctx, "tcp", c.Bind)
		if err != nil {
			return nil, fmt.Errorf("it cannot listen on %s: %w", c.Bind, bindAdvice(err))
		}
		h := &host{run: r, service: s, room: room{most: c.MaxInside}, stock: stock{most: c.MaxBytes, message: c.MaxMessage, wait: longestQueued}}
		r.listener = &listener{Listener: l, most: c.MaxLinks, stock: &h.stock, logger: c.Logger}
		r.address = c.advertised(l.Addr())
		r.server = r.serve()
		r.server.RegisterService(describe(), h)
	}
	if err := r.work.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	r.work.Go(r.sweep)
	if r.tls != nil {
		r.work.Go(r.tls.watch)
	}
	if r.server != nil {
		r.work.Go(func(context.Context) {
			if err := r.server.Serve(r.listener); err != nil && !r.gate.isShut() {
				c.Logger.Error("node service: it does not listen any more", "address", r.address, "error", err)
			}
		})
	}
	return r, nil
}

func (r *run) serve() *rpc.Server {
	options := []rpc.ServerOption{rpc.MaxRecvMsgSize(r.config.MaxMessage), rpc.ForceServerCodecV2(lenient{encoding.GetCodecV2("proto")}),
		rpc.MaxSendMsgSize(1 << 30), // an answer is looked at by itself, so that it fails with its own error
		rpc.ConnectionTimeout(r.config.ConnectTimeout), rpc.MaxHeaderListSize(16 << 10),
		rpc.InitialWindowSize(window), rpc.InitialConnWindowSize(linkWindow), // fixed: what gRPC would let grow nobody counts
		// More than a caller may have inside, so that what is too much is told so at once and does not wait in the caller.
		rpc.MaxConcurrentStreams(uint32(2*r.config.MaxInside + 64)),
		rpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: ping / 2, PermitWithoutStream: true})}
	alive := keepalive.ServerParameters{Time: ping, Timeout: silence - ping}
	if r.tls != nil {
		alive.MaxConnectionAge = linkAge
		options = append(options, rpc.Creds(guarded{credentials.NewTLS(r.tls.server()), &r.refusals}))
	}
	return rpc.NewServer(append(options, rpc.KeepaliveParams(alive))...)
}

func (r *run) credentials() credentials.TransportCredentials {
	return credentials.NewTLS(r.tls.client())
}

// Address, see [transport.Peers].
func (p *Peers) Address() string {
	if r := p.running(); r != nil {
		return r.address
	}
	return ""
}

func (p *Peers) running() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.run
}

// Stop, see [transport.Peers]. When ctx is done before all calls are, those that are left are cut off, and the error says so.
func (p *Peers) Stop(ctx context.Context) error {
	r := p.running()
	if r == nil {
		return nil
	}
	err := r.stop(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.run == r {
		p.mu.run = nil
	}
	return err
}

func (r *run) stop(ctx context.Context) error {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	if r.over {
		return nil
	}
	r.over = true
	r.gate.shut()
	if r.server != nil {
		r.listener.Close() // before hanging up, so that nobody new comes
		r.listener.hangUp(false)
		drained := make(chan struct{})
		r.work.Go(func(context.Context) {
			defer close(drained)
			r.server.GracefulStop()
		})
		select {
		case <-drained:
		case <-ctx.Done():
		}
	}
	select {
	case <-r.gate.empty:
	default:
		select {
		case <-r.gate.empty:
		case <-ctx.Done():
		}
	}
	cut := r.gate.inside()
	r.links.Lock()
	r.links.shut = true
	r.links.Unlock()
	r.closeLinks(func(*link) bool { return true })
	if r.server != nil {
		r.server.Stop()
		r.listener.hangUp(true)
	}
	// Nothing that is left waits for anybody: the connections are closed.
	if err := r.work.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if cut > 0 {
		return fmt.Errorf("node service: %d calls were cut off: %w", cut, context.Cause(ctx))
	}
	return nil
}

// Ask, see [transport.Peers].
func (p *Peers) Ask(ctx context.Context, address string, q transport.PeerAsk) (transport.PeerReply, error) {
	if err := unwritable(&q); err != nil {
		return transport.PeerReply{}, err
	}
	var out nodev1.AskResponse
	if err := p.call(ctx, address, "Ask", &nodev1.AskRequest{Question: toQuestion(&q)}, &out); err != nil {
		return transport.PeerReply{}, err
	}
	return fromAnswer(&out)
}

// Tell, see [transport.Peers].
func (p *Peers) Tell(ctx context.Context, address string, q transport.PeerAsk) error {
	if err := unwritable(&q); err != nil {
		return err
	}
	var out nodev1.TellResponse
	if err := p.call(ctx, address, "Tell", &nodev1.TellRequest{Question: toQuestion(&q)}, &out); err != nil {
		return err
	}
	return fromFailure(out.GetFailure())
}

// Wake, see [transport.Peers].
func (p *Peers) Wake(ctx context.Context, address string, units []event.Unit) error {
	if err := unwritableUnits(units); err != nil {
		return err
	}
	var out nodev1.WakeResponse
	if err := p.call(ctx, address, "Wake", &nodev1.WakeRequest{Units: toUnits(units)}, &out); err != nil {
		return err
	}
	return fromFailure(out.GetFailure())
}

// Probe, see [transport.Peers]. There may be any number of probes: they go in as many calls as MaxMessage makes of them.
func (p *Peers) Probe(ctx context.Context, address string, probes []transport.PeerProbe) error {
	r := p.running()
	if r == nil {
		return stopped()
	}
	all, longer := batches(toProbes(probes), r.config.MaxMessage)
	for _, some := range all {
		var out nodev1.ProbeResponse
		if err := p.call(ctx, address, "Probe", some, &out); err != nil {
			return err
		}
		if err := fromFailure(out.GetFailure()); err != nil {
			return err
		}
	}
	if longer > 0 {
		return &transport.PeerError{Code: transport.PeerTooLarge, Text: fmt.Sprintf("%d of %d probes are longer than MaxMessage allows (%d), and are left out", longer, len(probes), r.config.MaxMessage)}
	}
	return nil
}

// Status, see [transport.Peers].
func (p *Peers) Status(ctx context.Context, address string) (transport.PeerStatus, error) {
	var out nodev1.StatusResponse
	if err := p.call(ctx, address, "Status", &nodev1.StatusRequest{}, &out); err != nil {
		return transport.PeerStatus{}, err
	}
	if f := out.GetFailure(); f != nil {
		return transport.PeerStatus{}, fromFailure(f)
	}
	return fromStatus(&out), nil
}

func stopped() error {
	return &transport.PeerError{Code: transport.PeerStopping, Text: "the node service of this side does not run"}
}

func (p *Peers) call(ctx context.Context, address, method string, in, out proto.Message) error {
	if ctx.Err() != nil {
		return &transport.PeerError{Code: transport.PeerEnded, Text: "the time of the call was over before it was made", Err: context.Cause(ctx)}
	}
	r := p.running()
	if r == nil || !r.gate.enter() {
		return stopped()
	}
	defer r.gate.leave()
	if size := proto.Size(in); size > r.config.MaxMessage {
		return &transport.PeerError{Code: transport.PeerTooLarge, Text: fmt.Sprintf("the question has %d bytes, more than MaxMessage allows (%d)", size, r.config.MaxMessage)}
	}
	l, err := r.enter(address)
	if err != nil {
		return err
	}
	defer r.leave(l)
	var far progress
	err = l.conn.Invoke(context.WithValue(metadata.NewOutgoingContext(ctx, r.says), progressKey{}, &far), "/"+serviceName+"/"+method, in, out)
	if err == nil {
		return nil
	}
	e := ended{address: address, sent: far.sent.Load(), answered: far.answered.Load(), closed: l.closed.Load(), err: err}
	if ctx.Err() != nil {
		e.ctx = context.Cause(ctx)
	}
	if why := l.refused.Load(); why != nil {
		e.refused = *why
	}
	return e.outcome()
}
