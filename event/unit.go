package event

import "strconv"

// Generation is the fencing token of a [Unit]: it grows at every acquisition (with a process-owned store: at every
// start of the process) and never goes back. 0 means "none": no owner has ever held the unit.
type Generation uint64

func (g Generation) String() string { return strconv.FormatUint(uint64(g), 10) }

// Sequence numbers the events of one broker lane: 1, 2, 3, without gaps, in commit order. 0 means "before the first".
type Sequence uint64

func (s Sequence) String() string { return strconv.FormatUint(uint64(s), 10) }

// Unit is what one lease covers and one actor runs: (handler, key), (process manager, correlation value) or
// (entity kind, id). Handlers, process managers and entity kinds share one name space, so Name alone says which.
type Unit struct {
	Name string // handler, process manager or entity kind
	Key  string // partition key, correlation value or entity id
}

func (u Unit) String() string { return u.Name + "/" + u.Key }

// IsZero reports whether u names no unit.
func (u Unit) IsZero() bool { return u == Unit{} }

// Lane tells the two broker lanes of a partition apart. The primary lane is drained first.
type Lane uint8

const (
	Primary Lane = iota
	Backfill
)

func (l Lane) String() string {
	if l == Backfill {
		return "backfill"
	}
	return "primary"
}

// LaneRef names one broker lane: one order on the way out.
type LaneRef struct {
	Category string
	Key      string
	Lane     Lane
}

func (r LaneRef) String() string {
	if r.Lane == Backfill {
		return r.Category + ":" + r.Key + " (backfill)"
	}
	return r.Category + ":" + r.Key
}

// Compare orders lanes by category, key and lane; sequences are drawn in this order so that no two transactions
// can wait for each other. It returns -1, 0 or 1.
func (r LaneRef) Compare(o LaneRef) int {
	switch {
	case r.Category != o.Category:
		return order(r.Category < o.Category)
	case r.Key != o.Key:
		return order(r.Key < o.Key)
	case r.Lane != o.Lane:
		return order(r.Lane < o.Lane)
	}
	return 0
}

func order(less bool) int {
	if less {
		return -1
	}
	return 1
}

// Position is a place in a lane: the last sequence applied, and the id of its event ("" where it is not known).
type Position struct {
	Lane     LaneRef
	Sequence Sequence
	EventID  string
}

// Tail is the run of sequences that one commit added to a lane.
type Tail struct {
	Lane  LaneRef
	First Sequence
	Last  Sequence
}
