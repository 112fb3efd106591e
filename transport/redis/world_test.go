package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

var (
	shipping = event.Unit{Name: "shipping", Key: "k-1"}
	orders   = event.LaneRef{Category: "order", Key: "k-1"}
	payments = event.LaneRef{Category: "payment", Key: "k-1"}
	late     = event.LaneRef{Category: "order", Key: "k-1", Lane: event.Backfill}
)

var namespaces atomic.Int64

// world is a namespace of a server, and what was published in it.
type world struct {
	testing.TB
	server    *redisserver.Server
	client    *goredis.Client // of the test
	namespace string
	cfg       Config
	names     event.Names

	mu        sync.Mutex
	published map[event.LaneRef][]event.Envelope
}

// newWorld makes a world, and a node in it. Redis remembers for long enough to grant leases.
func newWorld(tb testing.TB, server *redisserver.Server, cfg Config) (*world, *Transport) {
	tb.Helper()
	w := &world{TB: tb, server: server, namespace: "t" + strconv.FormatInt(namespaces.Add(1), 10), published: make(map[event.LaneRef][]event.Envelope)}
	w.client = goredis.NewClient(&goredis.Options{Network: "unix", Addr: server.Socket(), Protocol: 2, DisableIdentity: true})
	tb.Cleanup(func() { _ = w.client.Close() })
	w.cfg = cfg
	w.cfg.Namespace = w.namespace
	if w.cfg.URL == "" {
		w.cfg.URL = server.URL()
	}
	t := w.node()
	w.names = t.conn.Load().names
	w.pass(w.traits().TTL + time.Second)
	return w, t
}

// setup is a world on the server that tests share.
func setup(tb testing.TB) (*world, *Transport) {
	tb.Helper()
	return newWorld(tb, sharedRedis(tb, false), Config{})
}

// node connects another owner.
func (w *world) node() *Transport { return w.nodeAt(w.cfg) }

func (w *world) nodeAt(cfg Config) *Transport {
	w.Helper()
	t := New(cfg)
	if err := t.Connect(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := t.Stop(context.Background()); err != nil {
			w.Errorf("stop: %v", err)
		}
	})
	return t
}

func (w *world) traits() partitions.Traits {
	cfg, _ := w.cfg.withDefaults()
	return partitions.Traits{Leased: true, TTL: cfg.TTL, Heartbeat: cfg.Heartbeat, Margin: cfg.Margin}
}

func (w *world) do(args ...any) any {
	w.Helper()
	reply, err := w.client.Do(w.Context(), args...).Result()
	if err != nil && err != goredis.Nil {
		w.Fatalf("%v: %v", args, err)
	}
	return reply
}

// name is the text of a name.
func (w *world) name(kind event.NameKind, owner, key string) string {
	return mustName(w.names, event.Name{Kind: kind, Owner: owner, Key: key})
}

func (w *world) stream(lane event.LaneRef) string { return mustName(w.names, event.LaneName(lane)) }
func (w *world) lease(u event.Unit) string        { return w.name(event.NameLease, u.Name, u.Key) }
func (w *world) counter(u event.Unit) string      { return w.name(event.NameGeneration, u.Name, u.Key) }
func (w *world) busy(name string) string          { return w.name(event.NameBusy, name, "") }

func (w *world) isBusy(u event.Unit) bool {
	w.Helper()
	return w.do("sismember", w.busy(u.Name), u.Key) == int64(1)
}

// keys are all keys of the world.
func (w *world) keys() []string {
	w.Helper()
	keys, err := w.client.Keys(w.Context(), w.namespace+"::*").Result()
	if err != nil {
		w.Fatal(err)
	}
	return keys
}

// pass lets time pass for leases, and for what the server remembers of its birth.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for _, key := range w.keys() {
		switch {
		case strings.HasSuffix(key, ":__parts__"):
			for field, value := range w.client.HGetAll(w.Context(), key).Val() {
				if f := strings.Fields(value); len(f) == 3 {
					until, err := strconv.ParseInt(f[2], 10, 64)
					if err != nil {
						w.Fatal(err)
					}
					w.do("hset", key, field, fmt.Sprintf("%s %s %d", f[0], f[1], until-d.Milliseconds()))
				}
			}
			w.expire(key, d)
		case strings.HasSuffix(key, ":__lease__"), strings.HasSuffix(key, ":__generation__"):
			w.expire(key, d)
		case strings.Contains(key, "__birth__"):
			id, rest, _ := strings.Cut(w.do("get", key).(string), " ")
			since, nonce, _ := strings.Cut(rest, " ")
			ms, err := strconv.ParseInt(since, 10, 64)
			if err != nil {
				w.Fatal(err)
			}
			w.do("set", key, fmt.Sprintf("%s %d %s", id, ms-d.Milliseconds(), nonce))
		}
	}
}

// expire has a key expire earlier by d.
func (w *world) expire(key string, d time.Duration) {
	w.Helper()
	switch left := w.client.PTTL(w.Context(), key).Val(); {
	case left < 0: // it has no end
	case left > d:
		w.do("pexpire", key, (left - d).Milliseconds())
	default:
		w.do("del", key)
	}
}

