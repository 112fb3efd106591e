// Package orders is a small shop on Keyhold, and the place to begin reading: everything an application writes is here, and
// nothing else.
//
// Two entities decide: [Order] (place, pay, cancel, get) and [Payment]. Three handlers react: [Shipping] and [Clients] to
// each client's orders, [Settlement] to each order's payments, which it passes on to the order as a durable command. The
// programs are in cmd/orders, an HTTP server of two short files, and in demo, which kills the shop in the middle and counts.
// returns.go, behind the build tag next, is the shop's next release, to be deployed over this one.
// Where the shop is one process on SQLite and where it is many on PostgreSQL and Redis is decided in cmd/orders/main.go, in two lines.
//
// Reading order: events.go and commands.go (what is said), orders.go (an entity), shipping.go (a handler with a table of its
// own), clients.go (a read model), payments.go (protobuf, and a command sent durably), tables_sqlite.sql, cmd/orders/main.go,
// behaviors_test.go (tests of one behavior, with keyholdtest). README.md asks what you can predict by then.
package orders
