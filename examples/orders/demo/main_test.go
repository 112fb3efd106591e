package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The demo starts itself as a child. In a test, that is the test's own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		os.Exit(runWorker(os.Args[2:]))
	}
	// Gossip that was stopped waits for a second for an answer that it had asked a node for which is gone.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
