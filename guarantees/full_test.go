package guarantees

import (
	"testing"
	"time"
)

// TestAFullRedisHoldsUpWhatIsNewAndNothingElse takes away what memory Redis may have. What is in the streams goes on being applied, through the death of its owner: only so
// is memory freed. What is published meanwhile waits in the store, and comes when there is room again.
func TestAFullRedisHoldsUpWhatIsNewAndNothingElse(t *testing.T) {
	t.Parallel()
	const count = 20
	f := newFleet(t, settings{})
	f.two()
	clients := clientsOf(6)
	f.publish(f.any(), 0, interleaved(1, 5, clients...)...)
	for _, client := range clients {
		f.applied(runnerName, client, 5)
	}
	held := clients[0]
	f.marks.shut(t, gate(held, nil), before)
	f.publish(f.any(), 0, tasks(held, 6, count)...)
	owner := f.owner(runnerOf(held))
	last := func(client string) int {
		have, err := f.stream(client)
		if err != nil {
			t.Fatal(err)
		}
		if len(have) == 0 {
			return 0
		}
		return have[len(have)-1]
	}
	eventually(t, time.Minute, "all of it is relayed", func() (bool, error) { return last(held) == count, nil })

	f.limit("1mb") // less than it has
	successor := f.other(owner)
	f.publish(successor, 0, interleaved(6, count, clients[1:]...)...)
	owner.kill(t)
	f.marks.open(t, gate(held, nil))
	f.applied(runnerName, held, count)
	for _, client := range clients[1:] {
		if n := last(client); n > 5 {
			t.Errorf("number %d of %s was relayed: Redis was not full, which shows nothing", n, client)
		}
	}
	f.limit("0")
	f.settle(2*time.Minute, clients, nil)
}

// limit sets how much memory Redis may have.
func (f *fleet) limit(memory string) {
	f.t.Helper()
	if _, err := f.redis.Do(f.t.Context(), "CONFIG", "SET", "maxmemory", memory); err != nil {
		f.t.Fatal(err)
	}
}
