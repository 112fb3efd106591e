package grpc_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/transport/grpc"
)

func TestRefusalsAreToldOfEachNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lines
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		came, bare, went := grpc.Refusals(ctx, log.logger())
		for i := range 20 { // health checks and scans, before the nodes
			bare(fmt.Sprintf("10.1.0.%d:1", i))
		}
		for i := range 5 { // each time from another port
			came(fmt.Sprintf("10.0.0.1:%d", 1000+i))
			came(fmt.Sprintf("10.0.0.2:%d", 1000+i))
			went("10.0.0.3:7000")
			went("10.0.0.3:7001")
		}
		for _, of := range []string{"from=10.0.0.1:1000", "from=10.0.0.2:1000", "to=10.0.0.3:7000", "to=10.0.0.3:7001"} {
			if got := log.with("level=WARN", of); len(got) != 1 {
				t.Errorf("lines with %s: %s", of, got)
			}
		}
		if got := log.with(""); len(got) != 7 {
			t.Errorf("%d lines: %s", len(got), got)
		}
		<-time.After(2 * time.Minute) // in which nothing follows
		for _, want := range []string{
			"a link to this node did not come about: and 8 more from 2 addresses in the last minute",
			"a link to this node did not come about for want of TLS or a certificate: and 17 more from 17 addresses in the last minute",
			"a link to another node did not come about: and 8 more from 2 addresses in the last minute",
		} {
			if got := log.with("level=WARN", want); len(got) != 1 {
				t.Errorf("lines with %q: %s", want, got)
			}
		}
		cancel()
		synctest.Wait()
	})
}
