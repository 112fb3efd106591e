package redis_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/brokertest"
)

const testAhead = 50

func TestBroker(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(t *testing.T, store eventstore.Store, id eventstore.Identity) brokertest.Harness {
		w := newScene(t, redisserver.Options{})
		h := w.harness(t, store, id)
		h.Fill = func(t *testing.T, full bool) { w.fill(t, full) }
		return h
	})
}

func TestBrokerOnCluster(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(t *testing.T, store eventstore.Store, id eventstore.Identity) brokertest.Harness {
		return newClusterScene(t).harness(t, store, id)
	})
}

// fill sets maxmemory to what is used, or lifts it.
func (w *scene) fill(t *testing.T, full bool) {
	t.Helper()
	limit := "0"
	if full {
		limit = "1mb"
	}
	w.do(t, "CONFIG", "SET", "maxmemory", limit)
}

func (w *scene) harness(t *testing.T, store eventstore.Store, id eventstore.Identity) brokertest.Harness {
	w.cfg.MaxAhead = testAhead
	return brokertest.Harness{
		Broker:   w.node(t, id.StoreID, store),
		Other:    func(t *testing.T) brokertest.Leasing { return w.node(t, id.StoreID, store) },
		Foreign:  func(t *testing.T, store eventstore.Store, id string) brokertest.Leasing { return w.node(t, id, store) },
		Pass:     func(t *testing.T, d time.Duration) { w.pass(t, d) },
		Forget:   func(t *testing.T) { w.forget(t) },
		Delete:   func(t *testing.T, lane event.LaneRef) { w.do(t, "DEL", w.stream(t, lane)) },
		LoseTail: func(t *testing.T, lane event.LaneRef, n int) { w.loseTail(t, lane, n) },
		Producer: w.producer(t),
		MaxAhead: testAhead,
	}
}

// loseTail makes a lane as it is on a replica that lacks the last n appends: stream, groups and newest string alike.
func (w *scene) loseTail(t *testing.T, lane event.LaneRef, n int) {
	t.Helper()
	stream := w.stream(t, lane)
	all := w.do(t, "XRANGE", stream, "-", "+").([]any)
	groups, _ := w.do(t, "XINFO", "GROUPS", stream).([]any)
	w.do(t, "DEL", stream)
	newest := stream + ":__newest__"
	if lane.Lane == event.Backfill {
		newest = stream[:len(stream)-len("backfill")] + "__newest_backfill__"
	}
	w.do(t, "DEL", newest)
	for _, entry := range all[:max(0, len(all)-n)] {
		args := append([]any{stream, entry.([]any)[0]}, entry.([]any)[1].([]any)...)
		w.do(t, "XADD", args...)
	}
	for _, g := range groups {
		if len(all) > n {
			w.do(t, "XGROUP", "CREATE", stream, g.([]any)[1], "0")
		}
	}
}

// producer writes with plain commands.
func (w *scene) producer(t *testing.T) brokertest.Producer {
	stream := func(source, key string) string { return w.stream(t, event.LaneRef{Category: source, Key: key}) }
	return brokertest.Producer{
		Write: func(t *testing.T, source, key, id, value string) string {
			if id == "" {
				id = "*"
			}
			return w.do(t, "XADD", stream(source, key), id, "value", value).(string)
		},
		Index:   func(t *testing.T, source, key string) { w.do(t, "SADD", w.prefix()+source+":__partitions__", key) },
		Text:    func(t *testing.T, source, key string) { w.do(t, "SET", stream(source, key), "text") },
		Shorten: func(t *testing.T, source, key string, n int) { w.do(t, "XTRIM", stream(source, key), "MAXLEN", n) },
		Drop:    func(t *testing.T, source, key string) { w.do(t, "DEL", stream(source, key)) },
	}
}
