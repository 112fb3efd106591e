package postgres

import (
	"strings"
	"testing"
	"time"
)

func TestTransactionsEndInHalfALease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, lease, want time.Duration }{
		{0, 0, 0}, // the default comes later
		{0, 15 * time.Second, 7 * time.Second},
		{0, 5 * time.Second, 2500 * time.Millisecond},
		{0, 100 * time.Millisecond, 100 * time.Millisecond},
		{2 * time.Second, 5 * time.Second, 2 * time.Second},
		{20 * time.Second, 0, 20 * time.Second},
	} {
		got, err := Config{TransactionTimeout: c.set}.under(c.lease)
		if err != nil || got.TransactionTimeout != c.want {
			t.Errorf("%s under leases of %s: %s, %v, want %s", c.set, c.lease, got.TransactionTimeout, err, c.want)
		}
	}
	if _, err := (Config{TransactionTimeout: 3 * time.Second}).under(5 * time.Second); err == nil || !strings.Contains(err.Error(), "set 2.5s at most") {
		t.Errorf("longer than half a lease: %v", err)
	}
}
