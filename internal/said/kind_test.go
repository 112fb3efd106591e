package said

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFewAreSaidAndTheOthersCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Kind
		var written []int
		for i := range 5000 {
			more, write := k.Note(fmt.Sprint("address-", i%2000))
			if write {
				written = append(written, i)
			}
			if more != "" {
				t.Errorf("in the first minute it says %q", more)
			}
		}
		if fmt.Sprint(written) != "[0 1 2]" {
			t.Errorf("written are %v", written)
		}
		if len(k.from) != mostFrom {
			t.Errorf("%d addresses are kept", len(k.from))
		}
		<-time.After(Quiet)
		more, write := k.Note("address-1")
		if more != "and 4997 more from 1000 addresses or more in the last minute" || !write {
			t.Errorf("after a minute it says %q, and of the next one %t", more, write)
		}
		if _, write := k.Note("address-1"); write {
			t.Error("one address is told of twice")
		}
		<-time.After(Quiet)
		if got := k.Over(); got != "and 1 more from 1 address in the last minute" {
			t.Errorf("where nothing follows it says %q", got)
		}
		<-time.After(Quiet)
		if got := k.Over(); got != "" {
			t.Errorf("of a minute in which nothing was it says %q", got)
		}
	})
}

func TestAConnectionIsThatOfItsHost(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"10.0.0.1:77": "10.0.0.1", "[fe80::1%eth0]:77": "fe80::1%eth0", "a:77": "a:77", "": "unknown"} {
		if got := Host(address); got != want {
			t.Errorf("%q is of %q, want %q", address, got, want)
		}
	}
}
