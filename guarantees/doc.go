// Package guarantees tests what Keyhold promises from outside: applications as processes of the operating system, killed with
// SIGKILL in the middle of their work, judged by what they left in the database and in a file of markers that no rollback
// touches.
//
// The test binary runs itself as the application under test. Everything is in tests; there is nothing to import.
//
// There are two harnesses. One process on SQLite is killed again and again, and leaves markers in a file. Several processes share a real
// PostgreSQL and a real Redis, both of which are broken too; their markers live in a second Redis that no fault touches, where a script
// judges each one as it comes. Where the system allows it each of these processes is on a host of its own, and gossip, Redis and PostgreSQL are cut from it
// one by one. Each failure prints its seed, and KEYHOLD_SEED takes one.
//
// Reading order: oracle_test.go (what is checked), app_test.go (the application), kill_test.go. Several nodes: marks_test.go (who is inside),
// node_app_test.go, node_control_test.go (the process), node_test.go, fleet_test.go (what a test sees of it), adr0028_test.go, then the others. Two applications on one Redis: services_test.go. Hosts: grid_test.go,
// cluster_load_test.go, cluster_asks_test.go (with node_asks_test.go, who asks), cluster_test.go.
package guarantees
