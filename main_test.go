package keyhold

import (
	"testing"

	"go.uber.org/goleak"
)

// The client of Redis goes on trying for a second to reach a server that is gone, also when it is closed; gossip waits as long for an answer of a node that is gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
