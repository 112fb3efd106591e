package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// TestSlotThatMovesIsFollowed: while its keys go from one server to another, and after that.
func TestSlotThatMovesIsFollowed(t *testing.T) {
	t.Parallel()
	a := redisserver.Run(t, redisserver.Options{Cluster: true})
	b := redisserver.Run(t, redisserver.Options{Cluster: true})
	w, node := newWorld(t, a, Config{})
	other := w.node()
	idA, idB := join(t, a, b)
	w.publish(orders, 3, "shipping")
	h := w.acquire(node, shipping)
	w.fetch(node, h, 1, place(orders, 0)) // a lane without a stream would make it a call for keys that are not there yet, which waits

	slot := slotOf(w.lease(shipping))
	do(t, b, "CLUSTER", "SETSLOT", slot, "IMPORTING", idA)
	do(t, a, "CLUSTER", "SETSLOT", slot, "MIGRATING", idB)
	host, port, _ := strings.Cut(b.Addr(), ":")
	move := func(keys ...any) {
		do(t, a, "MIGRATE", append([]any{host, port, "", 0, 5000, "KEYS"}, keys...)...)
	}
	move(w.lease(shipping))
	if _, err := node.Port().Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 1); codeOf(err) != "TRYAGAIN" || errors.Is(err, partitions.ErrUnknown) {
		t.Errorf("half of it moved: got %v, want TRYAGAIN", err)
	}
	move(w.counter(shipping), w.stream(orders))
	check := func(when string, at event.Sequence) {
		t.Helper()
		if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
			t.Errorf("%s: renew: %v", when, err)
		}
		if got := w.advance(node, h, 1, place(orders, at)); sequences(got.Entries) != run(orders, at+1, at+1) {
			t.Errorf("%s: got %s", when, sequences(got.Entries))
		}
	}
	check("asked for elsewhere", 1)
	if node.conn.Load().servers.of(w.lease(shipping)).addr != a.Addr() {
		t.Error("the slot counts as moved already")
	}
	do(t, b, "CLUSTER", "SETSLOT", slot, "NODE", idB)
	do(t, a, "CLUSTER", "SETSLOT", slot, "NODE", idB)
	check("moved", 2)
	if node.conn.Load().servers.of(w.lease(shipping)).addr != b.Addr() {
		t.Error("the slot does not count as moved")
	}
	if got, err := other.Port().Acquire(t.Context(), shipping, 0); err != nil || !got.Forgot { // it asks the first server, which has a birth key
		t.Errorf("the second server begins to remember: %+v, %v", got, err)
	}
	w.release(node, h, false)
}

// join makes one cluster of two, in which the first has all slots.
func join(t *testing.T, a, b *redisserver.Server) (idA, idB string) {
	t.Helper()
	do(t, b, "CLUSTER", "FLUSHSLOTS")
	host, port, _ := strings.Cut(a.Addr(), ":")
	do(t, b, "CLUSTER", "MEET", host, port)
	idA, idB = do(t, a, "CLUSTER", "MYID").(string), do(t, b, "CLUSTER", "MYID").(string)
	for _, s := range []*redisserver.Server{a, b} {
		eventually(t, func() bool {
			nodes := do(t, s, "CLUSTER", "NODES").(string)
			return strings.Contains(nodes, idA) && strings.Contains(nodes, idB) && !strings.Contains(nodes, "handshake") &&
				strings.Contains(do(t, s, "CLUSTER", "INFO").(string), "cluster_state:ok")
		})
	}
	return idA, idB
}

// halve makes one cluster of two, in which each has half of the slots, and gives the id of the second.
func halve(t *testing.T, a, b *redisserver.Server) (idB string) {
	t.Helper()
	_, idB = join(t, a, b)
	do(t, a, "CLUSTER", "DELSLOTSRANGE", slots/2, slots-1)
	do(t, b, "CLUSTER", "DELSLOTSRANGE", slots/2, slots-1)
	do(t, b, "CLUSTER", "ADDSLOTSRANGE", slots/2, slots-1)
	for _, s := range []*redisserver.Server{a, b} {
		eventually(t, func() bool {
			info := do(t, s, "CLUSTER", "INFO").(string)
			return strings.Contains(info, "cluster_slots_ok:16384") && strings.Contains(info, "cluster_size:2")
		})
	}
	return idB
}

