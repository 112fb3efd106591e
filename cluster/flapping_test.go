package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// TestAMemberThatComesAndGoesMovesLittle has a third node start and die again and again, where two have 1,000 keys with work. What does not live for as long as the debounce moves nothing;
// what lives longer gets keys for which it ranks first, as fast as each of the two lets go of them, and no others: each goes over once, and comes back once its lease has lapsed.
func TestAMemberThatComesAndGoesMovesLittle(t *testing.T) {
	t.Parallel()
	const keys = 1000
	for _, c := range []struct {
		what     string
		up, down time.Duration
		rounds   int
		least    int // keys that go over while it is up once
		most     int
	}{
		{"within the debounce", debounce - 100*time.Millisecond, second, 20, 0, 0},
		{"for a moment longer", heartbeat, ttl + heartbeat, 2, 1, 2 * moves * int(heartbeat/second)},
		{"for long", 4 * heartbeat, ttl + heartbeat, 2, 250, 2 * keys / 5},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			over := 0
			s := newStage(nil, func(_ time.Duration, what string) {
				if strings.Contains(what, " over to ") {
					over++
				}
			})
			s.join("a", 1)
			s.join("b", 1)
			s.pass(5 * second)
			for i := range keys {
				s.publish(unit(i), 1_000_000)
			}
			s.pass(5 * second)
			all := []transport.Member{s.player("a").self(), s.player("b").self(), {ID: "c", Node: "c", Names: []string{"shipping"}}}
			alike := cluster.NewPlacement(all) // c ranks the same whenever it is started
			before := map[event.Unit]event.Generation{}
			for _, u := range s.all {
				before[u] = s.units[u].counter
			}
			for round := range c.rounds {
				over = 0
				s.join("c", 1)
				s.pass(c.up)
				if over < c.least || over > c.most {
					t.Errorf("round %d: %d keys went over in %v, want %d to %d", round, over, c.up, c.least, c.most)
				}
				s.player("c").kill()
				s.pass(c.down)
				for _, u := range s.all {
					switch times := s.units[u].counter - before[u]; {
					case times > 2:
						t.Errorf("round %d: %s changed hands %d times", round, u.Key, times)
					case times > 0 && alike.First(u) != "c":
						t.Errorf("round %d: %s changed hands, and is not one of those of c", round, u.Key)
					}
					before[u] = s.units[u].counter
				}
			}
			s.pass(settledAfter)
			for _, u := range s.all {
				if r := s.units[u]; s.now.Sub(r.servedAt) > second {
					t.Errorf("%s has work, and has had no node for it since %v", u.Key, r.servedAt.Sub(start))
				}
			}
			if s.wrong != "" {
				t.Error(s.wrong)
			}
		})
	}
}
