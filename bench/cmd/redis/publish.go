package main

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

const manyKeys = 256

var (
	subscribers = []string{"billing", "shipping", "mailing"}
	payload     = make([]byte, 200)
)

// brokerOf is a broker that publishes.
func brokerOf(ctx context.Context, s *served) (*redis.Transport, error) {
	store := memory.Open()
	id, err := store.Start(ctx, eventstore.StartOptions{Node: "bench", Relayed: true})
	if err != nil {
		return nil, err
	}
	broker := redis.New(redis.Config{URL: s.URL(), MaxAhead: 1_000_000})
	broker.Bind(store, id, event.KeyRules{})
	return broker, broker.Connect(ctx)
}

// record is the seq-th of a lane.
func record(seq event.Sequence, data []byte, typ, storeID string) event.Envelope {
	return event.Envelope{
		ID: event.NewID(), Type: typ, Version: 1, Encoding: event.Proto, Data: data, StoreID: storeID, Sequence: seq, Time: time.Now(),
		CorrelationID: "0197a2b4-1c00-7000-8000-000000000001",
	}
}

// publish appends to 256 lanes, some records of each in one call, for three subscribers.
func publish(ctx context.Context, s *settings) error {
	for _, each := range []int{1, 4} {
		var floors, ours []figures.Round
		for range s.rounds {
			f, err := publishFloor(ctx, s.span, each)
			if err != nil {
				return err
			}
			o, err := publishOurs(ctx, s.span, each)
			if err != nil {
				return err
			}
			floors, ours = append(floors, f), append(ours, o)
		}
		name := fmt.Sprintf("publish, %d keys, 3 handlers, %d a key and call", manyKeys, each)
		s.sheet.Add(figures.Floor(name+": pipelined XADD", "events/s", floors))
		s.sheet.Add(figures.Compare(name, "events/s", ">= 0.5", ours, floors))
	}
	return nil
}

func publishFloor(ctx context.Context, span time.Duration, each int) (figures.Round, error) {
	server, err := serve(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	defer server.stop()
	c, err := server.begin(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	n := 0
	for seq := 1; time.Since(c.began) < span; seq += each {
		pipe := server.client.Pipeline()
		for k := range manyKeys {
			for i := range each {
				pipe.XAdd(ctx, &goredis.XAddArgs{Stream: laneOf(k).String(), ID: fmt.Sprintf("%d-0", seq+i), Values: fields(record(event.Sequence(seq+i), payload, "order.placed", "store"))})
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return figures.Round{}, err
		}
		n += manyKeys * each
	}
	return c.end(ctx, n)
}

// fields are those that the transport writes.
func fields(e event.Envelope) []any {
	return []any{"id", e.ID, "store", e.StoreID, "type", e.Type, "ver", "1", "enc", string(e.Encoding), "time", fmt.Sprint(e.Time.UnixMilli()), "corr", e.CorrelationID, "data", e.Data}
}

func laneOf(k int) event.LaneRef {
	return event.LaneRef{Category: "load", Key: fmt.Sprint("client-", k)}
}

func publishOurs(ctx context.Context, span time.Duration, each int) (figures.Round, error) {
	server, err := serve(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	defer server.stop()
	broker, err := brokerOf(ctx, server)
	if err != nil {
		return figures.Round{}, err
	}
	defer broker.Stop(ctx)
	c, err := server.begin(ctx)
	if err != nil {
		return figures.Round{}, err
	}
	n := 0
	for seq := event.Sequence(1); time.Since(c.began) < span; seq += event.Sequence(each) {
		runs := make([]transport.Append, manyKeys)
		for k := range runs {
			runs[k] = transport.Append{Lane: laneOf(k), Start: seq == 1, Subscribers: subscribers}
			for i := range each {
				runs[k].Entries = append(runs[k].Entries, record(seq+event.Sequence(i), payload, "order.placed", "store"))
			}
		}
		for k, a := range broker.Append(ctx, runs) {
			if a.Err != nil || a.Outcome != transport.AppendOK {
				return figures.Round{}, fmt.Errorf("%s: %v, %w", runs[k].Lane, a.Outcome, a.Err)
			}
		}
		n += manyKeys * each
	}
	return c.end(ctx, n)
}
