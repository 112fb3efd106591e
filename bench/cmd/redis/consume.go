package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	keyholdv1 "github.com/keyhold/keyhold/proto/keyhold/v1"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

// consume reads 200-byte events, each decoded and given to a behavior under its lease, and acknowledges them. Nothing is stored.
func consume(ctx context.Context, s *settings) error {
	for _, c := range []struct {
		keys  int
		rate  int // about, of the floor
		reach string
		floor string
	}{
		{manyKeys, 200_000, ">= 0.4, better 0.55", "pipelined XREADGROUP and XACK"},
		{1, 12_000, ">= 0.8", "a round trip an event"},
	} {
		each := max(int(s.span.Seconds()*float64(c.rate))/c.keys, 1)
		var floors, ours []figures.Round
		for range s.rounds {
			f, err := consumeFloor(ctx, c.keys, each)
			if err != nil {
				return err
			}
			o, err := consumeOurs(ctx, c.keys, each)
			if err != nil {
				return err
			}
			floors, ours = append(floors, f), append(ours, o)
		}
		name := fmt.Sprintf("consume, busy keys: %d", c.keys)
		s.sheet.Add(figures.Floor(name+": "+c.floor, "events/s", floors))
		s.sheet.Add(figures.Compare(name+", fenced, decoded, through the mailbox", "events/s", c.reach, ours, floors))
	}
	return nil
}

// event200 is one whose binary form has 200 bytes.
func event200(key string) *keyholdv1.Envelope {
	e := &keyholdv1.Envelope{Key: key, Type: "order.placed", Id: "0197a2b4-1c00-7000-8000-000000000001"}
	e.Data = make([]byte, 200-proto.Size(e)-3)
	return e
}

// load puts events into the streams.
func load(ctx context.Context, server *served, keys, each int, storeID string, to ...string) error {
	broker, err := brokerOf(ctx, server)
	if err != nil {
		return err
	}
	defer broker.Stop(ctx)
	data := make([][]byte, keys)
	for k := range data {
		if data[k], err = proto.Marshal(event200(laneOf(k).Key)); err != nil {
			return err
		}
	}
	for seq := 1; seq <= each; seq += 16 {
		runs := make([]transport.Append, keys)
		for k := range runs {
			runs[k] = transport.Append{Lane: laneOf(k), Start: seq == 1, Subscribers: to}
			for i := seq; i < min(seq+16, each+1); i++ {
				runs[k].Entries = append(runs[k].Entries, record(event.Sequence(i), data[k], "keyhold.v1.Envelope", storeID))
			}
		}
		for _, a := range broker.Append(ctx, runs) {
			if a.Err != nil || a.Outcome != transport.AppendOK {
				return fmt.Errorf("load: %v, %w", a.Outcome, a.Err)
			}
		}
	}
	return nil
}

// consumeFloor reads one event of each key and acknowledges the one before, all keys in one pipeline.
func consumeFloor(ctx context.Context, keys, each int) (figures.Round, error) {
	server, err := serve(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	defer server.stop()
	if err := load(ctx, server, keys, each, "store"); err != nil {
		return figures.Round{}, err
	}
	streams := make([]string, keys)
	for k := range streams {
		if streams[k], err = (event.Names{}).Build(event.LaneName(laneOf(k))); err != nil {
			return figures.Round{}, err
		}
		if err := server.client.XGroupCreate(ctx, streams[k], "shipping", "0-0").Err(); err != nil {
			return figures.Round{}, err
		}
	}
	c, err := server.begin(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	last := make([]string, keys)
	for range each {
		pipe := server.client.Pipeline()
		reads := make([]*goredis.XStreamSliceCmd, keys)
		for k, stream := range streams {
			if last[k] != "" {
				pipe.XAck(ctx, stream, "shipping", last[k])
			}
			reads[k] = pipe.XReadGroup(ctx, &goredis.XReadGroupArgs{Group: "shipping", Consumer: "c", Streams: []string{stream, ">"}, Count: 1, Block: -1})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return figures.Round{}, err
		}
		for k, read := range reads {
			last[k] = read.Val()[0].Messages[0].ID
		}
	}
	return c.end(ctx, keys*each)
}

// forgetful keeps what a node needs to run units, but nothing of their units of work.
type forgetful struct {
	eventstore.Store
	id atomic.Pointer[eventstore.Identity]
}

func (s *forgetful) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	id, err := s.Store.Start(ctx, opts)
	s.id.Store(&id)
	return id, err
}

func (s *forgetful) Begin(string) eventstore.Tx { return nothing{} }

type nothing struct{}

func (nothing) SQL(context.Context) (eventstore.SQL, error) { return nil, eventstore.ErrNoSQL }
func (nothing) Begun() bool                                 { return false }
func (nothing) Rollback() error                             { return nil }
func (nothing) Commit(context.Context, eventstore.Changes) (eventstore.Committed, error) {
	return eventstore.Committed{}, nil
}

// gate holds behaviors back until all keys have one.
type gate struct {
	keys, events int
	open, done   chan struct{}
	inside       chan struct{}
	count        atomic.Int64
}

type gated struct {
	g     *gate
	first sync.Once
}

func (b *gated) placed(_ keyhold.Context, _ *keyholdv1.Envelope) error {
	b.first.Do(func() {
		b.g.inside <- struct{}{}
		<-b.g.open
	})
	if int(b.g.count.Add(1)) == b.g.events {
		close(b.g.done)
	}
	return nil
}

// quiet tells of what went wrong alone.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func consumeOurs(ctx context.Context, keys, each int) (_ figures.Round, err error) {
	server, err := serve(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	defer server.stop()
	g := &gate{keys: keys, events: keys * each, open: make(chan struct{}), done: make(chan struct{}), inside: make(chan struct{}, keys)}
	store := &forgetful{Store: memory.Open()}
	app := keyhold.New(keyhold.Config{Name: "bench", Node: "bench", Store: store, Transport: redis.New(redis.Config{URL: server.URL(), MaxAhead: 1_000_000}), Logger: quiet})
	app.Register(
		keyhold.Category{Name: "load", Key: "key", Events: []keyhold.EventType{keyhold.EventOf[*keyholdv1.Envelope]()}},
		keyhold.Handler[*gated]{
			Name: "shipping", Categories: []string{"load"}, SequentialBy: "key", StartFrom: keyhold.Oldest, Timeout: -1,
			New: func(string) *gated { return &gated{g: g} }, On: keyhold.Behavior[*gated]{keyhold.On((*gated).placed)},
		})
	if err := app.Start(ctx); err != nil {
		return figures.Round{}, err
	}
	defer app.Stop(ctx)
	if err := load(ctx, server, keys, each, store.id.Load().StoreID, "shipping"); err != nil {
		return figures.Round{}, err
	}
	late := time.After(time.Minute)
	for n := range keys {
		select {
		case <-g.inside:
		case <-late:
			return figures.Round{}, fmt.Errorf("%d of %d keys have a behavior", n, keys)
		}
	}
	c, err := server.begin(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	close(g.open)
	select {
	case <-g.done:
	case <-late:
		return figures.Round{}, fmt.Errorf("%d of %d events are applied", g.count.Load(), g.events)
	}
	return c.end(ctx, g.events)
}
