package faulty

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/keyhold/keyhold/eventstore"
)

// Call names a method of the store.
type Call string

const (
	Start             Call = "Start"
	SQL               Call = "SQL"
	Commit            Call = "Commit"
	PublishIn         Call = "PublishIn"
	ReadStream        Call = "ReadStream"
	ReadSnapshot      Call = "ReadSnapshot"
	ReadReply         Call = "ReadReply"
	ReadAll           Call = "ReadAll"
	ReadLane          Call = "ReadLane"
	LaneTail          Call = "LaneTail"
	Abandon           Call = "Abandon"
	Abandoned         Call = "Abandoned"
	Recover           Call = "Recover"
	Raise             Call = "Raise"
	Unpassed          Call = "Unpassed"
	Purge             Call = "Purge"
	LoadRegistry      Call = "LoadRegistry"
	SaveRegistry      Call = "SaveRegistry"
	FirstBroker       Call = "FirstBroker"
	Revision          Call = "Revision"
	Present           Call = "Present"
	Say               Call = "Say"
	Describe          Call = "Describe"
	CategoryHasEvents Call = "CategoryHasEvents"
	ListHalts         Call = "ListHalts"
	ListDead          Call = "ListDead"
	DueAsides         Call = "DueAsides"
	DueUnits          Call = "DueUnits"
	Act               Call = "Act"
	LastAct           Call = "LastAct"
	ActsAfter         Call = "ActsAfter"
	ListJobs          Call = "ListJobs"
	StepJob           Call = "StepJob"
	Unpublished       Call = "Unpublished"
	ReadLanes         Call = "ReadLanes"
	NotePublished     Call = "NotePublished"
	DueLooks          Call = "DueLooks"
	SetLooks          Call = "SetLooks"
	AllLooksDue       Call = "AllLooksDue"
	Passing           Call = "Passing"
	Diverge           Call = "Diverge"
	ListDiverged      Call = "ListDiverged"
	Adopt             Call = "Adopt"
	Taken             Call = "Taken"
)

// Op is one call of a method.
type Op struct {
	Call    Call
	N       int                 // counts the calls of this method on this store, from 1
	Who     string              // of the unit of work, for Commit and SQL
	Changes *eventstore.Changes // for Commit; to be read, not changed
}

// Fault is what goes wrong with a call. Its zero value lets the call through.
type Fault struct {
	// Wait, unless nil, holds the call back until it is closed (or the context of the call is done). A unit of work that has its turn does not wait for it again.
	Wait <-chan struct{}
	// Before is returned in place of calling the store: nothing happens. A unit of work is over all the same.
	Before error
	// After is returned in place of the answer of a call that succeeded: it has happened. For a commit it is wrapped in
	// [eventstore.ErrUnknownCommit] when it is not of that kind. An error of the store itself is not covered.
	After error
}

// Plan decides what goes wrong with a call. It is called by many goroutines at once, also while calls wait, and must
// not block nor call the store.
type Plan func(op Op) Fault

// Nth plans a fault for the nth call of a method, from 1.
func Nth(call Call, n int, fault Fault) Plan {
	return func(op Op) Fault {
		if op.Call == call && op.N == n {
			return fault
		}
		return Fault{}
	}
}

// All gives a call the fault of the first plan that has one for it.
func All(plans ...Plan) Plan {
	return func(op Op) Fault {
		for _, p := range plans {
			if f := p(op); f != (Fault{}) {
				return f
			}
		}
		return Fault{}
	}
}

// Rates are the chances of faults, each 0 to 1.
type Rates struct {
	Before float64 // a call fails before it reaches the store, with Error
	After  float64 // a call happens and its answer is lost, with Error
	Error  error   // must be set
}

// Seeded plans faults at random for the methods named, for all when none is. What happens to the nth call of a method
// depends on the seed, the method and n alone.
func Seeded(seed uint64, rates Rates, calls ...Call) Plan {
	hit := make(map[Call]bool, len(calls))
	for _, c := range calls {
		hit[c] = true
	}
	return func(op Op) Fault {
		if len(hit) > 0 && !hit[op.Call] {
			return Fault{}
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(op.Call))
		switch x := rand.New(rand.NewPCG(seed, h.Sum64()+uint64(op.N))).Float64(); {
		case x < rates.Before:
			return Fault{Before: rates.Error}
		case x < rates.Before+rates.After:
			return Fault{After: rates.Error}
		}
		return Fault{}
	}
}
