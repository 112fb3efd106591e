package partitions_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// TestInterleavings holds what broke simpler rules: each case is a rule that was tried, and the order of events under which it
// lost an event, applied one twice, or ran two at once. says is what the machine answers to the last thing it is told, notes and
// timers left out.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule   string // that was tried, and does not do
		leased bool
		told   []partitions.Input
		policy partitions.Policy
		says   string
	}{
		{
			rule: "apply whatever is above the checkpoint: what heals a gap would be taken for a duplicate",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 11), entry("order", 12))),
			says: "",
		}, {
			rule: "... so it is read again, and then applied in order",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 11)), later(50*time.Millisecond), read(entry("order", 9), entry("order", 10), entry("order", 11))),
			says: "apply at 7: order:a #9, attempt 1, new instance; moves order:a 8->9",
		}, {
			rule: "one checkpoint for all categories: payment #1 would be below order #2",
			told: tell(owned(), recovered(0, 0, 0), read(entry("order", 1), entry("order", 2), entry("payment", 1)), committed(), committed()),
			says: "apply at 7: payment:a #1, attempt 1; moves payment:a 0->1",
		}, {
			rule: "one checkpoint for both lanes: backfill #5 would be below primary #6",
			told: tell(owned(), recovered(5, 4, 0), read(entry("order", 6), entry("order/backfill", 5)), committed()),
			says: "apply at 7: order:a (backfill) #5, attempt 1; moves order:a (backfill) 4->5",
		}, {
			rule: "checkpoint = stored + 1: a type that is not handled would be a gap",
			told: tell(owned(), recovered(3, 0, 0), read(typed("order", 4, "ignored"), typed("order", 5, ""), entry("order", 6))),
			says: "apply at 7: order:a #6, attempt 1, new instance; moves order:a 3->6",
		}, {
			rule:   "serve at a generation that the store was not raised to: the earlier owner could still commit, or halt",
			leased: true,
			told:   tell(owned(), partitions.RecoverDone{Raised: false, Generation: 7, Checkpoints: checkpoints(8, 0, 0)}),
			says:   "release 7",
		}, {
			rule:   "acquire again at what the broker knows: the same refusal for ever",
			leased: true,
			told:   tell(owned(), partitions.RecoverDone{Raised: false, Generation: 12, Checkpoints: checkpoints(8, 0, 0)}, partitions.ReleaseDone{}),
			says:   "acquire above 12",
		}, {
			rule:   "trust a raise whose outcome is unknown: a row found at our generation may be somebody else's",
			leased: true,
			told:   tell(owned(), partitions.RecoverDone{Outcome: partitions.Unknown}),
			says:   "acquire above 7",
		}, {
			rule:   "a stale owner's halt is as good as any: it would stop the unit at an event that is applied",
			leased: true,
			told:   tell(owned(), recovered(8, 0, 0), read(entry("order", 9)), failed(partitions.Poison), partitions.WriteHaltDone{Outcome: partitions.Stale}),
			says:   "acquire above 7",
		}, {
			rule:   "an owner that wakes past its lease goes on with what it has read",
			leased: true,
			told:   tell(owned(), recovered(8, 0, 0), read(entry("order", 9), entry("order", 10)), later(13*time.Second), committed()),
			says:   "discard instance; acquire above 7",
		}, {
			rule:   "keep trying to recover at a generation while the store cannot be reached: nobody else gets to try",
			leased: true,
			told:   tell(owned(), partitions.RecoverDone{Outcome: partitions.Failed, Err: errors.New("store is down")}),
			says:   "release 7",
		}, {
			rule:   "... and then be the first to ask again",
			leased: true,
			told:   tell(owned(), partitions.RecoverDone{Outcome: partitions.Failed, Err: errors.New("store is down")}, partitions.ReleaseDone{}),
			says:   "idle, unfit, unread",
		}, {
			rule:   "compete for a unit that another one has: all nodes would ask for it all the time",
			leased: true,
			told:   []partitions.Input{partitions.Wake{}, partitions.AcquireDone{Acquired: partitions.Acquired{HeldFor: time.Second}}},
			says:   "idle, not to be had for 1s, unread",
		}, {
			rule:   "give a unit back when the deadline for its behavior has passed: another one enters beside the zombie",
			leased: true,
			told:   tell(owned(), recovered(8, 0, 0), read(entry("order", 9)), partitions.Hung{}, partitions.Drain{}, partitions.Drain{Cancel: true}, partitions.TimerFired{}),
			says:   "",
		}, {
			rule: "start the next event when a behavior was given up on: it would run beside its own zombie",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 9), entry("order", 10)), partitions.Hung{}, partitions.Wake{}, partitions.Acted{}, partitions.Lost{}, later(time.Hour)),
			says: "",
		}, {
			rule: "try again with the instance that failed: it remembers what was never committed",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 9)), committed(), read(entry("order", 10)), failed(partitions.Retry), partitions.WriteTriedDone{}, later(100*time.Millisecond)),
			says: "apply at 7: order:a #10, attempt 2, new instance, untry; moves order:a 9->10",
		}, {
			rule: "take a refused checkpoint for 'applied already' and go on: with a state that ran the event twice",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 9), entry("order", 10)), partitions.ApplyDone{Outcome: partitions.Moved}),
			says: "discard instance; acquire",
		}, {
			rule: "an unknown commit did not happen: apply it again",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 9)), partitions.ApplyDone{Outcome: partitions.Unknown}),
			says: "discard instance; acquire",
		}, {
			rule: "... it did: the store says so, and 10 is next",
			told: tell(owned(), recovered(8, 0, 0), read(entry("order", 9)), partitions.ApplyDone{Outcome: partitions.Unknown},
				partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 7}}, recovered(9, 0, 0), read(entry("order", 10))),
			says: "apply at 7: order:a #10, attempt 1, new instance; moves order:a 9->10",
		}, {
			rule: "remember in the broker who is halted: it forgets. Whoever recovers the unit finds its halt in the store",
			told: tell(owned(), partitions.RecoverDone{Checkpoints: checkpoints(8, 0, 0), Halt: &partitions.Failure{Lane: lane("order"), Sequence: 9, Reason: "poison"}}),
			says: "release 7",
		}, {
			rule: "look at a halted unit at every wake: a thousand of them are acquired and released at every scan",
			told: tell(owned(), partitions.RecoverDone{Checkpoints: checkpoints(8, 0, 0), Halt: &partitions.Failure{Lane: lane("order"), Sequence: 9, Reason: "poison"}},
				partitions.ReleaseDone{}, partitions.Wake{}, partitions.Wake{}),
			says: "",
		}, {
			rule: "passivate, and forget a wake that comes meanwhile",
			told: tell(owned(), recovered(8, 0, 0), read(), later(31*time.Second), partitions.Wake{}, partitions.ReleaseDone{}),
			says: "acquire",
		}, {
			policy: partitions.ParkUnit,
			rule:   "park what failed and go on: what comes after it overtakes it",
			told:   tell(owned(), recovered(8, 0, 0), read(entry("order", 9), entry("order", 10)), failed(partitions.Poison), partitions.WriteParkedDone{}),
			says:   "park at 7: order:a #10 behind; moves order:a 9->10",
		}, {
			policy: partitions.ParkUnit,
			rule:   "... other categories as well: nothing of them waits for it",
			told:   tell(owned(), recovered(8, 0, 0), read(entry("order", 9), entry("payment", 1)), failed(partitions.Poison), partitions.WriteParkedDone{}),
			says:   "apply at 7: payment:a #1, attempt 1, new instance; moves payment:a 0->1",
		}, {
			rule: "read on while what was parked is applied: what is new overtakes it, or is parked behind what is about to go",
			told: tell(owned(), withAsides(), parkedAsides(6), partitions.Wake{}, committed()),
			says: "fetch up to 16 set aside at 7",
		}, {
			rule: "remember in memory that what is parked is to be applied: whoever is next would not",
			told: tell(owned(), withAsides(), parkedAsides(6, 7), partitions.ApplyDone{Outcome: partitions.Unknown},
				partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 7}}, withAsides()),
			says: "fetch up to 16 set aside at 7",
		}, {
			rule: "what of a batch was read is applied, one after the other, whatever becomes of the first: a parked one that fails is overtaken",
			told: tell(owned(), withAsides(), parkedAsides(6, 7), failed(partitions.Poison), partitions.SettleAsideDone{}),
			says: "fetch up to 16 set aside at 7",
		}, {
			rule: "let an ask have its turn between the count and the suspect: a crash of the ask is counted against it",
			told: tell(unclean(), recovered(8, 0, 0), read(entry("order", 9)), partitions.Demand{}, partitions.WriteTriedDone{}),
			says: "apply at 7: order:a #9, attempt 1, new instance, suspect, untry; moves order:a 8->9",
		}, {
			rule: "count again when nobody knows whether it was counted: lost replies condemn it",
			told: tell(unclean(), suspected(1, 0), read(entry("order", 9)), partitions.WriteTriedDone{Outcome: partitions.Unknown},
				partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 7}}, suspected(2, 1), read(entry("order", 9))),
			says: "write tried at 7, alone: order:a #9, attempts 0, suspicions 2, alone 1",
		}, {
			rule: "take back a suspicion when there is time: what runs before that may crash, and it is blamed",
			told: tell(unclean(), suspected(1, 0), read(entry("order", 9)), partitions.WriteTriedDone{}, partitions.Demand{}, failed(partitions.Retry)),
			says: "discard instance; write tried at 7: order:a #9, attempts 1: it went wrong",
		}, {
			rule: "condemn whoever was there in a crash: the innocent were as often as the crasher",
			told: tell(unclean(), suspected(9, 2), read(entry("order", 9))),
			says: "write tried at 7, alone: order:a #9, attempts 0, suspicions 10, alone 3",
		}, {
			rule: "... and whoever was counted, whatever happened since: a unit that was given back has nobody to blame",
			told: tell(owned(), suspected(9, 3)),
			says: "write tried at 7: order:a #9, attempts 0",
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.says, play(c.leased, c.policy, c.told)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// play tells a machine all of it and gives what it says to the last, notes and timers left out.
func play(leased bool, policy partitions.Policy, told []partitions.Input) string {
	cfg := partitions.Config{Policy: policy, Handling: func(e *event.Envelope) partitions.Handling {
		if e.Type == "ignored" {
			return partitions.PassOver
		}
		return partitions.Handle
	}}.WithDefaults()
	if leased {
		cfg.Traits = partitions.Traits{Leased: true, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second}
	}
	m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order"), lane("order/backfill"), lane("payment")})
	now := partitions.Tick(time.Second)
	var says []string
	for _, in := range told {
		if wait, ok := in.(waiting); ok {
			now, in = now.Add(wait.d), partitions.TimerFired{}
		}
		if r, ok := in.(partitions.RecoverDone); ok && leased && r.Generation == 0 {
			r.Raised = true
			in = r
		}
		says = says[:0]
		for _, e := range m.Step(now, in) {
			switch e.(type) {
			case *partitions.Note, *partitions.SetTimer, *partitions.Cancel:
			default:
				says = append(says, e.String())
			}
		}
	}
	return strings.Join(says, "; ")
}

// waiting lets time pass, and then the timer fire.
type waiting struct {
	partitions.TimerFired
	d time.Duration
}

func later(d time.Duration) partitions.Input { return waiting{d: d} }

func tell(first []partitions.Input, then ...partitions.Input) []partitions.Input {
	return append(first, then...)
}

// owned wakes the unit and has it granted at 7.
func owned() []partitions.Input {
	return []partitions.Input{partitions.Wake{}, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 7}}}
}

