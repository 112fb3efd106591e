package guide_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
	"github.com/keyhold/keyhold/transport/redis"
)

// The sample of cluster.md: a node with an address, keys and certificates of its own.

func clusteredGrocer(name, ownIP, database, broker string, keys [][]byte, certFile, keyFile, caFile string) (*keyhold.App, *gossip.Gossip) {
	talk := gossip.New(gossip.Config{
		Bind:  net.JoinHostPort(ownIP, "7946"), // TCP and UDP
		Seeds: []string{"grocer-nodes:7946"},   // a name for all of them; not needed while Redis answers
		Keys:  keys,                            // the first seals, all of them open
	})
	app := keyhold.New(keyhold.Config{
		Name:      "grocer",
		Node:      name, // the same again after a restart
		Store:     postgres.Open(database),
		Transport: redis.Open(broker),
		Cluster: keyhold.ClusterConfig{
			Gossip: talk,
			Peers: grpc.New(grpc.Config{
				Bind: net.JoinHostPort(ownIP, "7947"),
				TLS:  grpc.MutualTLS(certFile, keyFile, caFile, "grocer-nodes"),
			}),
		},
	})
	return app, talk
}

// newKey is in gossip by SetKeys, as the page says.
func newKeyAfter(talk *gossip.Gossip, older, newer []byte) error {
	err := talk.SetKeys([][]byte{older, newer}) // then {newer, older}, then {newer}
	return err
}

// A client asks from a process that runs nothing of the grocer.

func grocersClient(nodes, certFile, keyFile, caFile string) *keyhold.Client {
	client := keyhold.NewClient(keyhold.ClientConfig{
		Name:  "grocer",
		Peers: grpc.New(grpc.Config{TLS: grpc.MutualTLS(certFile, keyFile, caFile, "grocer-nodes")}),
		Nodes: []string{nodes}, // grocer-nodes:7947, the name that stands for all of them
	})
	return client
}

// shelf is an entity that counts what is put on it.
var shelf = keyhold.Entity[int]{
	Kind: "shelf", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, n int, _ *PutOnShelf) (*OnShelf, error) {
		c.Emit(PutOn{ShelfID: c.ID()})
		return &OnShelf{Count: n + 1}, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ PutOn) int { return n + 1 })},
}

type (
	PutOnShelf struct{}
	OnShelf    struct{ Count int }
	PutOn      struct{ ShelfID string }
)

var (
	_ = keyhold.Type[PutOnShelf]("shelf.put", 1)
	_ = keyhold.Type[OnShelf]("shelf.count", 1)
	_ = keyhold.Type[PutOn]("shelf.put_on", 1)
)

// Two nodes on addresses of their own hear each other, and ask each other, with what the page gives them.
func TestTheGrocerHasSeveralMachines(t *testing.T) {
	t.Parallel()
	database, broker := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	older, newer := randomKey(), randomKey()
	certFile, keyFile, caFile := certificateFor(t, "grocer-nodes")
	first, second := machines(t)
	var talks []*gossip.Gossip
	var apps []*keyhold.App
	for i, ip := range []string{first, second} {
		app, talk := clusteredGrocer(fmt.Sprint("grocer-", i), ip, database, broker, [][]byte{older}, certFile, keyFile, caFile)
		app.Register(keyhold.Category{Name: "price", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[PriceSet]()}}, shelf)
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := app.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		apps, talks = append(apps, app), append(talks, talk)
	}
	for i, talk := range talks {
		soonTrue(t, "hears the other", func() bool {
			heard := talk.Heard()
			return len(heard) == 1 && heard[0].State == transport.HeardAlive && heard[0].Member.Node == fmt.Sprint("grocer-", 1-i)
		})
		if err := newKeyAfter(talk, older, newer); err != nil {
			t.Error(err)
		}
		soonTrue(t, "knows both by their addresses", func() bool {
			var at []string
			for _, m := range apps[i].Members() {
				at = append(at, m.Address, m.Gossip)
			}
			slices.Sort(at)
			want := []string{first + ":7946", first + ":7947", second + ":7946", second + ":7947"}
			slices.Sort(want)
			return slices.Equal(at, want)
		})
	}
	client := grocersClient(second+":7947", certFile, keyFile, caFile)
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer client.Stop(context.Background())
	for _, id := range []string{"tea", "milk", "bread", "salt"} { // whichever node has the shelf
		for i, asker := range []keyhold.Asker{apps[0], client, apps[1]} {
			got, err := keyhold.Ask[*OnShelf](t.Context(), asker, shelf.ID(id), &PutOnShelf{})
			if err != nil || got.Count != i+1 {
				t.Errorf("%s, ask %d: %+v, %v", id, i, got, err)
			}
		}
	}
}

