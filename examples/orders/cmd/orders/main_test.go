package main

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Gossip that was stopped waits for a second for an answer that it had asked a node for which is gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

func TestAnAddressInUseEndsTheProgramAndGivesTheDatabaseBack(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db := filepath.Join(t.TempDir(), "orders.db")
	for range 2 { // the second would find the database owned
		var refused *net.OpError
		if err := run(t.Context(), settings{db: db, listen: taken.Addr().String(), drain: 20 * time.Second}); !errors.As(err, &refused) || refused.Op != "listen" {
			t.Errorf("got %v", err)
		}
		if err := run(t.Context(), settings{db: db, health: taken.Addr().String()}); !errors.As(err, &refused) || refused.Op != "listen" {
			t.Errorf("probes: got %v", err)
		}
	}
}
