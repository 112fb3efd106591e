package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

// scene is a server, or a namespace of one that tests share, which has remembered for long: it grants leases at once.
type scene struct {
	server    *redisserver.Server
	namespace string
	cfg       redis.Config
}

// newScene starts a server.
func newScene(t *testing.T, o redisserver.Options) *scene {
	t.Helper()
	w := &scene{server: redisserver.Run(t, o)}
	w.cfg = redis.Config{URL: w.server.URL(), Heartbeat: 200 * time.Millisecond, Timeout: 3 * time.Second}
	w.settle(t)
	return w
}

// scenes numbers the namespaces of the Cluster that tests share.
var scenes atomic.Int64

func newClusterScene(t *testing.T) *scene {
	t.Helper()
	w := &scene{server: redis.SharedServer(t, true), namespace: "scene" + strconv.FormatInt(scenes.Add(1), 10)}
	w.cfg = redis.Config{URL: w.server.URL(), Namespace: w.namespace, Heartbeat: 200 * time.Millisecond, Timeout: 3 * time.Second}
	w.settle(t)
	return w
}

func (w *scene) do(t *testing.T, command string, args ...any) any {
	t.Helper()
	answer, err := w.server.Do(t.Context(), command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (w *scene) birth(t *testing.T) string {
	t.Helper()
	info, err := w.server.Info(t.Context(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	name := w.prefix() + "keyhold:__birth__"
	if info["cluster_enabled"] == "1" {
		name += ":{0}"
	}
	return name
}

func (w *scene) prefix() string {
	if w.namespace == "" {
		return ""
	}
	return w.namespace + "::"
}

// settle makes the server one that has remembered for long.
func (w *scene) settle(t *testing.T) {
	t.Helper()
	info, err := w.server.Info(t.Context(), "replication")
	if err != nil {
		t.Fatal(err)
	}
	w.do(t, "SET", w.birth(t), info["master_replid"]+" 1 long-ago")
}

// node makes a transport, bound to a store of that id, which is not connected. It is stopped when the test ends.
func (w *scene) node(t *testing.T, storeID string, records eventstore.Store) *redis.Transport {
	t.Helper()
	tr := redis.New(w.cfg)
	tr.Bind(records, eventstore.Identity{StoreID: storeID}, event.KeyRules{})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := tr.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// connected makes one that is.
func (w *scene) connected(t *testing.T) *redis.Transport {
	t.Helper()
	tr := w.node(t, "here", nil)
	if err := tr.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

// pass makes time pass for all that expires, without waiting for it.
func (w *scene) pass(t *testing.T, d time.Duration) {
	t.Helper()
	keys, err := w.server.Keys(t.Context(), w.prefix()+"*")
	if err != nil {
		t.Fatal(err)
	}
	ms := d.Milliseconds()
	for _, key := range keys {
		if left := w.do(t, "PTTL", key).(int64); left > 0 {
			if left <= ms {
				w.do(t, "DEL", key)
			} else {
				w.do(t, "PEXPIRE", key, left-ms)
			}
		}
		switch {
		case key == w.birth(t):
			fields := strings.Fields(w.do(t, "GET", key).(string))
			w.do(t, "SET", key, fmt.Sprintf("%s %d %s", fields[0], earlier(t, fields[1], ms), fields[2]))
		case strings.HasSuffix(key, ":__parts__") && w.do(t, "EXISTS", key) == int64(1):
			all := w.do(t, "HGETALL", key).([]any)
			for i := 0; i < len(all); i += 2 {
				if held := strings.Fields(all[i+1].(string)); len(held) == 3 {
					w.do(t, "HSET", key, all[i], fmt.Sprintf("%s %s %d", held[0], held[1], earlier(t, held[2], ms)))
				}
			}
		case strings.HasSuffix(key, ":__category__"):
			if claim, is := w.do(t, "HGET", key, "store:claim").(string); is {
				store, at, _ := strings.Cut(claim, " ")
				w.do(t, "HSET", key, "store:claim", fmt.Sprintf("%s %d", store, earlier(t, at, ms)))
			}
		case strings.HasSuffix(key, ":__members__") && w.do(t, "EXISTS", key) == int64(1):
			all := w.do(t, "HGETALL", key).([]any)
			for i := 0; i < len(all); i += 2 {
				until, entry, _ := strings.Cut(all[i+1].(string), " ")
				w.do(t, "HSET", key, all[i], fmt.Sprintf("%d %s", earlier(t, until, ms), entry))
			}
		}
	}
}

func earlier(t *testing.T, text string, ms int64) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return max(1, n-ms)
}

// forget takes everything, as FLUSHALL does.
func (w *scene) forget(t *testing.T) {
	t.Helper()
	if w.namespace == "" {
		w.do(t, "FLUSHALL")
		return
	}
	keys, err := w.server.Keys(t.Context(), w.prefix()+"*")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		w.do(t, "DEL", key)
	}
}

// stream is the name of a lane's stream.
func (w *scene) stream(t *testing.T, lane event.LaneRef) string {
	t.Helper()
	info, err := w.server.Info(t.Context(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	name, err := event.Names{Namespace: w.namespace, Cluster: info["cluster_enabled"] == "1"}.Build(event.LaneName(lane))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// sequences are the ids of a stream's entries.
func (w *scene) sequences(t *testing.T, lane event.LaneRef) []string {
	t.Helper()
	var ids []string
	for _, entry := range w.do(t, "XRANGE", w.stream(t, lane), "-", "+").([]any) {
		ids = append(ids, entry.([]any)[0].(string))
	}
	return ids
}

// ear notes what a node is told.
type ear struct {
	woken    signal.Signal[event.Unit]
	rescans  signal.Signal[struct{}]
	forgot   signal.Signal[struct{}]
	reported signal.Signal[error]
}

// start starts a transport whose node listens for names of the category order.
func start(t *testing.T, tr *redis.Transport, names ...string) *ear {
	t.Helper()
	e := &ear{}
	e.woken.Init(t)
	e.rescans.Init(t)
	e.forgot.Init(t)
	e.reported.Init(t)
	node := transport.Node{
		Subscriptions: []transport.Subscription{{Name: event.PartName}}, // as every node of an application has it
		Wake:          e.woken.Send, Rescan: func() { e.rescans.Send(struct{}{}) }, Forgot: func() { e.forgot.Send(struct{}{}) }, Report: e.reported.Send,
	}
	for _, name := range names {
		node.Subscriptions = append(node.Subscriptions, transport.Subscription{Name: name, Category: "order"})
	}
	if err := tr.Start(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return e
}

var (
	orders   = event.LaneRef{Category: "order", Key: "k-1"}
	shipping = event.Unit{Name: "shipping", Key: "k-1"}
)

// entries are those of a lane from first to last.
func entries(lane event.LaneRef, first, last event.Sequence) []event.Envelope {
	var all []event.Envelope
	for seq := first; seq <= last; seq++ {
		all = append(all, event.Envelope{ID: lane.String() + "#" + seq.String(), Type: "thing.happened", Version: 1, Encoding: event.JSON, Data: []byte(`{}`),
			Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq, StoreID: "here"})
	}
	return all
}

// publish appends to a lane that may be empty, for subscribers, and gives the answer.
func publish(t *testing.T, tr *redis.Transport, lane event.LaneRef, first, last event.Sequence, subscribers ...string) transport.Appended {
	t.Helper()
	return tr.Append(t.Context(), []transport.Append{{Lane: lane, Entries: entries(lane, first, last), Start: true, Subscribers: subscribers}})[0]
}

// published is publish of what must go well.
func published(t *testing.T, tr *redis.Transport, lane event.LaneRef, first, last event.Sequence, subscribers ...string) {
	t.Helper()
	got := publish(t, tr, lane, first, last, subscribers...)
	if got.Err != nil || got.Outcome != transport.AppendOK || got.Newest != last {
		t.Fatalf("append %d to %d to %s: %+v", first, last, lane, got)
	}
}
