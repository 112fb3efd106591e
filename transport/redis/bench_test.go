package redis

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
)

// BenchmarkConsume reads and acknowledges 200-byte events: "fenced" through the port, one goroutine for each key, which has up to so many read ahead; "floor" is what the
// same client and server do with nothing in between: one pipeline over all keys, XREADGROUP and XACK of one event each.
func BenchmarkConsume(b *testing.B) {
	for _, keys := range []int{256, 1} {
		b.Run("floor/keys="+strconv.Itoa(keys), func(b *testing.B) { consumeFloor(b, keys) })
		for _, ahead := range []int{1, 16} {
			b.Run("fenced/ahead="+strconv.Itoa(ahead)+"/keys="+strconv.Itoa(keys), func(b *testing.B) { consumeFenced(b, keys, ahead) })
		}
	}
}

// published publishes n events for each key.
func published(b *testing.B, w *world, keys, n int) []event.LaneRef {
	body := []byte(strings.Repeat("x", 200))
	lanes := make([]event.LaneRef, keys)
	for i := range lanes {
		lanes[i] = event.LaneRef{Category: "order", Key: "k-" + strconv.Itoa(i)}
		entries := make([]event.Envelope, n)
		for seq := range entries {
			entries[seq] = event.Envelope{ID: event.NewID(), Type: "order.placed", Version: 1, Encoding: event.Proto, Data: body, StoreID: "store-1", Sequence: event.Sequence(seq + 1)}
		}
		w.add(lanes[i], entries, "shipping")
	}
	return lanes
}

func consumeFenced(b *testing.B, keys, ahead int) {
	w, node := newWorld(b, sharedRedis(b, false), Config{TTL: time.Hour, RetireAfter: 2 * time.Hour}) // nobody renews here
	each := max(1, b.N/keys)
	lanes := published(b, w, keys, each)
	cpu := w.cpu()
	b.ResetTimer()
	var all sync.WaitGroup
	for _, lane := range lanes {
		h := w.acquire(node, event.Unit{Name: "shipping", Key: lane.Key})
		all.Go(func() {
			at, done := event.Sequence(0), 0
			backfill := lane
			backfill.Lane = event.Backfill
			for {
				got, err := node.Port().Advance(b.Context(), h, []event.Position{place(lane, at), place(backfill, 0)}, ahead)
				if err != nil {
					b.Error(err)
					return
				}
				if len(got.Entries) == 0 {
					break
				}
				done += len(got.Entries)
				at = got.Entries[len(got.Entries)-1].Sequence
			}
			if done != each {
				b.Errorf("%s: %d of %d", lane, done, each)
			}
		})
	}
	all.Wait()
	report(b, w, cpu, keys*each)
}

func consumeFloor(b *testing.B, keys int) {
	w, node := setup(b)
	client := node.conn.Load().servers.of("").work
	each := max(1, b.N/keys)
	lanes := published(b, w, keys, each)
	for _, lane := range lanes {
		w.do("xgroup", "create", w.stream(lane), "shipping", "0-0")
	}
	cpu := w.cpu()
	b.ResetTimer()
	last := make([]string, keys)
	for n := 0; n <= each; n++ {
		pipe := client.Pipeline()
		reads := make([]*goredis.Cmd, keys)
		for i, lane := range lanes {
			if last[i] != "" {
				pipe.Do(b.Context(), "xack", w.stream(lane), "shipping", last[i])
			}
			reads[i] = pipe.Do(b.Context(), "xreadgroup", "group", "shipping", "c", "count", 1, "streams", w.stream(lane), ">")
		}
		_, _ = pipe.Exec(b.Context())
		for i, cmd := range reads {
			reply, err := cmd.Result()
			if n == each {
				if err != goredis.Nil {
					b.Fatalf("%v, %v: want nothing", reply, err)
				}
				continue
			}
			if err != nil {
				b.Fatal(err)
			}
			entry := reply.([]any)[0].([]any)[1].([]any)[0].([]any)
			last[i] = entry[0].(string)
			if _, err := decodeEntry(lanes[i], last[i], entry[1].([]any)); err != nil {
				b.Fatal(err)
			}
		}
	}
	report(b, w, cpu, keys*each)
}

// report tells, besides the rate, how much the server itself had to do, which other programs on the machine do not change.
func report(b *testing.B, w *world, cpu float64, events int) {
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((w.cpu()-cpu)*1e6/float64(events), "server-µs/event")
	b.ReportMetric(0, "ns/op")
}

// cpu is the time that the server has used, in seconds.
func (w *world) cpu() float64 {
	w.Helper()
	info := w.do("info", "cpu").(string)
	var total float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(infoField(info, field), 64)
		if err != nil {
			w.Fatal(err)
		}
		total += seconds
	}
	return total
}