// forget makes the server forget this world.
func (w *world) forget() {
	w.Helper()
	for _, key := range w.keys() {
		w.do("del", key)
	}
}

// publish makes events and adds them to the stream of a lane, as docs/wire.md says.
func (w *world) publish(lane event.LaneRef, n int, subscribers ...string) []event.Envelope {
	w.Helper()
	w.mu.Lock()
	first := len(w.published[lane]) + 1
	var made []event.Envelope
	for i := range n {
		seq := event.Sequence(first + i)
		made = append(made, event.Envelope{
			ID: lane.String() + "#" + seq.String(), Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{"n":` + seq.String() + `}`), StoreID: "store-1",
			Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq, Time: time.UnixMilli(1_700_000_000_000 + int64(seq)).UTC(),
		})
	}
	w.published[lane] = append(w.published[lane], made...)
	w.mu.Unlock()
	w.add(lane, made, subscribers...)
	return made
}

// add adds entries to the stream of a lane.
func (w *world) add(lane event.LaneRef, entries []event.Envelope, subscribers ...string) {
	w.Helper()
	pipe := w.client.Pipeline()
	for i := range entries {
		pipe.Do(w.Context(), append([]any{"xadd", w.stream(lane), entryID(entries[i].Sequence)}, encodeEntry(&entries[i])...)...)
	}
	for _, name := range subscribers {
		pipe.SAdd(w.Context(), w.busy(name), lane.Key)
	}
	if _, err := pipe.Exec(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// declareForeign has categories be those of another application, which shipping reads from an hour ahead on in lanes in which it has no place.
func (w *world) declareForeign(t *Transport, categories ...string) {
	w.Helper()
	d := transport.Declared{StoreID: "ours"}
	for _, c := range categories {
		d.Categories = append(d.Categories, transport.Produced{Category: c, KeyField: "id", StoreID: "theirs"})
		d.Subscribers = append(d.Subscribers, transport.Subscriber{Name: "shipping", Category: c, StoreID: "ours", Kind: "handler", Begins: time.Now().Add(time.Hour)})
	}
	if err := t.Declare(w.Context(), d); err != nil {
		w.Fatal(err)
	}
}

// republish adds everything that was published, as a relay does after Redis forgot.
func (w *world) republish() {
	w.Helper()
	for lane, entries := range w.published {
		w.add(lane, entries)
	}
}

// acquire has a unit granted.
func (w *world) acquire(t *Transport, u event.Unit) partitions.Held {
	w.Helper()
	got, err := t.Port().Acquire(w.Context(), u, 0)
	if err != nil || !got.Granted {
		w.Fatalf("acquire %s: %+v, %v", u, got, err)
	}
	return partitions.Held{Unit: u, Generation: got.Generation}
}

func (w *world) fetch(t *Transport, h partitions.Held, max int, above ...event.Position) partitions.Fetched {
	w.Helper()
	got, err := t.Port().Fetch(w.Context(), h, above, max)
	if err != nil {
		w.Fatalf("fetch: %v", err)
	}
	return got
}

func (w *world) advance(t *Transport, h partitions.Held, max int, done ...event.Position) partitions.Fetched {
	w.Helper()
	got, err := t.Port().Advance(w.Context(), h, done, max)
	if err != nil {
		w.Fatalf("advance: %v", err)
	}
	return got
}

func (w *world) release(t *Transport, h partitions.Held, ifIdle bool) {
	w.Helper()
	if err := t.Port().Release(w.Context(), h, ifIdle); err != nil {
		w.Fatalf("release: %v", err)
	}
}

// pending are the sequences that a group has pending.
func (w *world) pending(lane event.LaneRef, group string) []string {
	w.Helper()
	var ids []string
	got, err := w.client.XPendingExt(w.Context(), &goredis.XPendingExtArgs{Stream: w.stream(lane), Group: group, Start: "-", End: "+", Count: 100_000}).Result()
	if err != nil && !strings.HasPrefix(err.Error(), "NOGROUP") {
		w.Fatal(err)
	}
	for _, p := range got {
		ids = append(ids, strings.TrimSuffix(p.ID, "-0"))
	}
	return ids
}

// consumers are those of a group.
func (w *world) consumers(lane event.LaneRef, group string) []string {
	w.Helper()
	got, err := w.client.XInfoConsumers(w.Context(), w.stream(lane), group).Result()
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, c := range got {
		names = append(names, c.Name)
	}
	return names
}

func place(lane event.LaneRef, seq event.Sequence) event.Position {
	return event.Position{Lane: lane, Sequence: seq}
}

// sequences of entries, with their lanes.
func sequences(entries []event.Envelope) string {
	var all []string
	for i := range entries {
		all = append(all, entries[i].Ref().String()+"#"+entries[i].Sequence.String())
	}
	return strings.Join(all, " ")
}

// run is the text of a run of sequences.
func run(lane event.LaneRef, first, last event.Sequence) string {
	var all []string
	for seq := first; seq <= last; seq++ {
		all = append(all, lane.String()+"#"+seq.String())
	}
	return strings.Join(all, " ")
}

// dialing connects to one address, whatever it is asked for.
func dialing(addr string) Dialer {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
}
