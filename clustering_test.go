package keyhold_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
	"github.com/keyhold/keyhold/transport/local"
)

// hearsay rings whenever a node logs that the members have changed.
type hearsay chan struct{}

func (hearsay) Enabled(context.Context, slog.Level) bool { return true }
func (h hearsay) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h hearsay) WithGroup(string) slog.Handler          { return h }
func (h hearsay) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "members changed" {
		h <- struct{}{}
	}
	return nil
}

// known waits until a node knows members of these names, and gives them.
func known(t *testing.T, news hearsay, app *keyhold.App, names ...string) []transport.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		members := app.Members()
		var is []string
		for i := range members {
			is = append(is, members[i].Node)
		}
		if slices.Equal(is, names) {
			return members
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("members are %v, want %v", is, names)
		}
	}
}

// told rings whenever a log line begins so.
type told struct {
	begins string
	rings  chan struct{}
}

func (told) Enabled(context.Context, slog.Level) bool { return true }
func (l told) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l told) WithGroup(string) slog.Handler          { return l }
func (l told) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, l.begins) {
		select {
		case l.rings <- struct{}{}:
		default:
		}
	}
	return nil
}

// loggedPeers notes which logger it is given.
type loggedPeers struct {
	transport.Peers
	given *slog.Logger
}

func (p *loggedPeers) LogTo(logger *slog.Logger) { p.given = logger }
func (*loggedPeers) Certificate() (time.Time, string) {
	return time.Now(), "the certificate ends"
}

// What gossip and the node service say is in the log of the application, although nobody gave it to them.
func TestGossipAndTheNodeServiceLogToTheApplicationsLogger(t *testing.T) {
	t.Parallel()
	log := told{"gossip cannot read what a node says", make(chan struct{}, 1)}
	ours := gossip.New(gossip.Config{Preset: gossip.Local, Keys: [][]byte{[]byte("0123456789abcdef")}})
	peers := &loggedPeers{Peers: grpc.New(grpc.Config{})}
	cfg := onRedis(postgres.Open(postgresserver.Database(t)), redisserver.Run(t, redisserver.Options{}).URL(), "one")
	cfg.Logger = slog.New(log)
	cfg.Cluster = keyhold.ClusterConfig{Gossip: ours, Peers: peers}
	app := run(t, cfg, cart, newNotes().handler())
	if got := app.Notices(); len(got) != 1 || got[0] != "the certificate ends" || app.Ready() != nil {
		t.Errorf("notices are %q, and it is ready but for %v", got, app.Ready())
	}
	described := func() *admin.About {
		s, err := app.Admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Nodes) == 1 {
			return s.Nodes[0].About
		}
		return nil
	}
	soon(t, "the store has what the node says of itself", func() bool {
		a := described()
		return a != nil && a.ID == app.Members()[0].ID && a.Address == peers.Address() && a.Gossip == ours.Address() && !a.Up.IsZero() && a.Keys == 1 && a.Seals == "9f9f5111" && len(a.Notices) == 1
	})
	if peers.given != cfg.Logger {
		t.Error("the node service has another logger")
	}
	stranger := gossip.New(gossip.Config{Preset: gossip.Local, Keys: [][]byte{[]byte("another key, yes")}})
	seeds := func(context.Context) []string { return []string{ours.Address()} }
	if err := stranger.Start(t.Context(), transport.Member{ID: "stranger", StoreID: "s"}, seeds, func() {}); err != nil {
		t.Fatal(err)
	}
	defer stranger.Stop(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-log.rings:
	case <-ctx.Done():
		t.Error("the application's log does not say that the keys differ")
	}
}

func TestAClientsNodeServiceLogsToItsLogger(t *testing.T) {
	t.Parallel()
	peers := &loggedPeers{Peers: grpc.New(grpc.Config{})}
	keyhold.NewClient(keyhold.ClientConfig{Name: "shop", Peers: peers, Nodes: []string{"127.0.0.1:1"}, Logger: quiet})
	if peers.given != quiet {
		t.Error("it has another logger")
	}
}

