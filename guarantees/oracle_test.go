package guarantees

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/keyhold/keyhold/event"
)

// effect is one row that the handler committed, in the order of commits.
type effect struct {
	client string
	seq    event.Sequence
}

// verdict is what the oracle found. Everything but Effects must be 0.
type verdict struct {
	Effects, Lost, Reordered, Twice, Overlapping, Unacknowledged int
}

func (v verdict) String() string {
	return fmt.Sprintf("effects=%d lost=%d reordered=%d twice=%d overlapping=%d acknowledged-but-gone=%d",
		v.Effects, v.Lost, v.Reordered, v.Twice, v.Overlapping, v.Unacknowledged)
}

func (v verdict) good() bool { return v == verdict{Effects: v.Effects} && v.Effects > 0 }

// judgeEffects compares the effects with the last sequence of each lane.
func judgeEffects(tails map[string]event.Sequence, effects []effect) (v verdict) {
	seen := map[string]map[event.Sequence]int{}
	last := map[string]event.Sequence{}
	for _, e := range effects {
		v.Effects++
		if seen[e.client] == nil {
			seen[e.client] = map[event.Sequence]int{}
		}
		seen[e.client][e.seq]++
		if seen[e.client][e.seq] > 1 {
			v.Twice++
			continue
		}
		if e.seq < last[e.client] {
			v.Reordered++
		}
		last[e.client] = max(last[e.client], e.seq)
	}
	for client, tail := range tails {
		for s := event.Sequence(1); s <= tail; s++ {
			if seen[client][s] == 0 {
				v.Lost++
			}
		}
	}
	return v
}

// regressed counts commits of a unit at a generation below that of an earlier commit. Effects are in the order of their commits.
func regressed(effects []effectRow) (n int) {
	highest := map[event.Unit]event.Generation{}
	for _, e := range effects {
		u := event.Unit{Name: e.handler, Key: e.client}
		if e.generation < highest[u] {
			n++
		}
		highest[u] = max(highest[u], e.generation)
	}
	return n
}

// judgeMarkers counts events of a key that were entered while another of the same key and the same life of the process was open.
func judgeMarkers(file []byte) (overlapping int, err error) {
	type unit struct {
		life int
		key  string
	}
	open := map[unit][]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		var what string
		var u unit
		var seq uint64
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %s %d", &what, &u.life, &u.key, &seq); err != nil {
			return 0, fmt.Errorf("marker %q: %w", lines.Text(), err)
		}
		if what == "enter" {
			if slices.ContainsFunc(open[u], func(other uint64) bool { return other != seq }) {
				overlapping++
			}
			open[u] = append(open[u], seq)
			continue
		}
		i := slices.Index(open[u], seq)
		if i < 0 {
			return 0, fmt.Errorf("marker %q leaves what was not entered", lines.Text())
		}
		open[u] = slices.Delete(open[u], i, i+1)
	}
	return overlapping, nil
}

func TestOracleCountsWhatIsWrong(t *testing.T) {
	t.Parallel()
	tails := map[string]event.Sequence{"a": 3, "b": 1}
	cases := map[string]struct {
		effects []effect
		want    verdict
	}{
		"all well":  {[]effect{{"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}}, verdict{Effects: 4}},
		"lost":      {[]effect{{"a", 1}, {"a", 3}, {"b", 1}}, verdict{Effects: 3, Lost: 1}},
		"lost all":  {nil, verdict{Lost: 4}},
		"twice":     {[]effect{{"a", 1}, {"a", 2}, {"a", 2}, {"a", 3}, {"b", 1}}, verdict{Effects: 5, Twice: 1}},
		"reordered": {[]effect{{"a", 1}, {"a", 3}, {"a", 2}, {"b", 1}}, verdict{Effects: 4, Reordered: 1}},
	}
	for name, c := range cases {
		if got := judgeEffects(tails, c.effects); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	by := func(handler, client string, g event.Generation) effectRow {
		return effectRow{handler: handler, client: client, generation: g}
	}
	for _, c := range []struct {
		effects []effectRow
		want    int
	}{
		{[]effectRow{by("x", "a", 1), by("x", "a", 1), by("x", "b", 9), by("y", "a", 2), by("x", "a", 3), by("y", "a", 2)}, 0},
		{[]effectRow{by("x", "a", 2), by("x", "a", 1), by("x", "a", 1), by("x", "a", 2)}, 2},
	} {
		if got := regressed(c.effects); got != c.want {
			t.Errorf("%v: %d regressed, want %d", c.effects, got, c.want)
		}
	}
	for file, want := range map[string]int{
		"enter 1 a 1\nleave 1 a 1\nenter 1 a 2\nleave 1 a 2\n": 0,
		"enter 1 a 1\nenter 1 a 2\n":                           1,
		"enter 1 a 1\nenter 2 a 2\n":                           0, // killed in 1
		"enter 1 a 1\nenter 1 b 2\n":                           0,
	} {
		if got, err := judgeMarkers([]byte(file)); err != nil || got != want {
			t.Errorf("markers %q: got %d overlapping, %v, want %d", file, got, err, want)
		}
	}
	if _, err := judgeMarkers([]byte("leave 1 a 1\n")); err == nil {
		t.Error("a leave without an enter was accepted")
	}
}
