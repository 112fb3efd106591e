package orders

import (
	"context"
	_ "embed"

	"github.com/keyhold/keyhold"
)

//go:embed tables.sql
var tables string

// CreateTables makes the tables of the handlers where they are missing: the Setup of the store, which runs before the first
// handler does.
func CreateTables(ctx context.Context, db keyhold.SQL) error {
	_, err := db.ExecContext(ctx, tables)
	return err
}
