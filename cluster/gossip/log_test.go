package gossip_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/cluster/gossip"
)

// Whoever varies the address that a packet comes from writes no line with each.
func TestWarningsOfStrangersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &said{}
		logs := gossip.NewLogs(log.logger())
		packet := func(i int) {
			fmt.Fprintf(logs, "[ERR] memberlist: Decrypt packet failed: No installed keys could decrypt the message from=10.1.%d.%d:%d\n", i/250, i%250, 1000+i)
		}
		for i := range 40 {
			packet(i)
		}
		packet(5)
		packet(0) // of which there was a line
		if n := strings.Count(log.String(), "\n"); n != 3 || !log.has("address=10.1.0.0:1000") || !log.has("address=10.1.0.2:1002") {
			t.Errorf("%d lines:\n%s", n, log)
		}
		logs.CatchUp()
		<-time.After(time.Minute)
		logs.CatchUp()
		if !log.has("level=WARN", `msg="gossip cannot read what a node says: and 39 more from 38 addresses in the last minute"`) {
			t.Errorf("after a minute:\n%s", log)
		}
		before := strings.Count(log.String(), "\n")
		<-time.After(time.Minute)
		logs.CatchUp()
		packet(0)
		if n := strings.Count(log.String(), "\n") - before; n != 1 {
			t.Errorf("%d lines of a minute with one packet:\n%s", n, log)
		}
		for i := range 5000 {
			packet(i)
		}
		<-time.After(time.Minute)
		packet(0) // which tells of those before it, too
		if !log.has("and 4998 more from 1000 addresses or more in the last minute") {
			t.Errorf("after very many:\n%s", log)
		}
	})
}

// One kind does not keep quiet about another.
func TestEachKindOfWarningIsCountedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &said{}
		logs := gossip.NewLogs(log.logger())
		for i := range 10 {
			fmt.Fprintf(logs, "[ERR] memberlist: No installed keys could decrypt the message from=10.1.1.%d:1\n", i)
		}
		fmt.Fprintln(logs, "[WARN] memberlist: Was able to connect to a over TCP but UDP probes failed, network may be misconfigured")
		if !log.has("not over UDP", "library=") {
			t.Errorf("it says:\n%s", log)
		}
	})
}
