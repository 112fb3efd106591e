package sim

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestSchedules runs 10,000 schedules, others every time. KEYHOLD_SEED=n runs that one alone and tells what happens in it;
// KEYHOLD_SCHEDULES=n runs that many.
func TestSchedules(t *testing.T) {
	t.Parallel()
	for _, scene := range []Scene{{Leased: true}, {Leased: false}, {Leased: true, Harsh: true}, {Leased: false, Harsh: true}} {
		t.Run(name(scene), func(t *testing.T) {
			t.Parallel()
			first, n := seeds(t, scene, 2500)
			for seed := first; seed < first+n; seed++ {
				if v := Run(scene, seed); v != nil {
					t.Fatalf("%v\nKEYHOLD_SEED=%d tells the story", v, seed)
				}
			}
		})
	}
}

// TestSameSeedSameStory makes sure that a seed is worth printing.
func TestSameSeedSameStory(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for _, scene := range []Scene{{Leased: true}, {Leased: false}} {
		first, second := Trace(scene, seed), Trace(scene, seed)
		if first != second {
			t.Errorf("%s: seed %d tells two stories", name(scene), seed)
		}
	}
}

// TestEveryRuleIsNeeded takes one rule out at a time: among a few thousand schedules one must go wrong, or the world is too
// kind to tell anything.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, scene := range []Scene{
		{Leased: true, Without: Raise},
		{Leased: true, Without: Fence},
		{Leased: true, Without: Compare},
		{Leased: true, Without: Gap},
		{Leased: true, Without: Checkpoint},
		{Leased: true, Without: Discard},
		{Leased: true, Without: Return},
		{Leased: true, Without: Amnesty},
		{Leased: true, Without: Sent},
		{Leased: false, Without: Fence},
		{Leased: false, Without: Compare},
		{Leased: false, Without: Discard},
		{Leased: false, Without: Return},
		{Leased: false, Without: KeptWake},
		{Leased: true, Without: Park},
		{Leased: true, Without: Behind},
		{Leased: true, Without: Due},
		{Leased: true, Harsh: true, Without: Settle},
		{Leased: true, Harsh: true, Without: Count},
		{Leased: true, Harsh: true, Without: TakeBack},
		{Leased: true, Harsh: true, Without: Alone},
		{Leased: false, Without: Park},
		{Leased: false, Without: Behind},
		{Leased: false, Without: Due},
		{Leased: false, Harsh: true, Without: Settle},
		{Leased: false, Harsh: true, Without: Count},
		{Leased: false, Harsh: true, Without: TakeBack},
		{Leased: false, Harsh: true, Without: Alone},
		{Leased: true, Harsh: true, Without: CountAside},
		{Leased: true, Harsh: true, Without: TakeBackAside},
		{Leased: false, Harsh: true, Without: CountAside},
		{Leased: false, Harsh: true, Without: TakeBackAside},
	} {
		t.Run(name(scene)+" without "+string(scene.Without), func(t *testing.T) {
			t.Parallel()
			const most = 10_000
			for seed := range uint64(most) {
				if v := Run(scene, seed); v != nil {
					t.Log(v)
					return
				}
			}
			t.Errorf("nothing goes wrong in %d schedules", most)
		})
	}
}

// TestEverythingHappens makes sure that a schedule that goes well is worth something: among some hundreds, whatever can become of an
// entry does.
func TestEverythingHappens(t *testing.T) {
	t.Parallel()
	for _, scene := range []Scene{{Leased: true}, {Leased: false}} {
		seen := make(map[string]int)
		for seed := range uint64(400) {
			for what, n := range played(scene, seed, nil).seen {
				seen[what] += n
			}
		}
		t.Logf("%s: %v", name(scene), seen)
		for _, what := range []string{
			"halted", "resumed", "dead", "retry", "anew", "suspect", "parked", "unparked", "replayed", "aside failed",
			"poison", "retries exhausted", "crashed the process", "too many parked", "aside crash", "aside condemned",
		} {
			if seen[what] < 3 {
				t.Errorf("%s: %q happens %d times", name(scene), what, seen[what])
			}
		}
	}
}

// seeds gives the first seed to run, and how many.
func seeds(t *testing.T, scene Scene, n uint64) (first, count uint64) {
	t.Helper()
	number := func(name string) (uint64, bool) {
		text, ok := os.LookupEnv(name)
		if !ok {
			return 0, false
		}
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return v, true
	}
	if seed, ok := number("KEYHOLD_SEED"); ok {
		t.Log("\n" + Trace(scene, seed))
		return seed, 1
	}
	if many, ok := number("KEYHOLD_SCHEDULES"); ok {
		n = many
	}
	first = uint64(rand.Uint32()) << 16
	t.Logf("seeds from %d", first)
	return first, n
}

func name(s Scene) string {
	name := "owned store"
	if s.Leased {
		name = "leased"
	}
	if s.Harsh {
		name += ", harsh"
	}
	return name
}