// What cluster.md says that nodes of different keys say.
const keysDiffer = `level=WARN msg="gossip cannot read what a node says: the two nodes have different Keys: give them the same; while keys are changed each node needs the old one and the new one"`

func TestNodesOfDifferentKeysSaySo(t *testing.T) {
	t.Parallel()
	log := &logged{news: make(chan struct{}, 1)}
	a := gossip.New(gossip.Config{Preset: gossip.Local, Keys: [][]byte{randomKey()}})
	b := gossip.New(gossip.Config{Preset: gossip.Local, Keys: [][]byte{randomKey()}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	seeds := func(context.Context) []string { return []string{a.Address()} }
	for i, g := range []*gossip.Gossip{a, b} {
		if err := g.Start(t.Context(), transport.Member{ID: fmt.Sprint(i), StoreID: "s"}, seeds, func() {}); err != nil {
			t.Fatal(err)
		}
		defer g.Stop(context.Background())
	}
	soonTrue(t, "says that keys differ", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return bytes.Contains(log.text.Bytes(), []byte(keysDiffer))
	})
}

// The lines that cluster.md has in its table of the three steps are those that a node writes.
func TestAPageSaysWhatANodeSaysOfItsKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	log := &logged{news: make(chan struct{}, 1)}
	talk := gossip.New(gossip.Config{Preset: gossip.Local, Keys: [][]byte{older}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := talk.Start(t.Context(), transport.Member{ID: "a", StoreID: "s"}, nil, func() {}); err != nil {
		t.Fatal(err)
	}
	defer talk.Stop(context.Background())
	for _, keys := range [][][]byte{{older, newer}, {newer, older}, {newer}} {
		if err := talk.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(log.text.Bytes()), []byte("\n"))
	if len(lines) != 4 {
		t.Errorf("%d lines:\n%s", len(lines), log.text.Bytes())
	}
	for _, line := range lines {
		if _, says, _ := bytes.Cut(line, []byte("level=INFO ")); !bytes.Contains(page, says) || len(says) == 0 {
			t.Errorf("the page has not: %s", says)
		}
	}
}

// soonTrue looks until it is so; what is looked at sends no signals.
func soonTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !is(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// machines gives addresses of this machine that are nobody's yet, and that no other test of these days has either.
func machines(t *testing.T) (first, second string) {
	t.Helper()
	first = fmt.Sprintf("127.%d.%d.1", 1+mathrand.N(250), mathrand.N(250))
	second = first[:len(first)-1] + "2"
	for _, ip := range []string{first, second} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "7946"))
		if err != nil {
			t.Skipf("this system has no address for a second node: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return first, second
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// certificateFor is what the page has openssl make.
func certificateFor(t *testing.T, name string) (certFile, keyFile, caFile string) {
	t.Helper()
	dir := t.TempDir()
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sign := func(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "nodes of grocer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caKey, key := newKey(), newKey()
	caFile = write("ca.crt", "CERTIFICATE", sign(ca, ca, caKey, caKey))
	node := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certFile = write("tls.crt", "CERTIFICATE", sign(node, ca, key, caKey))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return certFile, write("tls.key", "PRIVATE KEY", der), caFile
}
