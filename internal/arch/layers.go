package arch

// layer orders the packages: an arrow may only go down.
type layer int

const (
	words    layer = iota // shared by all, know nobody
	ports                 // ports and pure logic; do not know one another
	adapters              // one port each, and the kits that test a port
	behavior              // actors
	siblings              // stand beside one another on actors
	facade                // the root package, which wires what is below
	faces                 // what looks at an application from outside
	programs              // choose adapters; own flags, signals, exit codes
	harness               // run programs to judge them
)

// row says what a package may import of this module. Whatever is not listed is refused.
type row struct {
	path  string // "." is the root; "x/..." is x and everything below it
	layer layer
	why   string // why it exists, or why it may import what it may
	uses  []string
	kit   bool // helps tests; may import whatever a test of its layer may
	plan  bool // does not exist yet
}

// layers is the table of packages, lowest layer first. The most exact row counts. Packages under one "/..." row may
// import one another freely.
var layers = []row{
	{path: "event", layer: words, why: "the words all others share; a leaf"},
	{path: "internal/lifecycle", layer: words, why: "owns every goroutine"},
	{path: "internal/lifecycle/lifecycletest", layer: adapters, kit: true, why: "the stress test of whatever is built on lifecycle"},
	{path: "internal/ebb", layer: words, why: "a map that gives its room back; knows nobody"},
	{path: "internal/said", layer: words, why: "how much is logged of what strangers cause, by gossip and the node service; knows nobody"},
	{path: "internal/signal", layer: words, why: "what tests wait for; in production code, so it knows nobody"},
	{path: "internal/child", layer: words, why: "programs that end with this one, for tests and the demo; knows nobody"},
	{path: "internal/past", layer: words, why: "how a test gives a handler an event that only an entity may emit"},
	{path: "proto/...", layer: words, why: "generated: what goes on a wire; used by codec and wire adapters, so that wire types end at the wire"},
	{path: "internal/arch", layer: words, why: "these tests"},

	{path: "eventstore", layer: ports, uses: []string{"event"}, why: "port to the database"},
	{path: "partitions/...", layer: ports, uses: []string{"event"}, why: "pure machine of a unit, and the lease-and-stream port: no I/O, clock or goroutine"},
	{path: "transport", layer: ports, uses: []string{"event"}, why: "port to what carries events"},
	{path: "codec/...", layer: ports, uses: []string{"event", "proto/..."}, why: "wire names to Go types; the one place that knows encodings"},

	{path: "internal/storelane", layer: adapters, uses: []string{"event", "eventstore", "partitions/...", "transport", "internal/lifecycle", "internal/signal"},
		why: "the lease-and-stream port over a store that the process owns; local and inline share it"},
	{path: "eventstore/memory", layer: adapters, uses: []string{"event", "eventstore", "internal/lifecycle", "internal/signal"}, why: "store for tests"},
	{path: "eventstore/sqlite/...", layer: adapters, uses: []string{"event", "eventstore", "internal/lifecycle", "internal/signal"}, why: "the embedded store"},
	{path: "transport/inline", layer: adapters, uses: []string{"event", "eventstore", "partitions/...", "transport", "internal/lifecycle", "internal/signal", "internal/storelane"},
		why: "delivers in the committing goroutine; reads the store it is bound to"},
	{path: "transport/local", layer: adapters, uses: []string{"event", "eventstore", "partitions/...", "transport", "internal/lifecycle", "internal/signal", "internal/storelane"},
		why: "delivers within one process; reads the store it is bound to"},
	{path: "eventstore/postgres/...", layer: adapters, uses: []string{"event", "eventstore", "internal/lifecycle", "internal/signal"}, why: "the store of many nodes"},
	{path: "transport/grpc", layer: adapters, uses: []string{"event", "transport", "proto/...", "internal/lifecycle", "internal/said", "internal/signal"},
		why: "the node service: nodes and clients ask one another over it"},
	{path: "cluster/gossip/...", layer: adapters, uses: []string{"event", "transport", "internal/lifecycle", "internal/said", "internal/signal"},
		why: "gossip on memberlist"},
	{path: "cluster/gossip/internal/simnet", layer: adapters, kit: true, why: "a network that loses, delays, doubles and cuts, for tests of gossip"},
	{path: "cluster/gossiptest", layer: adapters, kit: true, why: "suite that every gossip passes, and one in memory"},
	{path: "internal/leases", layer: adapters, uses: []string{"event", "partitions/...", "internal/lifecycle", "internal/signal"},
		why: "renews what a node holds, in batches; actors and parts share it"},
	{path: "internal/redisserver", layer: adapters, uses: []string{"internal/child"}, why: "a real Redis of one's own, for tests and the demo, which may break it"},
	{path: "internal/postgresserver", layer: adapters, uses: []string{"internal/child"}, why: "a real PostgreSQL of one's own, for tests and the demo, which may break it"},
	{path: "internal/proxy", layer: adapters, kit: true, why: "a connection on which things go wrong"},
	{path: "internal/netns", layer: adapters, kit: true, uses: []string{"internal/child"}, why: "hosts that are cut off from one another, in network namespaces"},
	{path: "internal/frozen", layer: adapters, kit: true, why: "scripts of released formats, which nothing may change"},
	{path: "eventstore/faulty", layer: adapters, kit: true, why: "a store that fails when told to"},
	{path: "eventstore/eventstoretest", layer: adapters, kit: true, why: "suite that every store passes"},
	{path: "internal/sim", layer: adapters, kit: true, why: "units in a world of faults, by seed; stands in for stores and brokers"},
	{path: "partitions/partitionstest", layer: adapters, kit: true, why: "suite that every lease-and-stream port passes"},
	{path: "transport/transporttest", layer: adapters, kit: true, why: "suite that every transport passes"},
	{path: "transport/peertest", layer: adapters, kit: true, why: "suite that every node service passes, and a network in memory on which things go wrong"},
	{path: "transport/brokertest", layer: adapters, kit: true, why: "suite that every broker passes, and a broker in memory"},

	{path: "transport/redis/...", layer: behavior, uses: []string{"event", "eventstore", "partitions/...", "transport", "transport/grpc", "cluster/gossip/...", "proto/...", "internal/ebb", "internal/lifecycle", "internal/signal"},
		why: "leases, streams and wakes on Redis; reads the store it is bound to for what a stream has lost; brings along how its nodes reach one another, so it is above those adapters"},
	{path: "actors/...", layer: behavior, uses: []string{"event", "eventstore", "partitions/...", "transport", "codec/...", "internal/ebb", "internal/leases", "internal/lifecycle", "internal/signal"},
		why: "behaviors and their runtime; knows ports only, and nothing that relays"},

	{path: "admin", layer: siblings, uses: []string{"event", "eventstore", "codec/..."}, why: "what an operator may see and do; CLI, console and API are faces of it"},
	{path: "telemetry/...", layer: siblings, uses: []string{"event", "eventstore", "actors/...", "internal/lifecycle", "internal/signal"}, why: "what happens, told to OpenTelemetry and Prometheus; an application that does not import it links neither"},
	{path: "projection", layer: siblings, uses: []string{"event", "eventstore", "codec/...", "actors/...", "internal/lifecycle", "internal/signal"},
		why: "read models over the order of all events; takes from actors what behaviors have in common"},
	{path: "outbox/...", layer: siblings, uses: []string{"event", "eventstore", "transport", "partitions/...", "internal/ebb", "internal/leases", "internal/lifecycle", "internal/signal"},
		why: "relays records to brokers and sinks; nobody who appends records imports it"},
	{path: "intake", layer: siblings, uses: []string{"event", "eventstore", "transport"}, why: "takes what other programs write to streams of their own into the store"},
	{path: "pm/...", layer: siblings, plan: true, uses: []string{"event", "eventstore", "codec/...", "actors/...", "internal/lifecycle", "internal/signal"},
		why: "process managers, on actors"},
	{path: "cluster/...", layer: siblings, uses: []string{"event", "eventstore", "partitions/...", "transport", "actors/...", "internal/leases", "internal/lifecycle", "internal/signal"},
		why: "membership and routing: implements what actors declares"},

	{path: ".", layer: facade,
		uses: []string{"event", "eventstore", "partitions/...", "transport", "codec/...", "actors/...", "admin", "projection", "outbox/...", "intake", "pm/...", "cluster/...", "internal/lifecycle", "internal/signal", "internal/past"},
		why:  "App, Config, registration: wires the layers below, and imports no store or broker adapter, so that a program pays for what it chose"},

	{path: "keyholdtest", layer: faces, kit: true, why: "an application under test"},
	{path: "console/...", layer: faces, plan: true, uses: []string{"event", "eventstore", "admin"}, why: "operator's pages, over admin"},
	{path: "ingest/...", layer: faces, plan: true, uses: []string{"event", "transport", "outbox/..."}, why: "HTTP edge in front of the lanes"},

	{path: "cmd/keyhold/command", layer: faces, why: "the operator's command, over admin; an application mounts it under its own, so it links no runtime",
		uses: []string{"event", "admin", "eventstore", "eventstore/sqlite/...", "eventstore/postgres/...", "internal/lifecycle"}},

	{path: "examples/orders/...", layer: programs, why: "the application that the documents show",
		uses: []string{".", "event", "admin", "eventstore", "eventstore/memory", "eventstore/sqlite/...", "eventstore/postgres/...", "transport", "transport/inline", "transport/local", "transport/redis/...", "transport/grpc", "cluster/gossip/...", "cmd/keyhold/command"}},
	{path: "examples/orders/demo", layer: harness, why: "kills the example's processes and counts; nothing that an application would copy, so it may use what is internal",
		uses: []string{".", "event", "admin", "eventstore", "eventstore/sqlite/...", "eventstore/postgres/...", "transport", "transport/local", "transport/redis/...", "transport/grpc", "examples/orders/...", "internal/lifecycle", "internal/redisserver", "internal/postgresserver"}},
	{path: "docs/guide", layer: harness, why: "the samples of the guide, so that each is compiled and run"},
	{path: "guarantees", layer: harness, why: "black-box tests of what Keyhold promises, over processes killed in the middle of their work"},
	{path: "cmd/keyhold", layer: programs, why: "the operator's command as a program", uses: []string{"cmd/keyhold/command"}},
}
