package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/keyhold/keyhold/eventstore"
)

// horizon gives the position up to which everything is there, for statements that begin after this.
//
// Positions come from a sequence, and transactions commit in any order. So each one that is about to draw takes an advisory lock, shared, whose key is
// the value drawn last by anybody, and keeps it until what it did is seen: all its positions are above the key. Here, first the sequence is
// read, and after that the lowest of these keys. A position up to both was drawn before the first look, under a lock taken before that; and as no
// such lock was there at the second look, the transaction was over.
//
// A key has 32 bits; the rest is known, as no transaction lasts for 2^32 positions. Locks of other tables, schemas and programs do not count.
func horizon(ctx context.Context, q queryer) (int64, error) {
	var drawn int64
	if _, err := get(ctx, q, `SELECT last_value FROM keyhold_position`, nil, &drawn); err != nil {
		return 0, err
	}
	var behind int64
	_, err := get(ctx, q, `SELECT coalesce(max(($1::bigint - l.objid::bigint) & 4294967295), 0) FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.classid = 'keyhold_log'::regclass AND l.objsubid = 2 AND l.granted
		AND ($1::bigint - l.objid::bigint) & 4294967295 < 2147483648
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`, []any{drawn}, &behind)
	return drawn - behind, err
}

func parsePosition(p eventstore.Position) (int64, error) {
	if p == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(string(p), 10, 64)
	if err != nil || position < 0 {
		return 0, fmt.Errorf("read all: %q is no position of this store", p)
	}
	return position, nil
}
