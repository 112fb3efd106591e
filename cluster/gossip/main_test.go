package gossip_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Gossip that was stopped waits for a second for an answer that it had asked a node for which is gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
