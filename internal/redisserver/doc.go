// Package redisserver runs a real Redis of one's own, for tests and for the demo, which kill, freeze and empty it.
//
// Each [Server] is a child process on a private port of the loopback interface, in a temporary folder. It ends with the process that
// started it, however that ends. KEYHOLD_REDIS_SERVER may name the program; otherwise redis-server, or valkey-server, is looked for in
// the path.
//
// Reading order: server.go, options.go, client.go, tests.go.
package redisserver
