// Command demo lets the orders application loose and then counts. It is what `make demo` runs.
//
// 50 clients place 2,000 orders. Shipping goes through each client's orders one at a time and through clients in parallel. The
// carrier of one client refuses an order, which halts that client. Halfway the process is killed with SIGKILL and started
// again on the same database. At last the carrier comes round, the halt is lifted, and everything is counted: from the event
// log, from the tables, and from a file to which shipping writes a mark at entering and at leaving, which no rollback touches.
//
// The demo starts itself once more as a child, which runs the application and does what it is told over its standard
// input. It kills nothing but this child. What it counts can fail: see the tests of verdict.go.
//
// Reading order: main.go, script.go (the story), verdict.go (the counting); then watch.go and marks.go, worker.go and call.go,
// process.go and askers.go, evidence.go.
package main
