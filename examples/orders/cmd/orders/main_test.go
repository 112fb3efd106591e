package main

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		if err := run(t.Context(), db, "", taken.Addr().String()); !errors.As(err, &refused) || refused.Op != "listen" {
			t.Errorf("got %v", err)
		}
	}
}
