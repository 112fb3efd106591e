package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Many more callers than reading connections, all at once, before any statement was prepared.
func TestManyUnitsRecoverAtOnceOnAFreshStore(t *testing.T) {
	t.Parallel()
	store := Open(filepath.Join(t.TempDir(), "store.db"))
	if _, err := store.Start(t.Context(), eventstore.StartOptions{Node: "n"}); err != nil {
		t.Fatal(err)
	}
	defer store.Stop(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := make(chan struct{})
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			<-begin
			u := event.Unit{Name: "handler", Key: fmt.Sprint(n)}
			_, err := store.Recover(ctx, []eventstore.Ask{{Unit: u, Lanes: []event.LaneRef{{Category: "c", Key: u.Key}}}})
			if err != nil {
				t.Errorf("recover %s: %v", u, err)
			}
		})
	}
	close(begin)
	callers.Wait()
}
