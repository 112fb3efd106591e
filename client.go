package keyhold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// ClientConfig is what a [Client] is made of. Name, Peers and Nodes must be set.
type ClientConfig struct {
	Name  string          // of the application that is asked
	Peers transport.Peers // how its nodes are reached: grpc.New(grpc.Config{TLS: ...}), of its own; the client starts and stops it
	// Nodes are addresses of the node services of some nodes, host:port, to learn of all of them: those that Cluster.Peers of the application advertises. A DNS name that
	// stands for all, such as that of a headless service, is enough.
	Nodes []string

	BackfillSuffix string        // as in the [Config] of the application; default "backfill"
	TTL            time.Duration // of a lease, as its nodes have it; an ask looks for its entity for twice as long at most; default 15 s

	Logger *slog.Logger // default: text to standard error, from level Info
}

func (c ClientConfig) faults() error {
	var all []error
	add := func(format string, args ...any) { all = append(all, fmt.Errorf("client: "+format, args...)) }
	if err := event.CheckName(c.Name); err != nil {
		add("Name: %w", err)
	}
	if c.Peers == nil {
		add("Peers is nil: set grpc.New(grpc.Config{TLS: grpc.MutualTLS(...)}), with certificates that the nodes accept")
	}
	if len(c.Nodes) == 0 {
		add("Nodes is empty: give the address of the node service of at least one node, host:port")
	}
	for i, node := range c.Nodes {
		if host, port, err := net.SplitHostPort(node); err != nil || host == "" || port == "" {
			add("Nodes[%d] %q: write host:port, such as orders.internal:7947", i, node)
		}
	}
	if err := c.rules().Validate(); err != nil {
		add("BackfillSuffix: %w", err)
	}
	if c.TTL < 0 {
		add("TTL is %v: it cannot be negative", c.TTL)
	}
	return errors.Join(all...)
}

func (c ClientConfig) rules() event.KeyRules { return event.KeyRules{BackfillSuffix: c.BackfillSuffix} }

// Client asks the entities of an application from a process that runs none of it, and has neither its store nor its broker: an HTTP edge, for instance. [Ask] and [Tell] take it in
// place of an [App]. Commands, queries and replies need their wire names ([Type]) in both programs.
//
// It learns from any node who the others are, and goes to the one that has the entity; unused it is silent. All methods may be called concurrently.
type Client struct {
	cfg    ClientConfig
	fault  error
	routes *cluster.Client
	remote *actors.Remote
}

// NewClient makes a client. It does no I/O; what is wrong with cfg is told by Start.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	c := &Client{cfg: cfg}
	types, undeclared := codec.NewRegistry(codec.Declarations())
	if c.fault = errors.Join(cfg.faults(), undeclared); c.fault != nil {
		return c
	}
	logTo(cfg.Peers, cfg.Logger)
	c.routes, c.fault = cluster.NewClient(cluster.ClientConfig{
		Peers: cfg.Peers, Identity: transport.PeerIdentity{Application: cfg.Name}, Nodes: cfg.Nodes, TTL: cfg.TTL, Logger: cfg.Logger,
	})
	if c.fault == nil {
		c.remote, c.fault = actors.NewRemote(actors.RemoteConfig{Codec: types, Keys: cfg.rules(), Elsewhere: c.routes})
	}
	return c
}

// Start makes it ready. It reaches for nobody: that is done by the first ask. ctx bounds Start alone. After Stop it may be started again.
func (c *Client) Start(ctx context.Context) error {
	if c.fault != nil {
		return c.fault
	}
	return c.routes.Start(ctx)
}

// Stop waits until all asks have their answer, or ctx is done. What still looks for its entity is told that the client stops. It is idempotent.
func (c *Client) Stop(ctx context.Context) error {
	if c.fault != nil {
		return nil
	}
	return c.routes.Stop(ctx)
}

// Members gives the nodes of the application, asking one of them if none is known.
func (c *Client) Members(ctx context.Context) ([]transport.Member, error) {
	if c.fault != nil {
		return nil, c.fault
	}
	return c.routes.Members(ctx)
}

// Ask is the untyped form of the function [Ask], with the same bounds where ctx has no deadline. TTL is that of the client and of the nodes, each for its part.
func (c *Client) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	if c.fault != nil {
		return nil, c.refused(to, command)
	}
	return c.remote.Ask(ctx, to, command, opts...)
}

// Tell is the method behind the function [Tell].
func (c *Client) Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error {
	if c.fault != nil {
		return c.refused(to, command)
	}
	return c.remote.Tell(ctx, to, command, opts...)
}

func (c *Client) refused(to Ref, command any) error {
	return &actors.AskError{To: to, Command: fmt.Sprintf("%T", command), Err: fmt.Errorf("%w: %w", ErrStopping, c.fault)}
}
