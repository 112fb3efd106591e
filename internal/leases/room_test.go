package leases

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

type unused struct{}

func (unused) Traits() partitions.Traits {
	return partitions.Traits{Leased: true, TTL: time.Hour, Heartbeat: time.Minute, Margin: time.Minute}
}
func (unused) Renew(context.Context, []partitions.Held) []error { return nil }
func (unused) Renewed(partitions.Held, time.Time)               {}
func (unused) Lost(partitions.Held, Loss)                       {}

func TestRoomForVeryManyLeasesIsGivenBack(t *testing.T) {
	t.Parallel()
	k := New(Config{Port: unused{}})
	held := make([]partitions.Held, 5000)
	for i := range held {
		held[i] = partitions.Held{Unit: event.Unit{Name: "shipping", Key: fmt.Sprint(i)}, Generation: 1}
		k.Add(held[i], time.Now(), unused{})
	}
	was := k.mu.deadlines.room()
	for _, h := range held {
		k.Remove(h)
	}
	if now := k.mu.deadlines.room(); was < len(held) || now > smallRoom {
		t.Errorf("room for %d, %d before", now, was)
	}
	k.Add(held[0], time.Now(), unused{})
	if k.Len() != 1 {
		t.Errorf("%d leases are kept", k.Len())
	}
}
