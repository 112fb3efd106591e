package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// town is a cluster with one entity, seen from one that asks: members come and go, the entity moves, messages are lost, and what the asker and the members know is old.
type town struct {
	t     *rapid.T
	now   time.Time
	quiet time.Time // from then on nothing moves, and all know all

	members []transport.Member // that run; ids are given once
	made    int
	seen    []transport.Member // by the asker
	owner   transport.PeerOwner
	lapses  time.Time // of the owner's lease, once it is gone

	done  map[string]int // how often something was done of the ask, by member
	doubt bool           // an answer was lost
}

const townTTL = 2 * time.Second

func (w *town) add() {
	w.made++
	id := fmt.Sprintf("n%d", w.made)
	w.members = append(w.members, transport.Member{ID: id, Node: id, Names: []string{"order"}, Address: id + ":1"})
}

func (w *town) runs(id string) bool {
	return slices.ContainsFunc(w.members, func(m transport.Member) bool { return m.ID == id })
}

// passes lets time pass, with what happens in it.
func (w *town) passes(d time.Duration) {
	w.now = w.now.Add(d)
	if w.owner.ID != "" && !w.runs(w.owner.ID) && !w.now.Before(w.lapses) {
		w.owner.ID = ""
	}
	if !w.now.Before(w.quiet) {
		w.seen = w.members
		return
	}
	switch rapid.IntRange(0, 8).Draw(w.t, "happens") {
	case 0:
		w.add()
	case 1:
		if i := rapid.IntRange(0, len(w.members)-1).Draw(w.t, "goes"); len(w.members) > 1 {
			if w.members[i].ID == w.owner.ID {
				w.lapses = w.now.Add(time.Duration(rapid.IntRange(0, int(townTTL)).Draw(w.t, "lapses")))
			}
			w.members = slices.Delete(slices.Clone(w.members), i, i+1)
		}
	case 2:
		if w.owner.ID == "" || w.runs(w.owner.ID) { // handed over
			w.owner = transport.PeerOwner{ID: w.members[rapid.IntRange(0, len(w.members)-1).Draw(w.t, "moves")].ID, Generation: w.owner.Generation + 1}
		}
	case 3:
		w.owner.ID = "" // put away
	case 4:
		w.seen = w.members
	}
}

// asks has a member answer.
func (w *town) asks(at target) *transport.PeerError {
	faulty := w.now.Before(w.quiet)
	w.passes(time.Duration(rapid.IntRange(0, int(100*time.Millisecond)).Draw(w.t, "takes")))
	chance := rapid.IntRange(0, 9).Draw(w.t, "luck")
	if faulty && chance == 0 || !w.runs(at.id) {
		return &transport.PeerError{Code: transport.PeerUnavailable, Text: "not reached"}
	}
	if faulty && chance == 1 {
		return &transport.PeerError{Code: rapid.SampledFrom([]transport.PeerCode{transport.PeerStopping, transport.PeerBusy}).Draw(w.t, "code"), Text: "not now"}
	}
	first := NewPlacement(w.members).First(event.Unit{Name: "order", Key: "1"})
	switch {
	case w.owner.ID == at.id:
	case w.owner.ID != "" && (at.decide || first == at.id):
		return &transport.PeerError{Code: transport.PeerNotOwner, Text: "held", Owner: w.owner, Most: townTTL}
	case w.owner.ID == "" && (at.decide || first == at.id):
		w.owner = transport.PeerOwner{ID: at.id, Generation: w.owner.Generation + 1}
	case faulty && chance == 2: // an old hint
		return &transport.PeerError{Code: transport.PeerNotOwner, Text: "it was there", Owner: transport.PeerOwner{ID: fmt.Sprintf("n%d", 1+chance%w.made), Generation: w.owner.Generation / 2}}
	default:
		return &transport.PeerError{Code: transport.PeerNotOwner, Text: "not here"}
	}
	w.done[at.id]++
	if faulty && chance == 3 {
		w.doubt = true
		return &transport.PeerError{Code: transport.PeerUnavailable, Text: "the link broke", Unknown: true}
	}
	return nil
}

// Whatever moves meanwhile, an ask ends in time, is not made again once it may have been done, unless it has an id, and gets its answer if things are quiet for long enough.
func TestAnAskEndsAndIsNotDoneTwiceWhateverMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &town{t: t, now: time.Unix(1000, 0), done: map[string]int{}}
		begun := w.now
		w.quiet = begun.Add(time.Duration(rapid.IntRange(0, int(3*townTTL)).Draw(t, "quiet after")))
		for range rapid.IntRange(1, 5).Draw(t, "members") {
			w.add()
		}
		w.seen = w.members
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			w.passes(0)
		}
		u := event.Unit{Name: "order", Key: "1"}
		memory := newOwners(10)
		r := route{unit: u, repeat: rapid.Bool().Draw(t, "id"), ttl: townTTL}
		look := func() *sight {
			s := &sight{field: field{Placement: NewPlacement(w.seen)}, now: w.now, jitter: float64(rapid.IntRange(0, 9).Draw(t, "jitter")) / 10}
			s.known = memory.find(u, &s.field, w.now)
			return s
		}
		var hint transport.PeerOwner
		if rapid.Bool().Draw(t, "hinted") {
			hint = w.owner
		}
		s := look()
		st := r.start(s, hint)
		inRow := 0
		for asks := 0; st.err == nil; asks++ {
			if asks > 2000 {
				t.Fatal("no end")
			}
			memory.forget(u, st.forget)
			if st.learned.ID != "" {
				memory.learn(u, st.learned, &s.field, w.now, st.most)
			}
			if !st.ask {
				if st.rest <= 0 || st.rest > mostRest {
					t.Fatalf("a rest of %v", st.rest)
				}
				inRow = 0
				w.passes(st.rest)
				s = look()
				st = r.again(s)
				continue
			}
			if inRow++; inRow > 4*mostHops*mostInTurn {
				t.Fatalf("%d asks without a rest", inRow)
			}
			if w.doubt && !r.repeat {
				t.Fatal("asked again, although it may have been done")
			}
			if took := w.now.Sub(begun); took > 2*townTTL {
				t.Fatalf("asked after %v", took)
			}
			e := w.asks(r.at)
			s = look()
			if e == nil {
				break
			}
			st = r.answered(s, e)
		}
		if took := w.now.Sub(begun); took > 2*townTTL+mostRest+100*time.Millisecond {
			t.Fatalf("it took %v", took)
		}
		n := 0
		for _, times := range w.done {
			n += times
		}
		switch {
		case !r.repeat && n > 1:
			t.Fatalf("done %d times", n)
		case st.err == nil: // answered
		case n > 0 && !st.err.Unknown:
			t.Fatalf("it was done, and the error says that it was not: %v", st.err)
		case n == 0 && st.err.Unknown:
			t.Fatalf("nothing was done, and the error leaves it open: %v", st.err)
		case !w.quiet.After(begun.Add(2*townTTL).Add(-townTTL-2*mostRest)) && !(w.doubt && !r.repeat): // the lease of one that is gone has lapsed long before the end
			t.Fatalf("quiet since %v, and not answered after %v: %v", w.quiet.Sub(begun), w.now.Sub(begun), st.err)
		}
	})
}
