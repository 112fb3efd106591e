// Package postgresserver runs a real PostgreSQL of one's own, for tests and for the demo, which kill and freeze it.
//
// [Database] gives a test an empty database on a server that all tests of a binary share: that costs some 30 ms. A test that breaks
// its server starts one of its own with [Run], about a second. A [Server] is a child process on a private port of the loopback
// interface, in a temporary folder, and ends with the process that started it, however that ends.
//
// PostgreSQL refuses to run as root: then it runs as the user postgres, or nobody. KEYHOLD_POSTGRES_BIN may name the folder of its
// programs; otherwise initdb is looked for in the path and where Debian puts it, the newest version first.
//
// Reading order: server.go, programs.go, database.go, tests.go.
package postgresserver
