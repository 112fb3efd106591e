// Package telemetry tells OpenTelemetry what an application does: metrics of what its handlers and entities go through, and
// one trace from a command to its last effect, through the store and across restarts.
//
// Give it to an application as keyhold.Config.Telemetry:
//
//	app := keyhold.New(keyhold.Config{ /* ... */ Telemetry: telemetry.New(telemetry.Options{})})
//
// Without options it uses the process's global providers, which do nothing until the process sets them. Package
// telemetry/prometheus serves the metrics to Prometheus, without a collector.
//
// # Metrics
//
// Labels are handler (the name of a handler or entity kind), and where it says so use (event, command, query, internal) and
// outcome (committed, rejected, failed, refused, unknown): all bounded by the program, never a key, an id or an error text.
//
//	keyhold.work.duration     histogram, s   handler, use, outcome   from the call of a behavior to the outcome of its commit
//	keyhold.work.attempts     histogram      handler                 attempts that an event took, when it took more than one
//	keyhold.retries           counter        handler                 attempts that failed and were made again
//	keyhold.halts             counter        handler, reason         units that stopped
//	keyhold.resumes           counter        handler                 units that a person set going again
//	keyhold.parked            counter        handler                 events that could not be applied and were parked
//	keyhold.dead_letters      counter        handler                 events set aside as dead letters
//	keyhold.replayed          counter        handler                 dead letters applied after all
//	keyhold.unparked          counter        handler                 times that the last parked event of a key was applied
//	keyhold.aside_failures    counter        handler                 parked events and dead letters that were tried again in vain
//	keyhold.suspects          counter        handler                 events begun again after the process had died, perhaps of them
//	keyhold.panics            counter        handler
//	keyhold.commit_failures   counter        handler                 activations dropped because a commit was refused or unknown
//	keyhold.overdue           counter        handler                 behaviors that ignored the end of their context
//	keyhold.troubles          counter        what                    calls of store or transport that did not work out
//	keyhold.lag.events        gauge          handler                 records that a handler has not passed
//	keyhold.lag.age           gauge, s       handler                 age of the oldest event that units at work here have not passed
//	keyhold.stopped.age       gauge, s       handler                 how long the unit that is stopped longest has been
//	keyhold.units             gauge          handler, state          units that are halted, parking, paused, trying; live in this process
//	keyhold.dead              gauge          handler                 dead letters kept
//
// Where the application is one of several nodes on a broker:
//
//	keyhold.reachable         gauge          what (store, broker)    1 while it answers this process
//	keyhold.members           gauge                                  nodes that take part, as this one knows them
//	keyhold.gossip.keys       gauge                                  keys that open what the node hears: 2 while they are changed
//	keyhold.certificate.left  gauge, s                               until the certificate of its node service ends
//	keyhold.members.unheard   gauge                                  of these, that gossip does not reach from here
//	keyhold.parts             gauge                                  parts of the lanes, of 64, that this node publishes
//	keyhold.leases            gauge                                  units that this node holds
//	keyhold.leases.lost       counter        handler, reason         leases given up: fenced, expired, suspended; handler part = of a part of the lanes
//	keyhold.leases.refused    counter        handler                 units that were wanted here and that another node has
//	keyhold.handovers         counter        handler                 units handed over to a node that ranks before this one
//	keyhold.unfit             counter        handler                 units left to other nodes: this one could not recover them, or does not know a type
//	keyhold.wakes             counter        handler                 wakes that came from the broker
//	keyhold.relay.lag.events  gauge                                  records of this node's parts that the broker is not known to have
//	keyhold.relay.lag.age     gauge, s                               age of the oldest of them
//	keyhold.relay.published   counter        category                records appended to streams, for the first time or again
//	keyhold.relay.healed      counter        category                lanes of which the broker had lost something
//	keyhold.relay.diverged    counter        category                lanes that stopped until a person decides
//	keyhold.relay.abandoned   counter        category                records that no broker can hold
//	keyhold.relay.retired     counter        category                lanes that left the broker, passed by all
//	keyhold.relay.missing     counter        category                requests of other applications for events that are nowhere any more
//	keyhold.asks.routed       counter        how                     asks for other nodes that went to whom was remembered to have the entity, were redirected, or repeated
//	keyhold.asks.unrouted     counter        reason                  asks for which nobody was found who has the entity
//	keyhold.partitions        gauge          category                live keys on the broker; each category is counted by one node, once a minute
//
// Of projections, with the label projection, which is the name:
//
//	keyhold.projection.lag.events  gauge     projection          events that what readers see has not passed
//	keyhold.projection.lag.age     gauge, s  projection          age of the first of them
//	keyhold.projection.stopped     gauge     projection, state   builds that are halted, paused or trying an event again
//	keyhold.projection.retries     counter   projection          attempts that failed and were made again
//	keyhold.projection.halts       counter   projection, reason  builds that stopped
//
// What readers see of a projection that is being made anew for another Version stands still until that is through: its lag grows meanwhile.
//
// The gauges are read from the store when metrics are collected, at a cost that does not grow with the number of keys. A collection waits
// two seconds for the store at most, and leaves out what it could not read.
//
// # Traces
//
// Each unit of work is a span: "ask order PlaceOrder", "apply shipping order.placed". What it emits carries the span's W3C
// context in the envelope, so the unit of work that applies it, in whatever process and however much later, is its child. Keys and ids are
// attributes of spans; payloads are not.
package telemetry
