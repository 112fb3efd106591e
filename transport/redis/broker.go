package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var _ transport.Broker = (*Transport)(nil)

// Connect implements [transport.Broker].
func (t *Transport) Connect(ctx context.Context) error {
	if t.conn.Load() != nil {
		return nil
	}
	if err := t.connect(ctx); err != nil {
		return err
	}
	err := t.conn.Load().require(ctx)
	if err == nil {
		err = t.checkBirth(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("redis: %w", err), t.disconnect(context.WithoutCancel(ctx)))
	}
	return nil
}

// Start listens for wakes and watches for a loss of memory. It connects if that was not done. A server that cannot be reached at the moment is no
// reason to fail: attempts go on.
func (t *Transport) Start(ctx context.Context, node transport.Node) error {
	if err := t.Connect(ctx); err != nil {
		return err
	}
	w := &watch{t: t, c: t.conn.Load(), node: node, channels: make(map[string]string), tried: make(chan struct{})}
	for _, name := range w.listeners() {
		channel, err := w.c.name(event.NameWake, name)
		if err != nil {
			return fmt.Errorf("start redis transport: %w", err)
		}
		w.channels[channel] = name
	}
	if err := t.watching.Start(ctx); err != nil {
		return fmt.Errorf("start redis transport: %w", err)
	}
	forgot := node.Forgot
	if forgot == nil {
		forgot = func() {}
	}
	t.births.listen(forgot)
	t.watching.Go(w.hear)
	t.watching.Go(w.look)
	select {
	case <-w.tried:
		return nil
	case <-ctx.Done():
		t.births.listen(nil)
		return errors.Join(fmt.Errorf("start redis transport: %w", context.Cause(ctx)), t.watching.Stop(context.WithoutCancel(ctx)))
	}
}

// Stop ends both, waits for calls that are under way, and disconnects.
func (t *Transport) Stop(ctx context.Context) error {
	if err := t.watching.Stop(ctx); err != nil {
		return fmt.Errorf("stop redis transport: %w", err)
	}
	t.births.leave()
	if err := t.disconnect(ctx); err != nil {
		return fmt.Errorf("stop redis transport: %w", err)
	}
	return nil
}

// Committed does nothing: the relay is told of commits.
func (t *Transport) Committed(context.Context, []event.Tail) error { return nil }