func TestWhatIsWrongWithGossipIsToldBeforeAnybodyHearsOfTheNode(t *testing.T) {
	t.Parallel()
	cfg := onRedis(memory.Open(), "redis://127.0.0.1:1", "one")
	cfg.Cluster = keyhold.ClusterConfig{Weight: -1, Gossip: gossip.New(gossip.Config{Seeds: []string{"here"}, KeyFile: "none"})}
	err := keyhold.New(cfg).Start(t.Context())
	for _, part := range []string{"Weight is -1", "Seeds[0]", "open none"} {
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "connect to redis") {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

// Two lines of a main program are enough: what Redis brings along has the nodes hear of one another, and serves.
func TestNodesOfOneMachineFindOneAnother(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	n := newNotes()
	news := make(hearsay, 1000)
	first := onRedis(postgres.Open(db), url, "one")
	first.Logger = slog.New(news)
	one := run(t, first, cart, n.handler())
	cfg := onRedis(postgres.Open(db), url, "two")
	cfg.Cluster = keyhold.ClusterConfig{Weight: 3, Version: "v1.2.3"}
	two := keyhold.New(cfg)
	two.Register(cart, n.handler())
	if err := two.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	members := known(t, news, one, "one", "two")
	peer := members[1]
	if peer.Address == "" || peer.Gossip == "" || peer.Weight != 3 || peer.Version != "v1.2.3" || peer.Start == 0 {
		t.Errorf("the other node is known as %+v", peer)
	}
	client := grpc.New(grpc.Config{})
	if err := client.Start(t.Context(), transport.PeerIdentity{Application: "shop"}, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Stop(context.WithoutCancel(t.Context())) }()
	status, err := client.Status(t.Context(), peer.Address)
	if err != nil || status.Member.Node != "two" || len(status.Members) != 2 || status.Ready != "" {
		t.Errorf("it says of itself %+v, %v", status, err)
	}
	if err := client.Wake(t.Context(), peer.Address, nil); err != nil {
		t.Error(err)
	}
	stop(t, two)
	known(t, news, one, "one")
	if _, err := client.Status(t.Context(), peer.Address); err == nil {
		t.Error("a node that has stopped answers")
	}
	if err := two.Start(t.Context()); err != nil { // what it was configured with is started anew
		t.Fatal(err)
	}
	if again := known(t, news, one, "one", "two")[1]; again.ID == peer.ID || again.Address == "" {
		t.Errorf("it is back as %+v", again)
	}
	stop(t, two)
}

func TestNodesThatAreToOpenNoPort(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	n := newNotes()
	cfg := onRedis(postgres.Open(db), url, "one")
	cfg.Cluster.ListOnly = true
	news := make(hearsay, 1000)
	cfg.Logger = slog.New(news)
	one := run(t, cfg, cart, n.handler())
	run(t, onRedis(postgres.Open(db), url, "two"), cart, n.handler())
	if m := known(t, news, one, "one", "two"); m[0].Address != "" || m[0].Gossip != "" || m[1].Address == "" {
		t.Errorf("members are %+v", m)
	}
}

// Types that could not go to another node are all told at once, before a node is asked for what another one has. Where nothing goes to others they need no names.
func TestTypesWithoutWireNamesAreRefusedWhereNodesAskOneAnother(t *testing.T) {
	t.Parallel()
	type open struct{}
	type opened struct{}
	type look struct{}
	type view struct{}
	door := keyhold.Entity[int]{
		Kind: "door", Version: 1,
		Commands: keyhold.Commands[int]{keyhold.OnCommand(func(keyhold.Command, int, *open) (*opened, error) { return nil, nil })},
		Queries:  keyhold.Queries[int]{keyhold.OnQuery(func(keyhold.Query, int, *look) (*view, error) { return nil, nil })},
		Fold:     keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ refusedEvent) int { return n })},
	}
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	cfg := onRedis(postgres.Open(db), url, "one")
	app := keyhold.New(cfg)
	app.Register(door)
	err := app.Start(t.Context())
	for _, part := range []string{"a command goes", "keyhold.Type[open]", "keyhold.Type[opened]", "a query goes", "keyhold.Type[look]", "keyhold.Type[view]"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	cfg.Cluster.ListOnly = true
	run(t, cfg, door)
	run(t, keyhold.Config{Name: "shop", Store: memory.Open(), Transport: local.New(), Logger: quiet}, door)
}