// TestAServerThatDoesNotAnswerHoldsUpNoOther: renewals of the leases that it has fail, those of the others do not, in whatever order they are asked.
func TestAServerThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	a := redisserver.Run(t, redisserver.Options{Cluster: true})
	b := redisserver.Run(t, redisserver.Options{Cluster: true})
	halve(t, a, b)
	w, _ := newWorld(t, a, Config{Timeout: time.Second})
	node := w.node()
	remember(t, node, a, b)
	var held []partitions.Held
	at := map[string][]int{}
	for n := range 16 {
		h := w.acquire(node, event.Unit{Name: "shipping", Key: strconv.Itoa(n)})
		addr := node.conn.Load().servers.of(w.lease(h.Unit)).addr
		held, at[addr] = append(held, h), append(at[addr], n)
	}
	if len(at[a.Addr()]) == 0 || len(at[b.Addr()]) == 0 {
		t.Fatalf("all leases are on one server: %v", at)
	}
	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Thaw() }()
	for range 4 {
		errs := node.Port().Renew(t.Context(), held)
		for _, n := range at[a.Addr()] {
			if errs[n] != nil {
				t.Fatalf("lease of a server that answers: %v", errs[n])
			}
		}
		for _, n := range at[b.Addr()] {
			if errs[n] == nil || errors.Is(errs[n], partitions.ErrFenced) {
				t.Fatalf("lease of the server that does not answer: %v", errs[n])
			}
		}
	}
}

// TestAMasterThatHangsIsReplaced: its replica has taken its place, and with it a lease, which is renewed there.
func TestAMasterThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	a := redisserver.Run(t, redisserver.Options{Cluster: true})
	b := redisserver.Run(t, redisserver.Options{Cluster: true})
	idB := halve(t, a, b)
	replica := redisserver.Run(t, redisserver.Options{Cluster: true})
	join(t, a, replica)
	eventually(t, func() bool { return strings.Contains(do(t, replica, "CLUSTER", "NODES").(string), idB) })
	do(t, replica, "CLUSTER", "REPLICATE", idB)
	eventually(t, func() bool {
		info, err := replica.Info(t.Context(), "replication")
		return err == nil && info["master_link_status"] == "up"
	})
	w, _ := newWorld(t, a, Config{Timeout: 500 * time.Millisecond})
	node := w.node()
	remember(t, node, a, b)
	var held partitions.Held
	for n := 0; held.Generation == 0; n++ {
		u := event.Unit{Name: "shipping", Key: strconv.Itoa(n)}
		if node.conn.Load().servers.of(w.lease(u)).addr == b.Addr() {
			held = w.acquire(node, u)
		}
	}
	wrote := offset(t, b, "master_repl_offset")
	eventually(t, func() bool { return offset(t, replica, "slave_repl_offset") >= wrote })
	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Thaw() }()
	do(t, replica, "CLUSTER", "FAILOVER", "TAKEOVER")
	var err error
	for range 20 { // each of which takes the time of a call while it goes to the one that hangs
		if err = node.Port().Renew(t.Context(), []partitions.Held{held})[0]; err == nil {
			return
		}
	}
	t.Errorf("after twenty renewals: %v", err)
}

func offset(t *testing.T, s *redisserver.Server, field string) int64 {
	t.Helper()
	info, err := s.Info(t.Context(), "replication")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info[field], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// remember has servers of a node remember for long enough to grant leases.
func remember(t *testing.T, node *Transport, servers ...*redisserver.Server) {
	t.Helper()
	of := make(map[string]*redisserver.Server)
	for _, s := range servers {
		of[s.Addr()] = s
	}
	for _, s := range node.conn.Load().servers.all() {
		info, err := of[s.addr].Info(t.Context(), "replication")
		if err != nil {
			t.Fatal(err)
		}
		do(t, of[s.addr], "SET", node.conn.Load().birthKey(s), info["master_replid"]+" 1 long-ago")
	}
}

func do(t *testing.T, s *redisserver.Server, command string, args ...any) any {
	t.Helper()
	reply, err := s.Do(t.Context(), command, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", command, args, err)
	}
	return reply
}

// TestSentinelsTellTheMaster.
func TestSentinelsTellTheMaster(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	sentinel := startSentinel(t, server)
	w, _ := newWorld(t, server, Config{})
	cfg := w.cfg
	cfg.URL, cfg.Master = "redis://"+sentinel, "shop"
	node := w.nodeAt(cfg)
	h := w.acquire(node, shipping)
	if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
		t.Error(err)
	}
	if w.do("exists", w.lease(shipping)) != int64(1) {
		t.Error("the master has no lease")
	}
}

// freeAddr gives one below those that the system gives to whoever listens or connects, and that servers of tests have: nobody takes it meanwhile.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(1_000)))
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// startSentinel starts a Sentinel that watches a server, and gives its address.
func startSentinel(t *testing.T, server *redisserver.Server) string {
	t.Helper()
	home, err := child.NewHome("keyhold-sentinel", "TERM", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = home.Close() })
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	host, at, _ := strings.Cut(server.Addr(), ":")
	file := filepath.Join(home.Dir, "sentinel.conf")
	settings := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor shop %s %s 1\n", port, home.Dir, host, at)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Start(filepath.Join(home.Dir, "log"), nil, "redis-server", file, "--sentinel"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}