// unclean is owned, and was not given back before.
func unclean() []partitions.Input {
	return []partitions.Input{partitions.Wake{}, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 7, Unclean: true}}}
}

// suspected recovers at order #8, with #9 suspected so often.
func suspected(suspicions, alone int) partitions.Input {
	return partitions.RecoverDone{Checkpoints: checkpoints(8, 0, 0), Tried: &partitions.Tried{Lane: lane("order"), Sequence: 9, Suspicions: suspicions, Alone: alone}}
}

// withAsides recovers at order #8, with #6 and #7 parked and due.
func withAsides() partitions.Input {
	return partitions.RecoverDone{Checkpoints: checkpoints(8, 0, 0), Parked: []partitions.Parked{{Category: "order", Count: 2}}, Due: true}
}

func parkedAsides(sequences ...event.Sequence) partitions.Input {
	var in partitions.FetchAsideDone
	for _, seq := range sequences {
		in.Entries = append(in.Entries, partitions.Aside{AsideRef: partitions.AsideRef{Lane: lane("order"), Sequence: seq}, Entry: entry("order", seq)})
	}
	return in
}

func checkpoints(order, backfill, payment event.Sequence) []event.Position {
	return []event.Position{{Lane: lane("order"), Sequence: order}, {Lane: lane("order/backfill"), Sequence: backfill}, {Lane: lane("payment"), Sequence: payment}}
}

func recovered(order, backfill, payment event.Sequence) partitions.Input {
	return partitions.RecoverDone{Checkpoints: checkpoints(order, backfill, payment)}
}

func entry(name string, seq event.Sequence) event.Envelope { return typed(name, seq, "placed") }

func typed(name string, seq event.Sequence, wireName string) event.Envelope {
	ref := lane(name)
	return event.Envelope{Type: wireName, Category: ref.Category, Key: ref.Key, Lane: ref.Lane, Sequence: seq}
}

func read(entries ...event.Envelope) partitions.Input {
	return partitions.FetchDone{Fetched: partitions.Fetched{Entries: entries}}
}

func committed() partitions.Input { return partitions.ApplyDone{} }

func failed(c partitions.Class) partitions.Input {
	return partitions.ApplyDone{Outcome: partitions.Failed, Class: c, Err: errors.New("it went wrong")}
}
