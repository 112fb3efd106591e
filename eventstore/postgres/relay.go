package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// noteUnpublished notes what was committed while nobody relayed, in the transaction of a start for which nobody else writes.
func noteUnpublished(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO keyhold_unpublished (part, lane, tail) SELECT n.part, n.id, n.last FROM keyhold_lanes n
		LEFT JOIN keyhold_published p ON p.lane = n.id WHERE n.last > coalesce(p.through, 0) ON CONFLICT DO NOTHING`)
	return err
}
