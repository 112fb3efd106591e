// Package postgres is the event store in a PostgreSQL database: the store of many nodes. The application's own tables live in the
// same database and change in the same transactions.
//
// # Inside
//
// migrations/ has the layout, with what each table is for. Reading order: config.go, store.go (what a start does), session.go (connections), owner.go
// (the lock of a process), migrate.go; query.go and connection.go (how statements run), tx.go, apply.go (what a commit writes),
// counts.go, then the role you need. operations.go is what a process and an operator share.
package postgres