func TestWhatIsWrongWithAClusterIsSaidAtStart(t *testing.T) {
	t.Parallel()
	n := newNotes()
	for name, of := range map[string]struct {
		cfg  keyhold.ClusterConfig
		want string
	}{
		"one node alone": {keyhold.ClusterConfig{Gossip: gossip.New(gossip.Config{})}, `transport "local" has one node alone`},
		"both":           {keyhold.ClusterConfig{ListOnly: true, Peers: grpc.New(grpc.Config{})}, "leave out the one or the other"},
		"weight":         {keyhold.ClusterConfig{Weight: -1}, "from 1 to 1000"},
	} {
		app := keyhold.New(keyhold.Config{Name: "shop", Store: memory.Open(), Transport: local.New(), Logger: quiet, Cluster: of.cfg})
		app.Register(cart, n.handler())
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), of.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	for name, of := range map[string]struct {
		cfg  keyhold.ClusterConfig
		want string
	}{
		"gossip that others could listen to": {keyhold.ClusterConfig{Gossip: gossip.New(gossip.Config{Bind: "0.0.0.0:0"})}, "there are no Keys"},
		"a service that others could reach":  {keyhold.ClusterConfig{Peers: grpc.New(grpc.Config{Bind: "0.0.0.0:0"})}, "TLS"},
	} {
		cfg := onRedis(postgres.Open(db), url, "one")
		cfg.Cluster = of.cfg
		app := keyhold.New(cfg)
		app.Register(cart, n.handler())
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), of.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever is refused what another application of the process uses leaves it as it was.
func TestWhatTwoApplicationsShareByMistakeGoesOnServingTheFirst(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	talk, peers := gossip.New(gossip.Config{}), grpc.New(grpc.Config{})
	cfg := onRedis(postgres.Open(db), url, "one")
	cfg.Cluster = keyhold.ClusterConfig{Gossip: talk, Peers: peers}
	one := run(t, cfg, cart, newNotes().handler())
	for name, c := range map[string]keyhold.ClusterConfig{
		"gossip": {Gossip: talk, Peers: grpc.New(grpc.Config{})},
		"peers":  {Gossip: gossip.New(gossip.Config{}), Peers: peers},
	} {
		cfg := onRedis(postgres.Open(db), url, "two")
		cfg.Cluster = c
		two := keyhold.New(cfg)
		two.Register(cart, newNotes().handler())
		if err := two.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "of its own") {
			t.Errorf("%s: the second says %v", name, err)
		}
		stop(t, two)
	}
	if talk.Address() == "" || peers.Address() == "" {
		t.Fatalf("the first is left with gossip at %q and its node service at %q", talk.Address(), peers.Address())
	}
	client := keyhold.NewClient(keyhold.ClientConfig{Name: "shop", Peers: peers, Nodes: []string{peers.Address()}, Logger: quiet})
	if err := client.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "their own") {
		t.Errorf("a client says %v", err)
	}
	if err := client.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	client = keyhold.NewClient(keyhold.ClientConfig{Name: "shop", Peers: grpc.New(grpc.Config{}), Nodes: []string{peers.Address()}, Logger: quiet})
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer client.Stop(context.WithoutCancel(t.Context()))
	if _, err := keyhold.Ask[*added](t.Context(), client, cart.ID("c"), &addItem{"ada", "tea"}); err != nil {
		t.Error(err)
	}
	stop(t, one)
	if talk.Address() != "" || peers.Address() != "" {
		t.Errorf("its own stop leaves gossip at %q and the node service at %q", talk.Address(), peers.Address())
	}
}

// wakes keeps the names that are counted of wakes.
type wakes struct {
	keyhold.Telemetry
	names chan string
}

func (w wakes) Nodes() actors.NodeObserver {
	o := w.Telemetry.Nodes()
	o.Woken = func(name string) { w.names <- name }
	return o
}

// What is counted, looked for and leased has a name that somebody has registered.
func TestAWakeOfWhatIsNoUnitIsPassedOver(t *testing.T) {
	t.Parallel()
	cfg := onRedis(postgres.Open(postgresserver.Database(t)), redisserver.Run(t, redisserver.Options{}).URL(), "one")
	counted := wakes{telemetry.New(telemetry.Options{NoTraces: true, Meters: sdkmetric.NewMeterProvider()}), make(chan string, 1000)}
	cfg.Telemetry = counted
	one := run(t, cfg, cart)
	peers := grpc.New(grpc.Config{Logger: quiet})
	if err := peers.Start(t.Context(), transport.PeerIdentity{Application: "shop"}, nil); err != nil {
		t.Fatal(err)
	}
	defer peers.Stop(context.WithoutCancel(t.Context()))
	units := []event.Unit{{Name: "made up", Key: "1"}, {Name: "cart", Key: "a:{b}"}, {Name: "cart"}, {}, {Name: "cart", Key: "c-1"}}
	if err := peers.Wake(t.Context(), one.Members()[0].Address, units); err != nil {
		t.Fatal(err)
	}
	of := map[string]int{} // the wakes of one message are told before it is answered
	for range len(counted.names) {
		of[<-counted.names]++
	}
	delete(of, "") // of parts, from the broker
	if len(of) != 1 || of["cart"] != 1 {
		t.Errorf("it was woken for %v, want one cart", of)
	}
}
