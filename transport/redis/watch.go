package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// watch is what a started transport does in the background.
type watch struct {
	t        *Transport
	c        *connection
	node     transport.Node
	channels map[string]string // subscribers, and what stands for parts, by wake channel
	tried    chan struct{}     // closed when it listens, or could not at the first attempt
	settle   sync.Once

	deaf  bool // the last attempt to listen went wrong, which was reported
	blind bool // likewise the last look
	full  bool // memory is nearly full, which was reported
}

const (
	longestPause = 5 * time.Second // between attempts to listen
	looksPerTour = 10              // memory is looked at with every tenth look

	// Shares of maxmemory in use, in percent: the node is told at the first, and again after it was below the second.
	nearlyFull, comfortable = 90, 80
)

// listeners are those whose wakes concern the node: its subscribers, and the parts of the store.
func (w *watch) listeners() []string {
	names := []string{event.PartName}
	for _, s := range w.node.Subscriptions {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

func (w *watch) report(err error) {
	if w.node.Report != nil {
		w.node.Report(err)
	}
}

// hear listens for wakes until ctx is done. Whatever was lost between two connections is found by a scan, which the node is asked for each time that
// listening begins.
func (w *watch) hear(ctx context.Context) {
	defer w.settled()
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began, err := w.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			pause = 0
		}
		w.settled()
		if !w.deaf {
			w.report(fmt.Errorf("listen for wakes: %w; work is found by scans until that is over", err))
		}
		w.deaf = true
		pause = min(longestPause, max(50*time.Millisecond, 2*pause))
		if !sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return
		}
	}
}

func (w *watch) settled() { w.settle.Do(func() { close(w.tried) }) }

// sleep reports false when ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen is one connection for wakes: on any server, for a Cluster spreads messages to all.
func (w *watch) listen(ctx context.Context) (began bool, err error) {
	servers := w.c.servers.all()
	if len(servers) == 0 {
		return false, errors.Join(errors.New("no server of the cluster is known"), w.c.servers.relearn(ctx))
	}
	names := make([]string, 0, len(w.channels))
	for channel := range w.channels {
		names = append(names, channel)
	}
	heard := servers[rand.N(len(servers))].work.Subscribe(ctx)
	defer heard.Close()
	stop := context.AfterFunc(ctx, func() { heard.Close() }) // nothing else ends a read
	defer stop()
	if err := heard.Subscribe(ctx, names...); err != nil {
		return false, err
	}
	for waiting, quiet := len(names), 0; ; {
		message, err := heard.ReceiveTimeout(ctx, w.t.cfg.Heartbeat)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			if quiet++; quiet > 2 {
				return began, fmt.Errorf("the server has not answered for %v: %w", time.Duration(quiet)*w.t.cfg.Heartbeat, err)
			}
			if err := heard.Ping(ctx); err != nil {
				return began, err
			}
			continue
		case err != nil:
			return began, err
		}
		quiet = 0
		switch m := message.(type) {
		case *goredis.Subscription:
			if waiting--; waiting == 0 {
				began = true
				w.begin(ctx)
			}
		case *goredis.Message:
			w.wake(m)
		}
	}
}

// begin is what there is to do when wakes arrive again.
func (w *watch) begin(ctx context.Context) {
	w.deaf = false
	if err := w.t.checkBirth(ctx); err != nil && ctx.Err() == nil {
		w.report(err)
	}
	if w.node.Rescan != nil {
		w.node.Rescan()
	}
	w.settled()
	w.t.signals.listening.Send(struct{}{})
}

func (w *watch) wake(m *goredis.Message) {
	name, known := w.channels[m.Channel]
	if !known || w.node.Wake == nil {
		return
	}
	for key := range strings.SplitSeq(m.Payload, "\n") {
		w.node.Wake(event.Unit{Name: name, Key: key})
	}
}

// look asks once per heartbeat whether the broker remembers, unless a beat has just done so, and now and then whether it has memory left.
func (w *watch) look(ctx context.Context) {
	for n := 0; ; n++ {
		var err error
		if w.t.births.since() > w.t.cfg.Heartbeat*5/4 { // beats come a little later than a heartbeat after one another
			err = w.t.checkBirth(ctx)
		}
		if err == nil && n%looksPerTour == 0 {
			err = w.lookAtMemory(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !w.blind {
			w.report(fmt.Errorf("watch redis: %w", err))
		}
		w.blind = err != nil
		w.t.signals.looked.Send(err)
		if !sleep(ctx, w.t.cfg.Heartbeat) {
			return
		}
	}
}

// lookAtMemory tells the node when a server is nearly out of memory: then nothing is published any more.
func (w *watch) lookAtMemory(ctx context.Context) error {
	worst, at, limit := int64(0), "", int64(0)
	for _, s := range w.c.servers.all() {
		info, err := s.work.Info(ctx, "memory").Result()
		if err != nil {
			return fmt.Errorf("ask for memory: %w", err)
		}
		used, _ := strconv.ParseInt(infoField(info, "used_memory"), 10, 64)
		most, _ := strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
		if most > 0 && used*100/most > worst {
			worst, at, limit = used*100/most, s.addr, most
		}
	}
	switch {
	case worst >= nearlyFull && !w.full:
		w.full = true
		w.report(fmt.Errorf("redis %s uses %d %% of its maxmemory of %d MB; when it is full nothing is published: give it more, or find out in `keyhold status` who does not keep up",
			at, worst, limit>>20))
	case worst < comfortable:
		w.full = false
	}
	return nil
}
