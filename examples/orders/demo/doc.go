// Command demo lets the orders application loose and then counts. It is what `make demo` runs.
//
// 50 clients place 2,000 orders. Shipping goes through each client's orders one at a time and through clients in parallel. The
// carrier of one client refuses an order, which halts that client. Halfway the process is killed with SIGKILL and started
// again on the same database. With TRANSPORT=redis STORE=postgres there are several processes (NODES, 3), which find one another by gossip. One more comes while
// orders are placed; one is killed, the others take over, and then it is started again; and each is asked how orders are that another one has. The servers are the demo's own. At last the carrier comes round, the halt is lifted, and everything is counted: from the event
// log, from the tables, and from a file to which shipping writes a mark at entering and at leaving, which no rollback touches.
//
// The demo starts itself once more for each process, which runs the application and does what it is told over its standard
// input. It kills nothing but these. What it counts can fail: see the tests of verdict.go and failover.go.
//
// Reading order: main.go, ground.go (what it runs on), script.go, survey.go and victim.go (the story), verdict.go and failover.go (the counting); then
// watch.go and marks.go, worker.go and call.go, process.go, network.go, fleet.go and askers.go, names.go (what is in Redis), evidence.go.
package main
