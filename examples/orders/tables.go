package orders

import (
	"context"
	_ "embed"

	"github.com/keyhold/keyhold"
)

var (
	//go:embed tables_sqlite.sql
	sqliteTables string
	//go:embed tables_postgres.sql
	postgresTables string
)

// CreateTables makes the tables of the handlers where they are missing: the Setup of the store, which runs before the first
// handler does. It finds out which database it was given.
func CreateTables(ctx context.Context, db keyhold.SQL) error {
	var postgres bool
	// PostgreSQL reads the text as a number, since it is compared with one. For SQLite a text is never equal to a number.
	if err := db.QueryRowContext(ctx, `SELECT '1' = 1`).Scan(&postgres); err != nil {
		return err
	}
	tables := sqliteTables
	if postgres {
		tables = postgresTables
	}
	_, err := db.ExecContext(ctx, tables)
	return err
}
